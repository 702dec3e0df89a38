// The store: every change of the memory that clients READ happens here, in the order of steps that
// makes one-sided reads correct (DESIGN.md, "Writing").
//
// Thread safety: all operations, from any thread; each holds the lock of one group pair while it
// changes anything. Nothing blocks on the disk: a full commit log answers kBusy.
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
#include "server/disk_look.h"
#include "server/persistence/commit_log.h"

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
  bool in_cell = false;  // a counter: the version is that with which it was opened
  std::size_t value_length = 0;
  bool large = false;  // not copied: to be READ from `slot`
  // Where the record is now. Empty where no READ finds the value: on disk alone, or in a cell.
  Slot slot{};
};

// When a write is to begin at the latest; nobody has said so.
inline constexpr Nanos kAnyTime = std::numeric_limits<Nanos>::max();

struct PutOptions {
  Condition condition = Condition::kNone;
  Version expected{};        // kIfVersion
  std::uint64_t ttl_ms = 0;  // from now; 0 = for ever
  bool until = false;        // `ttl_ms` is the time itself, in Unix milliseconds
  DiskLook look{};
  Nanos begin_by = kAnyTime;  // by the store's clock
};

// Room for a large value that is on its way: a block and a place in the log, had before a byte of
// it came. To be given back to exactly one of finish_large() and cancel_large().
struct LargePut {
  Location block{};
  std::size_t head_bytes = 0;
  // Where the value goes: shared memory, and the adapter's key for it. What is written there is
  // seen by nobody until finish_large().
  MutableBytes value{};
  std::uint32_t local_key = 0;
  // The log's copy, to be filled as well; nullptr where the log keeps none.
  CommitLog::Attachment copy{};
  CommitLog::Reservation room{};
  DiskLook look{};
  std::uint64_t units() const { return record_units(head_bytes + value.size()); }  // of the block
};

struct CounterResult {
  PutResult put{};  // a swap that was not done: the version that the counter has
  std::int64_t number = 0;
  bool done = true;
  // The number is in a cell: the version is that of what was logged, which no GET will ever show.
  bool in_cell = false;
};

struct StoreStats {
  std::uint64_t records = 0;          // in memory
  std::uint64_t records_on_disk = 0;  // on disk alone, as far as they have been found there
  std::uint64_t evicted = 0;          // since the start
  std::uint64_t promoted = 0;         // loaded for an operation, since the start
  bool loading = false;
  std::uint64_t stashed_records = 0;  // known to the server alone: both groups of the pair full
  std::uint64_t index_slots = 0;      // of the segments in use
  std::uint64_t index_splits = 0;
  std::uint64_t memory_bytes = 0;     // that clients READ, made so far
  std::uint64_t data_bytes = 0;       // capacity of the data extents
  std::uint64_t data_bytes_used = 0;  // in blocks that hold records
  std::uint64_t puts_in_place = 0;
  std::uint64_t puts_moved = 0;
  std::uint64_t expiring = 0;  // records that will expire
  std::uint64_t expired = 0;   // records that did, since the start
  std::uint64_t expiry_notes = 0;
  std::uint64_t counter_cells = 0;        // that there are
  std::uint64_t counter_cells_taken = 0;  // that were ever used
  std::uint64_t one_sided_counters = 0;   // in cells now
};

