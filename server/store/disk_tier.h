// DiskTier: which keys have their record on disk only, and whether a read of the disk says what is
// true now. The records got there before this start of the server, or were evicted. DESIGN.md,
// "Larger than memory", has the argument. Without a disk (begin_loading() was not called) every
// record is in memory.
//
// Invariants: REMSEQ-1 and REMSEQ-2 (removal_sequences.h), INDEX-3 and INDEX-7 (index.h), and
//  TIER-1  A key below the loading progress has a slot if its record is on disk only. A slot with
//      the same bits found before the progress has passed the key belongs to another key.
//
// Thread safety: begin_loading() before the first operation; end_loading() and set_progress(): one
// thread. Operations that take a Target: under the lock of its pair. All others: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/bytes.h"
#include "common/mutex.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/disk_lookup.h"
#include "server/store/record_table.h"
#include "server/store/removal_sequences.h"

namespace rkv::server {

class DiskTier {
 public:
  // `table` and `log` must outlive the object. `boot` is the upper half of all versions of this
  // start.
  DiskTier(RecordTable& table, CommitLog& log, std::uint32_t boot)
      : table_(table), log_(log), boot_(boot) {}

  // Whether records may be on disk only.
  bool in_use() const { return removal_sequences_ != nullptr; }
  // Records may be on disk only from now on, and any key may be until end_loading(). REQUIRES: the
  // log is not volatile. Writes every group once.
  void begin_loading();
  // Ends loading. Writes every group once. REQUIRES: every record on disk was passed to
  // Loader::load() or load_on_disk().
  void end_loading();
  // Loading progress: all records below `key` were passed to the loader. The record of `key`, if
  // any, comes next, as read at `as_of`. kAboveAllSequences: a later read will continue here.
  void set_progress(Bytes key, std::uint64_t as_of);

  // The sequence that must be on disk before the disk is read for this key.
  std::uint64_t removal_sequence(Bytes key) const;
  // A hint: whether operations on this key would return `on_disk`.
  bool is_on_disk(Bytes key) const;

  // ---- for the operations on keys

  // OK if the memory, or `look`, decides whether the key has a record; else `on_disk`, or the
  // error that kept the record out of memory.
  StoreStatus check_in_memory(const Target& at, const DiskLookup& look) const;
  // The key's record from `look`, if it is on disk only and the look is still valid (REMSEQ-2).
  const RecordOnDisk* record_on_disk(const Target& at, const DiskLookup& look) const;
  // A DELETE of a record that is on disk only. Uses up `room`.
  Version erase(const Target& at, Bytes key, CommitLog::Reservation room,
                const WriteTag* tag = nullptr);
  // Records that the key left memory at this sequence (REMSEQ-1).
  void raise(KeyHash hash, std::uint64_t sequence) {
    if (removal_sequences_ != nullptr) removal_sequences_->raise(hash, sequence);
  }

  // ---- for loading and eviction

  // Whether the key has left memory since the disk was read `as_of`. REQUIRES: in_use().
  bool has_changed_since(KeyHash hash, std::uint64_t as_of) const {
    return removal_sequences_->of(hash) > as_of;
  }
  // The slot that belongs to this key, if there is one (TIER-1).
  std::optional<Index::Position> own_slot(const Target& at, Bytes key) const;
  // The trace of an evicted record in the index.
  enum class Leaves : std::uint8_t { kSlot, kNothing, kCannotGo };
  Leaves leaves(const RecordFields& record) const;
  void prefetch(KeyHash hash) const {
    if (removal_sequences_ != nullptr) removal_sequences_->prefetch(hash);
  }

 private:
  bool is_passed(Bytes key) const RKV_REQUIRES(progress_mutex_);
  void refresh_spilled();

  RecordTable& table_;
  CommitLog& log_;
  const std::uint32_t boot_;
  std::unique_ptr<RemovalSequences> removal_sequences_;  // nullptr: all records are in memory
  mutable Mutex progress_mutex_;                         // innermost
  // Keys below it were passed to the loader.
  std::vector<std::byte> progress_key_ RKV_GUARDED_BY(progress_mutex_);
  std::uint64_t progress_as_of_ RKV_GUARDED_BY(progress_mutex_) = kAboveAllSequences;
  bool loaded_all_ RKV_GUARDED_BY(progress_mutex_) = false;
};

}  // namespace rkv::server
