// Store: the key-value operations of the server. Every change to the memory that clients READ
// happens here, in the order of steps that makes one-sided reads correct (DESIGN.md, "Writing").
//
// Thread safety: all operations, from any thread, unless their comment limits them. Each holds the
// lock of one group pair while it changes anything. No operation blocks on the disk: a full commit
// log returns kBusy.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/layout.h"
#include "common/wire.h"
#include "rkv/result.h"
#include "server/persistence/commit_log.h"
#include "server/store/disk_lookup.h"

namespace rkv::server {

class Cells;
class StoreMemory;

struct PutResult {
  Version version{};
  Slot slot{};                // where the record is now
  bool in_neighbour = false;  // the slot is in the overflow neighbour of the home group
};

struct GetResult {
  Version version;
  std::uint64_t expiry_ms = 0;  // Unix milliseconds, 0 = never
  bool counter = false;
  bool in_cell = false;  // a counter: `version` is the version of its opening
  std::size_t value_length = 0;
  bool large = false;  // not copied: the caller READs the value from `slot`
  // Where the record is now. Empty if no READ finds the value: the record is on disk only, or in a
  // cell.
  Slot slot{};
};

// No latest time for a write to begin.
inline constexpr Nanos kAnyTime = std::numeric_limits<Nanos>::max();

struct PutOptions {
  Condition condition = Condition::kNone;
  Version expected{};        // kIfVersion
  std::uint64_t ttl_ms = 0;  // from now; 0 = never expires
  bool until = false;        // `ttl_ms` is the expiry time itself, in Unix milliseconds
  DiskLookup look{};
  Nanos begin_by = kAnyTime;  // latest time to begin, by the store's clock
};

// Resources of a large value whose bytes are still arriving: a block and space in the log, taken
// before the first byte. Pass it to exactly one of finish_large() and cancel_large().
struct LargePut {
  Location block{};
  std::size_t head_bytes = 0;
  // Destination of the value: shared memory, and the adapter's key for it. No reader sees these
  // bytes before finish_large().
  MutableBytes value{};
  std::uint32_t local_key = 0;
  // The log's copy, which the caller fills as well. nullptr if the log keeps no copies.
  CommitLog::Attachment copy{};
  CommitLog::Reservation room{};
  DiskLookup look{};
  std::uint64_t units() const { return record_units(head_bytes + value.size()); }  // of the block
};

struct CounterResult {
  PutResult put{};  // of a swap that was not done: the counter's version
  std::int64_t number = 0;
  bool done = true;
  // The number is in a cell. The version is that of the log entry, which no GET ever returns.
  bool in_cell = false;
};

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
  std::uint64_t expiring = 0;  // records with an expiry
  std::uint64_t expired = 0;   // records that expired, since the start
  std::uint64_t expiry_notes = 0;
  std::uint64_t counter_cells = 0;        // total
  std::uint64_t counter_cells_taken = 0;  // ever used
  std::uint64_t one_sided_counters = 0;   // in cells now
};