class Store {
 public:
  // `memory` and `log` must outlive the store. `boot` is the number that versions begin with,
  // `unix_ms_at_0` the wall clock's time when `clock` said 0: what expires goes by it.
  Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint32_t boot,
        std::uint64_t unix_ms_at_0 = 0);
  ~Store();

  // The wall clock's time when `clock` said 0, as it is known by now. Any thread.
  void set_wall_clock(std::uint64_t unix_ms_at_0);
  std::uint64_t unix_ms() const;  // by which keys expire
  // What is on disk and expired after `from_ms`, at `to_ms` or before, is hidden and stays there.
  // Before begin_loading().
  void keep_expired(std::uint64_t from_ms, std::uint64_t to_ms);

  // All operations on keys: kOnDisk, where records may be on disk alone; nothing changed.
  // kOutOfMemory: no room for the record; nothing changed. kBusy: the commit log is full, or memory
  // is on its way; kIo: from the commit log; nothing changed. Lengths are within the limits
  // (checked by the wire decoder).
  // kTimeout: the write was to have begun before; nothing changed. The clock is looked at under the
  // pair's lock, last of all that may wait.
  // Of the options: kConflict: the condition does not hold; kNotFound: kIfVersion, and there is no
  // such key. kWrongType: the key holds a counter. A put without a time to live lives for ever.
  Result<PutResult> put(Bytes key, Bytes value, const PutOptions& options = {});
  // The same in two steps, for a value longer than kMaxInlineBytes that arrives piece by piece.
  // begin_large(): errors as put(); kTooLarge: no block of this store is as long.
  Result<LargePut> begin_large(Bytes key, std::size_t value_length, const PutOptions& options);
  // Publishes it. `digest`: value_digest() of what is in `large.value`. After an error `large` is
  // cancelled. Takes the pair's lock for as long as a small put does.
  Result<PutResult> finish_large(LargePut large, Bytes key, std::uint64_t digest,
                                 const PutOptions& options);
  // REQUIRES: nobody writes to `large.value` any more.
  void cancel_large(LargePut large);
  std::uint64_t epoch() const;

  // The version of the deletion. kNotFound; kBusy, kIo as above. kConflict: the key has another
  // version than the expected one.
  Result<Version> remove(Bytes key, std::optional<Version> expected = std::nullopt,
                         DiskLook look = {}, Nanos begin_by = kAnyTime);

  // Counters: signed numbers of 64 bits. Errors as above, and kWrongType: the key holds a plain
  // value; kOutOfRange: the sum would pass the limits; nothing changed.
  // An absent key counts from 0.
  Result<CounterResult> add(Bytes key, std::int64_t summand, DiskLook look = {},
                            Nanos begin_by = kAnyTime);
  // The number becomes `desired` if it is `expected`, else `done` is false. kNotFound.
  Result<CounterResult> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                             DiskLook look = {}, Nanos begin_by = kAnyTime);

  // ---- one-sided counters: their numbers are in cells that clients change. The operations above
  // do what they say on them too, by atomics on the cell, and the version stays what it is.

  // Cells of one network's clients. Before the first operation; they must outlive the store. What
  // open_counter() and a record call this network.
  std::uint32_t add_cells(Cells& cells);
  // `call` is called, by any thread inside an operation, when there is a cell to be swept and there
  // was none before. Set it before the first operation.
  void on_first_cell(std::function<void()> call);
  // The counter's cell, for clients of `network`; a counter that has none is given one. No cell:
  // none is left, the number is too large for one, or clients of another network have it.
  // kNotFound: it does not exist, and `create` is not set. Else errors as add(). Here and in
  // whatever meets a counter in a cell: blocks for a round trip inside the device; kInternal: that
  // failed, and the number may have been changed or not.
  struct OpenedCounter {
    Version version{};
    std::optional<std::uint32_t> cell{};
  };
  Result<OpenedCounter> open_counter(Bytes key, bool create, std::uint32_t network,
                                     DiskLook look = {}, Nanos begin_by = kAnyTime);
  // Logs the numbers that changed since the last time; kBusy: the log has no room for all of them.
  // Blocks as above, for each of them. Any thread.
  Status sweep_counters();
  // Takes all counters out of their cells and logs them: before the log is closed. After this no
  // operation of a client on a cell succeeds. `left`: counters that are not logged with their last
  // number, and `status` why the first of them is not; another call tries those again. As
  // sweep_counters().
  struct Swept {
    Status status{};
    std::uint64_t left = 0;
  };
  Swept end_counters();
  bool has_cells() const;  // in use

  // Copies the value to `out` (at least kMaxInlineBytes), unless it is large. kNotFound.
  Result<GetResult> get(Bytes key, MutableBytes out, DiskLook look = {}) const;

  // ---- records on disk (store_disk.cc, DESIGN.md, "Larger than memory"). The disk is read
  // elsewhere (Loads); here is said what that means.

  // From now on records may be on disk alone, and until end_loading() any key may be. Before the
  // first operation; the log is not volatile. Takes as long as it takes to write every group.
  void begin_loading();
  // Every record on disk has been given to load() or load_on_disk().
  void end_loading();
  // A record as it was on disk after everything up to `as_of` had been written there (V2). Nothing
  // is logged; a key that is in memory keeps what it has. kStale: the key has changed since, read
  // it again. kOutOfMemory, kBusy: no room. kNotFound: it has expired, and is no record any more.
  static constexpr std::uint64_t kForEver = ~std::uint64_t{0};
  Status load(const RecordFields& record, std::uint64_t as_of = kForEver, bool promoted = false);
  // The same without taking it into memory: a slot that says where it is.
  Status load_on_disk(const RecordFields& record, std::uint64_t as_of);
  // Asks the processor for the memory that a load of this key will look at.
  void prefetch(Bytes key) const;
  // How far that is: every record on disk below `key` has been given, and that of `key` is given
  // next, if it is there, as read at `as_of`; kForEver: the reading goes on with a later read.
  void loading(Bytes key, std::uint64_t as_of);
  // The sequence that must have been written before the disk is read for this key.
  std::uint64_t departed(Bytes key) const;
  // Whether operations on this key would say kOnDisk: a hint.
  bool is_on_disk(Bytes key) const;
  // Clients have read keys with these hashes: they stay longer in memory.
  void touch(std::span<const std::uint64_t> hashes);
  // Takes records out of memory that are on disk and were used least lately, until there is room
  // again. True: there is, or none was needed. False: nothing could go. Blocks no operation for
  // more than some microseconds. One thread.
  bool make_room();
  // When it has found nothing: whether some of it may go when it is synced. The same thread.
  bool evicts_after_sync() const;
  // `call` is called, by any thread inside an operation, when one has found no room. Set it before
  // the first operation.
  void on_no_room(std::function<void()> call);
  // Whether make_room() has to be called now and then: memory cannot grow any more.
  bool is_full_grown() const;
  // make_room() has found nothing that may go.
  bool has_nothing_to_evict() const;
  // Whether more than a sixteenth of the data extents is free.
  bool has_spare_room() const;

  // kHintWords words that clients of one transport swap (pins.h). Before the first operation; they
  // must outlive the store.
  void add_hint_words(const std::uint64_t* words);

  // ---- growth

  // Whether an extent should be added: less than half of one is unused, and the limit is not
  // reached.
  bool wants_memory() const;
  // Adds extents while that is so. Blocks while their pages are made, which no operation waits for:
  // meanwhile they use what there is and answer kBusy without it. One thread. True: something was
  // added. Errors are those of the memory's source; the next call tries again.
  Result<bool> grow();
  // `call` is called, by any thread inside an operation, when wants_memory() becomes true, and not
  // again until grow() has returned without an error. Set it before the first operation.
  void on_low_memory(std::function<void()> call);

  // ---- expiry. One thread.

  // Removes, as a DELETE does, what has expired. When the next record expires, by the clock; never
  // later than a second from now. Blocks for a full commit log no longer than it says.
  Nanos expire();
  // Whether something has expired and is still there: the commit log had no room.
  bool has_expired() const;
  // `call` is called, by any thread inside an operation, when a record expires earlier than all
  // others. Set it before the first operation.
  void on_earlier_expiry(std::function<void()> call);

  StoreStats stats() const;

  // What is wrong with the memory, or nothing: the index keeps its invariants (I1 to I6); each slot
  // leads to a live record of a key that belongs there, and to a block of the record's length; no
  // two records share a unit; what is counted is what there is. REQUIRES that no operation is under
  // way in any thread. Takes as long as it takes to read all records.
  std::string check_at_rest() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
