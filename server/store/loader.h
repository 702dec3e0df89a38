// Loader: takes records that were read from the disk into memory, or into the index. DiskFetcher
// and WarmUp read the disk. A read is believed only as far as REMSEQ-2 (removal_sequences.h) goes.
//
// Thread safety: all operations from any thread, but keep_expired() before the first of them. No
// operation blocks on the disk.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/bytes.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/disk_tier.h"
#include "server/store/expirer.h"
#include "server/store/expiry_clock.h"
#include "server/store/growth.h"
#include "server/store/record_store.h"
#include "server/store/record_table.h"

namespace rkv::server {

class Loader {
 public:
  // All arguments must outlive the object.
  Loader(RecordTable& table, CommitLog& log, const ExpiryClock& clock, DiskTier& disk,
         Growth& growth, Expirer& expirer, RecordStore& records)
      : table_(table),
        log_(log),
        clock_(clock),
        disk_(disk),
        growth_(growth),
        expirer_(expirer),
        records_(records) {}

  // Records on disk that expired after `from_ms`, and not after `to_ms`, are hidden but stay on
  // disk.
  void keep_expired(std::uint64_t from_ms, std::uint64_t to_ms) {
    kept_from_ms_ = from_ms;
    kept_to_ms_ = to_ms;
  }
  // Takes a record from disk into memory. `as_of`: the record was read after everything up to this
  // sequence had been written to disk (REMSEQ-2). A key that is in memory keeps its record. Nothing
  // is logged, except the removal of an expired record. kStale: the key has changed since; read it
  // again. kOutOfMemory, kBusy: no space. kNotFound: the record has expired.
  Status load(const RecordFields& record, std::uint64_t as_of = kAboveAllSequences,
              bool promoted = false);
  // The same without the value: the index gets a slot that says the record is on disk.
  Status load_on_disk(const RecordFields& record, std::uint64_t as_of);
  // Prefetches the memory that a load of this key reads.
  void prefetch(Bytes key) const;
  // Records loaded for an operation, since the start.
  std::uint64_t promoted() const { return promoted_.load(std::memory_order_relaxed); }

 private:
  Status load_large(RecordFields& record, std::uint64_t as_of, bool promoted);
  template <class Prepare>
  Status take_in(const RecordFields& record, std::uint64_t as_of, bool promoted, Prepare prepare);
  Status drop_expired(const RecordFields& record, std::uint64_t as_of);

  RecordTable& table_;
  CommitLog& log_;
  const ExpiryClock& clock_;
  DiskTier& disk_;
  Growth& growth_;
  Expirer& expirer_;
  RecordStore& records_;
  std::uint64_t kept_from_ms_ = 0;  // drop_expired() keeps records that expired after this
  std::uint64_t kept_to_ms_ = 0;    // and not after this
  std::atomic<std::uint64_t> promoted_{0};
};

}  // namespace rkv::server