class Store {
 public:
  // `memory` and `log` must outlive the store. `boot` is the upper half of all versions of this
  // start. `unix_ms_at_0` is the wall clock's time when `clock` read 0; expiry uses it.
  Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint32_t boot,
        std::uint64_t unix_ms_at_0 = 0);
  ~Store();

  // Corrects the wall clock's time when `clock` read 0. Any thread.
  void set_wall_clock(std::uint64_t unix_ms_at_0);
  std::uint64_t unix_ms() const;  // the time that expiry uses
  // Records on disk that expired after `from_ms`, and not after `to_ms`, are hidden but stay on
  // disk. Call it before begin_loading().
  void keep_expired(std::uint64_t from_ms, std::uint64_t to_ms);

  // Operations on keys. Errors of all of them; nothing has changed when one is returned:
  //  - kOnDisk: the record is on disk only, or may be.
  //  - kOutOfMemory: no space for the record.
  //  - kBusy: the commit log is full, or memory is being added or freed.
  //  - kIo: the commit log failed.
  //  - kTimeout: the write could not begin in time. The clock is read under the pair's lock, after
  //    everything that may wait.
  // Key and value lengths are within the limits (the wire decoder checks them).
  //
  // Stores a value. Errors from the options: kConflict: the condition does not hold. kNotFound:
  // kIfVersion, and the key does not exist. kWrongType: the key holds a counter. kTooLarge: no
  // block of this store is long enough. A put without a time to live never expires.
  Result<PutResult> put(Bytes key, Bytes value, const PutOptions& options = {});
  // The same in two steps, for a value longer than kMaxInlineBytes that arrives in pieces.
  // Both steps fail like put(). begin_large() checks the key's presence on disk and acquires the
  // memory; finish_large() checks the condition.
  Result<LargePut> begin_large(Bytes key, std::size_t value_length, const PutOptions& options);
  // Publishes the value. `digest` is value_digest() of the bytes in `large.value`. On an error
  // `large` is cancelled. Holds the pair's lock no longer than a small put does.
  Result<PutResult> finish_large(LargePut large, Bytes key, std::uint64_t digest,
                                 const PutOptions& options);
  // REQUIRES: `large.value` is not written any more, by the caller or by a device.
  void cancel_large(LargePut large);
  std::uint64_t epoch() const;

  // Deletes the key and returns the version of the deletion. kNotFound; errors as above. kConflict:
  // the key has another version than `expected`.
  Result<Version> remove(Bytes key, std::optional<Version> expected = std::nullopt,
                         DiskLookup look = {}, Nanos begin_by = kAnyTime);

  // Adds to a counter, a signed 64-bit number, and returns the sum. An absent key counts from 0.
  // Errors as above. kWrongType: the key holds a plain value. kOutOfRange: the sum would exceed the
  // limits; nothing changed.
  Result<CounterResult> add(Bytes key, std::int64_t summand, DiskLookup look = {},
                            Nanos begin_by = kAnyTime);
  // Sets the number to `desired` if it is `expected`; otherwise returns `done` false. kNotFound.
  Result<CounterResult> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                             DiskLookup look = {}, Nanos begin_by = kAnyTime);

  // ---- one-sided counters: their numbers are in cells that clients change. The operations above
  // work on them too, by atomics on the cell; the version does not change.

  // Adds the cells for the clients of one network. Returns the network's number, which
  // open_counter() and records use. Call it before the first operation. `cells` must outlive the
  // store.
  std::uint32_t add_cells(Cells& cells);
  // Sets a callback for the first cell that needs sweeping. It runs in any thread, inside an
  // operation. Set it before the first operation.
  void on_first_cell(std::function<void()> call);
  // Returns the counter's cell for clients of `network`. A counter without a cell gets one. `cell`
  // is empty if no cell is left, the number is too large for a cell, or the counter's cell belongs
  // to another network. kNotFound: the counter does not exist and `create` is false. Other errors
  // as add().
  // Like every operation on a counter in a cell, it blocks for a round trip inside the device.
  // kInternal: that round trip failed, and the number may or may not have changed.
  struct OpenedCounter {
    Version version{};
    std::optional<std::uint32_t> cell{};
  };
  Result<OpenedCounter> open_counter(Bytes key, bool create, std::uint32_t network,
                                     DiskLookup look = {}, Nanos begin_by = kAnyTime);
  // Logs the numbers that changed since the last sweep. kBusy: the log has no space for all of
  // them. Blocks for one device round trip per changed number. Any thread.
  Status sweep_counters();
  // Takes all counters out of their cells and logs them. Call it before the log is closed.
  // Afterwards no client operation on a cell succeeds. `left` counts counters whose last number is
  // not logged; `status` is the first error among them. Another call retries those. Blocks like
  // sweep_counters().
  struct Swept {
    Status status{};
    std::uint64_t left = 0;
  };
  Swept end_counters();
  bool has_cells() const;  // a cell has been used

  // Copies the value to `out` (at least kMaxInlineBytes) unless the value is large. kNotFound.
  Result<GetResult> get(Bytes key, MutableBytes out, DiskLookup look = {}) const;

  // ---- records on disk (store_disk.cc, DESIGN.md, "Larger than memory"). DiskFetcher reads the
  // disk; these functions apply the results.

  // Records may be on disk only from now on, and any key may be until end_loading(). Call it before
  // the first operation. REQUIRES: the log is not volatile. Writes every group once.
  void begin_loading();
  // Ends loading. Writes every group once. REQUIRES: every record on disk was passed to load() or
  // load_on_disk().
  void end_loading();
  // Above all sequences.
  static constexpr std::uint64_t kForEver = ~std::uint64_t{0};
  // Takes a record from disk into memory. `as_of`: the record was read after everything up to this
  // sequence had been written to disk (V2). A key that is in memory keeps its record. Nothing is
  // logged, except the removal of an expired record. kStale: the key has changed since; read it
  // again. kOutOfMemory, kBusy: no space. kNotFound: the record has expired.
  Status load(const RecordFields& record, std::uint64_t as_of = kForEver, bool promoted = false);
  // The same without the value: the index gets a slot that says the record is on disk.
  Status load_on_disk(const RecordFields& record, std::uint64_t as_of);
  // Prefetches the memory that a load of this key reads.
  void prefetch(Bytes key) const;
  // Loading progress: all records below `key` were passed to load() or load_on_disk(). The record
  // of `key`, if any, comes next, as read at `as_of`. kForEver: a later read will continue here.
  void loading(Bytes key, std::uint64_t as_of);
  // The sequence that must be on disk before the disk is read for this key.
  std::uint64_t departed(Bytes key) const;
  // A hint: whether operations on this key would return kOnDisk.
  bool is_on_disk(Bytes key) const;
  // Reports keys that clients have read, by hash. Their records stay longer in memory.
  void touch(std::span<const std::uint64_t> hashes);
  // Evicts the least recently used records that are on disk, until enough data memory is free.
  // Returns true if there is now free memory, or none was needed; false if nothing was evictable.
  // Blocks no operation for more than a few microseconds. One thread.
  bool evict_for_space();
  // After evict_for_space() found nothing: whether a sync would make records evictable. Same
  // thread.
  bool evicts_after_sync() const;
  // Sets a callback for an operation that found no space. It runs in any thread, inside that
  // operation. Set it before the first operation.
  void on_no_room(std::function<void()> call);
  // Whether evict_for_space() must be called regularly: records may be on disk only, and data
  // memory cannot grow, because the limit is reached or the last attempt failed.
  bool is_full_grown() const;
  // Whether the last evict_for_space() found nothing evictable, now or after a sync.
  bool has_nothing_to_evict() const;
  // Whether more than 1/16 of the data extents is free.
  bool has_spare_room() const;

  // Adds kHintWords words that clients of one transport swap (pins.h). Call it before the first
  // operation. The words must outlive the store.
  void add_hint_words(const std::uint64_t* words);

  // ---- growth

  // Whether an extent should be added: less than half an extent is unused, or an operation found no
  // space, and the limit is not reached.
  bool wants_memory() const;
  // Adds extents while wants_memory(). Blocks while the kernel provides their pages. Operations do
  // not wait for that: they use the memory there is, and return kBusy without it. One thread.
  // Returns whether an extent was added. Errors come from the memory's source; the next call
  // retries.
  Result<bool> grow();
  // Sets a callback for wants_memory() becoming true. It runs in any thread, inside an operation.
  // After a call it is silent until grow() returns without an error. Set it before the first
  // operation.
  void on_low_memory(std::function<void()> call);

  // ---- expiry. One thread.

  // Removes expired records, as a DELETE does. Returns when to call it next, by the clock: when the
  // next record expires, but at most one second from now. If the commit log is full, it does not
  // wait: it returns a time 1 ms away.
  Nanos expire();
  // Whether an expired record is still present because the commit log had no space.
  bool has_expired() const;
  // Sets a callback for a record that expires earlier than all others. It runs in any thread,
  // inside an operation. Set it before the first operation.
  void on_earlier_expiry(std::function<void()> call);

  StoreStats stats() const;

  // Checks the memory and returns the first violation, or an empty string. Checked: the index keeps
  // its invariants (I1 to I6, I8). Each slot leads to a live record of a key that belongs there,
  // and to a block of the record's length. No two records share a unit. The counters match.
  // REQUIRES: no operation runs in any thread. Reads all records.
  std::string check_at_rest() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
