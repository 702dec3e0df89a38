// Store: the key-value operations of the server. Every change to the memory that clients READ
// happens here, in the order of steps that makes one-sided reads correct (DESIGN.md, "Writing").
// The store is composed of parts, each with its own responsibility; the server uses them directly:
//
//   store.put(key, value);                  // the operations on keys
//   store.counters().add(key, 1);
//   store.growth().on_low_memory(...);      // the work of background threads
//   next = store.expirer().expire();
//
// Errors of all operations on keys; nothing has changed when one is returned, but a cache may have
// dropped records to make room:
//  - kOutOfMemory: no space for the record.
//  - kBusy: the commit log is full, or memory is being added or freed; or, with `on_disk`, the
//    record is on disk only, or may be.
//  - kIo: the commit log failed.
//  - kTimeout: the write could not begin in time. The clock is read under the pair's lock, after
//    everything that may wait.
// Key and value lengths are within the limits (the wire decoder checks them).
//
// Thread safety: all operations, from any thread, unless their comment or their part's limits them.
// No operation blocks on the disk: a full commit log returns kBusy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/layout.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/store/counter_cells.h"
#include "server/store/counters.h"
#include "server/store/disk_tier.h"
#include "server/store/evictor.h"
#include "server/store/expirer.h"
#include "server/store/expiry_clock.h"
#include "server/store/growth.h"
#include "server/store/large_records.h"
#include "server/store/loader.h"
#include "server/store/record_store.h"
#include "server/store/record_table.h"
#include "server/store/toucher.h"

namespace rkv::server {

struct StoreStats {
  std::uint64_t records = 0;          // in memory
  std::uint64_t records_on_disk = 0;  // on disk only, as far as loading has found them
  std::uint64_t evicted = 0;          // since the start
  std::uint64_t promoted = 0;         // loaded for an operation, since the start
  bool loading = false;
  std::uint64_t stashed_records = 0;  // in the stash only: both groups of the pair were full
  std::uint64_t index_slots = 0;      // of the segments in use
  std::uint64_t index_splits = 0;
  std::uint64_t memory_bytes = 0;     // allocated so far, of the memory that clients READ
  std::uint64_t data_bytes = 0;       // capacity of the data extents
  std::uint64_t data_bytes_used = 0;  // in blocks that hold records
  std::uint64_t puts_in_place = 0;
  std::uint64_t puts_moved = 0;
  std::uint64_t longest_free_bytes = 0;     // of one free run, about
  std::uint64_t large_bytes_under_way = 0;  // of values that are arriving in pieces
  std::uint64_t large_refused = 0;          // because others under way have all room for them
  std::uint64_t expiring = 0;               // records with an expiry
  std::uint64_t expired = 0;                // records that expired, since the start
  std::uint64_t counter_cells = 0;          // total
  std::uint64_t counter_cells_taken = 0;    // ever used
  std::uint64_t one_sided_counters = 0;     // in cells now
};

class Store {
 public:
  // `memory`, `log` and `clock` must outlive the store. `boot` is the upper half of all versions of
  // this start. `unix_ms_at_0` is the wall clock's time when `clock` read 0; expiry uses it.
  Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint32_t boot,
        std::uint64_t unix_ms_at_0 = 0);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Stores a value of any length. Errors from the options: kConflict: the condition does not hold.
  // kNotFound: kIfVersion, and the key does not exist. kWrongType: the key holds a counter.
  // kTooLarge: no block of this store is long enough. A put without a time to live never expires.
  StoreResult<PutResult> put(Bytes key, Bytes value, const PutOptions& options = {});
  // Deletes the key and returns the version of the deletion. kNotFound. kConflict: the key has
  // another version than `expected`.
  StoreResult<Version> remove(Bytes key, std::optional<Version> expected = std::nullopt,
                              const DiskLookup& look = {}, Nanos begin_by = kAnyTime,
                              const WriteTag* tag = nullptr) {
    return records_.remove(key, expected, look, begin_by, tag);
  }
  // Copies the value to `out` unless the value is large. kNotFound. kTooLarge: it is not large, and
  // `out` is too short; kMaxInlineBytes hold any.
  StoreResult<GetResult> get(Bytes key, MutableBytes out, const DiskLookup& look = {}) const {
    return records_.get(key, out, look);
  }

  // Sets the expiry of a key to that of `options`, or takes it away, and leaves the value. Returns
  // the version of this write. kNotFound. `buffer`: kMaxInlineBytes of the caller's, for the value.
  // kTooLarge: a large value would be copied, and `copies_large` is false.
  StoreResult<PutResult> touch(Bytes key, const PutOptions& options, MutableBytes buffer,
                               bool copies_large = true) {
    return toucher_.touch(key, options, buffer, copies_large);
  }

  // Begins to fetch what an operation on the key reads first. A hint.
  void prefetch(Bytes key) const { table_.prefetch(key); }

  RecordStore& records() { return records_; }
  LargeRecords& large_records() { return large_records_; }  // values that arrive in pieces
  Counters& counters() { return counters_; }
  CounterCells& counter_cells() { return counter_cells_; }  // networks, and sweeping
  Loader& loader() { return loader_; }
  DiskTier& disk() { return disk_; }
  Evictor& evictor() { return evictor_; }
  Growth& growth() { return growth_; }
  Expirer& expirer() { return expirer_; }
  ExpiryClock& expiry_clock() { return expiry_clock_; }

  // Lets long records find room in memory that is free in short pieces: other records are moved
  // together. REQUIRES: no disk, and no evictor().drop_when_full(); before the first operation.
  void move_records_for_long_ones();

  StoreStats stats() const;
  // Checks the memory and returns the first violation, or "" (store_check.h). REQUIRES: no
  // operation runs in any thread. Reads all records.
  std::string check_at_rest() const;

 private:
  // Each part uses those above it.
  ExpiryClock expiry_clock_;
  RecordTable table_;
  DiskTier disk_;
  CounterCells counter_cells_;
  Evictor evictor_;
  Growth growth_;
  Expirer expirer_;
  RecordStore records_;
  LargeRecords large_records_;
  Toucher toucher_;
  Counters counters_;
  Loader loader_;
};

}  // namespace rkv::server
