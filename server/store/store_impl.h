// Implementation class of Store. store.cc has the operations on keys, store_growth.cc the growth.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/index/index.h"
#include "server/index/pair_locks.h"
#include "server/memory/memory.h"
#include "server/memory/record_allocator.h"
#include "server/store/cells.h"
#include "server/store/expiries.h"
#include "server/store/pins.h"
#include "server/store/removal_sequences.h"
#include "server/store/store.h"

namespace rkv::server {

// The form in which the log keeps a counter that is in a cell: with the number at its opening.
inline RecordFields out_of_cell(RecordFields fields) {
  fields.in_cell = false;
  fields.value = fields.value.first(kCounterBytes);
  return fields;
}

class Store::Impl {
 public:
  Impl(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint32_t boot,
       std::uint64_t unix_ms_at_0)
      : memory_(memory),
        log_(log),
        clock_(clock),
        unix_ms_at_0_(unix_ms_at_0),
        boot_(boot),
        index_(memory),
        records_(memory, clock),
        low_segments_(std::max(1U, memory.index_extent_segments() / 2)),
        low_data_bytes_(memory.data_extent_bytes() / 2) {
    update_growth_limits();
  }

  Result<PutResult> put(Bytes key, Bytes value, const PutOptions& options);
  Result<LargePut> begin_large(Bytes key, std::size_t value_length, const PutOptions& options);
  Result<PutResult> finish_large(LargePut large, Bytes key, std::uint64_t digest,
                                 const PutOptions& options);
  void cancel_large(LargePut large);
  std::uint64_t epoch() const { return memory_.epoch(); }
  Result<Version> remove(Bytes key, std::optional<Version> expected, DiskLookup look,
                         Nanos begin_by);
  Result<CounterResult> add(Bytes key, std::int64_t summand, DiskLookup look, Nanos begin_by);
  Result<CounterResult> swap(Bytes key, std::int64_t expected, std::int64_t desired,
                             DiskLookup look, Nanos begin_by);
  Result<GetResult> get(Bytes key, MutableBytes out, DiskLookup look) const;
  StoreStats stats() const;
  std::string check_at_rest();

  std::uint32_t add_cells(Cells& cells);
  void on_first_cell(std::function<void()> call) { call_sweeper_ = std::move(call); }
  Result<OpenedCounter> open_counter(Bytes key, bool create, std::uint32_t network, DiskLookup look,
                                     Nanos begin_by);
  Status sweep_counters() { return sweep(false).status; }
  Swept end_counters() { return sweep(true); }
  bool has_cells() const;

  bool wants_memory() const { return is_low(ExtentEntry::kIndex) || is_low(ExtentEntry::kData); }
  Result<bool> grow();
  void on_low_memory(std::function<void()> call) { call_ = std::move(call); }

  void add_hint_words(const std::uint64_t* words) { pins_.add_words(words); }

  std::uint64_t unix_ms(Nanos ahead = 0) const {
    return unix_ms_at_0_.load(std::memory_order_relaxed) +
           static_cast<std::uint64_t>((clock_.now() + ahead) / kNanosPerMs);
  }
  void set_wall_clock(std::uint64_t unix_ms_at_0) {
    unix_ms_at_0_.store(unix_ms_at_0, std::memory_order_relaxed);
  }
  void keep_expired(std::uint64_t from_ms, std::uint64_t to_ms) {
    kept_from_ms_ = from_ms;
    kept_to_ms_ = to_ms;
  }
  void begin_loading();
  void end_loading();
  Status load(const RecordFields& record, std::uint64_t as_of, bool promoted);
  Status load_on_disk(const RecordFields& record, std::uint64_t as_of);
  void loading(Bytes key, std::uint64_t as_of);
  void prefetch(Bytes key) const;
  std::uint64_t departed(Bytes key) const;
  bool is_on_disk(Bytes key) const;
  void touch(std::span<const std::uint64_t> hashes);
  bool evict_for_space();
  void on_no_room(std::function<void()> call) { call_evictor_ = std::move(call); }
  bool is_full_grown() const {
    return removal_sequences_ != nullptr && (!data_need_.may_grow.load(std::memory_order_relaxed) ||
                                             grow_failed_.load(std::memory_order_relaxed));
  }
  bool evicts_after_sync() const { return some_unsynced_; }
  bool has_nothing_to_evict() const { return nothing_to_evict_.load(std::memory_order_relaxed); }

  bool has_spare_room() const {
    const RecordAllocator::Usage usage = records_.usage();
    return usage.capacity_bytes - usage.used_bytes > usage.capacity_bytes / 16;
  }

  Nanos expire();
  bool has_expired() const {
    const auto next_ms = expiries_.earliest_ms();
    return next_ms && *next_ms <= unix_ms();
  }
  void on_earlier_expiry(std::function<void()> call) { call_expirer_ = std::move(call); }

 private:
  // Locks the pair of a key's home. While it is held, no other thread changes the key or moves its
  // home.
  class Locked {
   public:
    Locked(const Impl& store, KeyHash hash) {
      for (;;) {
        home = store.memory_.home(hash);
        stripe_ = &store.locks_.of(home);
        guard_ = std::unique_lock(stripe_->mutex);
        if (store.memory_.home(hash) == home) return;  // (D1)
        guard_.unlock();                               // the segment was split meanwhile
      }
    }
    void unlock() { guard_.unlock(); }
    StripeCounters& counters() const { return stripe_->counters; }
    GroupPlace home;

   private:
    PairLocks::Stripe* stripe_ = nullptr;
    std::unique_lock<std::mutex> guard_;
  };
  // A key under its pair's lock.
  struct Target {
    KeyHash hash;
    GroupPlace home;
    std::optional<Index::Position> found;
    StripeCounters* counters;
    // Of load(): the slot that says this key is on disk.
    std::optional<Index::Position> on_disk = std::nullopt;
  };
  // Everything a write needs and could fail to get. Complete before the commit sequence is taken;
  // after that nothing fails (S4).
  struct Plan {
    bool in_place = false;
    Location block = {};           // of the new record; in place: of the present one
    Index::Position vacancy = {};  // for a key that is not in memory
    std::uint64_t units = 0;
    bool value_is_there = false;  // a large value, already in the block
    bool only_logged = false;     // the record does not change: a counter in a cell
  };

  Target target(KeyHash hash, const Locked& locked, Bytes key) const {
    return {hash, locked.home, index_.find(locked.home, hash, key), &locked.counters()};
  }
  Result<Plan> plan(const Target& target, const RecordFields& fields);
  PutResult publish(const Target& target, const Plan& plan, const RecordFields& fields);
  void write_in_place(const Plan& plan, const RecordFields& fields);
  std::uint64_t write_prepared(const Plan& plan, const RecordFields& fields);
  void supersede(Location block);
  void release(Slot gone);
  Version version_at(Location block) const;
  // The record in `block`. The spans point into shared memory. REQUIRES: its pair's lock.
  RecordFields record_at(Location block) const;
  // A PUT in general. `decide(target)` refuses it, or completes `fields`.
  template <class Decide>
  Result<PutResult> write(RecordFields& fields, std::size_t value_bytes, const PutOptions& options,
                          Decide decide);
  // The part of write() after the reservation in the log. `prepare(target)` makes the plan, or
  // refuses.
  template <class Prepare>
  Result<PutResult> commit(CommitLog::Reservation room, RecordFields& fields, Prepare prepare,
                           DiskLookup look, Nanos begin_by, CommitLog::Attachment copy = {});
  // Whether a write may still begin (S6). REQUIRES: its pair's lock, so that nothing waits
  // afterwards.
  Status check_time(Nanos begin_by) const {
    if (begin_by == kAnyTime || clock_.now() <= begin_by) [[likely]]
      return {};
    return fail(Code::kTimeout, "the client has given the write up: it was not begun");
  }
  Result<PutResult> put_large(Bytes key, Bytes value, const PutOptions& options);
  RecordFields fields_for(Bytes key, const PutOptions& options) const;
  Status check_put(const Target& target, const PutOptions& options) const;
  Result<Location> allocate(std::uint64_t units);
  Status find_vacancy(const Target& target, Plan& plan);
  Status check_condition(const Target& target, Condition condition, Version expected) const;
  void erase(const Target& target);

  // Iteration over all pairs: store_walk.h.
  struct Pair {
    GroupPlace even;
    StripeCounters& counters;
    std::uint32_t depth = 0;
  };
  template <class Visit>
  void for_each_pair(Visit visit);
  template <class Visit>
  bool visit_pair(KeyHash prefix, std::uint32_t pair, std::uint32_t* depth, Visit visit);

  // Checks: store_check.cc.
  struct Rest;
  std::string check_pair(const Pair& pair, Rest& rest) const;
  std::string check_slot(const Pair& pair, GroupPlace home, Slot slot, Rest& rest) const;
  std::string check_record(GroupPlace home, Slot slot, const RecordFields& record,
                           Rest& rest) const;

  // Records on disk: store_disk.cc.
  Status check_in_memory(const Target& at, DiskLookup look) const;
  std::size_t evict_from(const Pair& pair);
  std::size_t evict(std::size_t bytes);
  static bool may_ever_go(const RecordFields& record);
  bool is_durable(const RecordFields& record, std::uint64_t durable) const;
  bool has_expired(std::uint64_t expiry_ms) const {
    return expiry_ms != 0 && expiry_ms <= unix_ms();
  }
  bool is_given(Bytes key) const;
  enum class Leaves : std::uint8_t { kSlot, kNothing, kCannotGo };
  Leaves leaves(const RecordFields& record) const;
  std::optional<Index::Position> own_slot(const Target& at, Bytes key) const;
  const RecordOnDisk* record_on_disk(const Target& at, const DiskLookup& look) const;
  Result<GetResult> get_on_disk(const RecordOnDisk& record, MutableBytes out) const;
  Status check_remove(const Target& at, const RecordOnDisk* on_disk,
                      std::optional<Version> expected, const DiskLookup& look) const;
  Version erase_on_disk(const Target& at, Bytes key, CommitLog::Reservation room);
  Status load_large(RecordFields& record, std::uint64_t as_of, bool promoted);
  template <class Prepare>
  Status take_in(const RecordFields& record, std::uint64_t as_of, bool promoted, Prepare prepare);
  Status drop_expired(const RecordFields& record, std::uint64_t as_of);

  // Expiry: store_expiry.cc.
  void note_expiry(KeyHash hash, const RecordFields& fields);
  bool expire_one(const Expiry& expiry);
  bool is_stale(const Expiry& expiry) const;

  // Counters in cells: store_cells.cc. REQUIRES: the lock of the record's pair.
  Cells& cells_of(const RecordFields& record, std::uint32_t* cell) const;
  Result<std::int64_t> number_of(const RecordFields& counter) const;
  Result<std::int64_t> end_cell(const RecordFields& counter) const;
  // Both return nothing if the number is no longer in a cell.
  Result<std::optional<std::int64_t>> add_in_cell(const RecordFields& counter,
                                                  std::int64_t summand) const;
  Result<std::optional<std::int64_t>> swap_in_cell(const RecordFields& counter,
                                                   std::int64_t expected,
                                                   std::int64_t desired) const;
  struct CellPlan {
    Plan plan;
    std::optional<std::uint32_t> cell;  // nothing: no cell is available, and `plan` is empty
  };
  Result<CellPlan> plan_in_cell(const Target& at, RecordFields& fields, MutableBytes bytes,
                                std::uint32_t network, std::int64_t number);
  Result<std::optional<std::uint32_t>> new_cell(std::uint32_t network, std::int64_t number);
  Swept sweep(bool end);
  static Status end_if_far(Cells& cells, std::uint32_t cell);
  Status sweep_one(Cells& cells, std::uint32_t cell, const Cells::Owner& owner, bool end);

  // Growth: store_growth.cc.
  void split_if_crowded(KeyHash hash);
  void split_all_crowded();
  bool is_low(ExtentEntry::Kind kind) const;
  void call_for_memory_if_low();
  std::unexpected<Error> no_room(ExtentEntry::Kind kind);
  std::unexpected<Error> pair_is_crowded(KeyHash hash);
  void take_in(const StoreMemory::Extent& extent);
  void update_growth_limits();

  StoreMemory& memory_;
  CommitLog& log_;
  const Clock& clock_;
  std::atomic<std::uint64_t> unix_ms_at_0_;  // relaxed: no other data depends on it
  std::uint64_t kept_from_ms_ = 0;           // drop_expired() keeps records that expired after this
  std::uint64_t kept_to_ms_ = 0;             // and not after this
  const std::uint32_t boot_;
  Index index_;
  RecordAllocator records_;
  PairLocks locks_;
  // The growth callback runs when less than half an extent is unused.
  const std::uint32_t low_segments_;
  const std::size_t low_data_bytes_;
  std::function<void()> call_;
  std::atomic<bool> called_{false};
  struct Need {
    std::atomic<bool> may_grow{false};  // the limit is not reached; set by take_in()
    std::atomic<bool> starved{false};   // an operation found no space since the last extent
  };
  Need index_need_;
  Need data_need_;
  std::atomic<bool> grow_failed_{false};
  std::unique_ptr<RemovalSequences> removal_sequences_;  // nullptr: all records are in memory
  std::function<void()> call_evictor_;
  std::atomic<bool> called_evictor_{false};
  std::atomic<bool> nothing_to_evict_{false};
  mutable std::mutex loading_mutex_;    // guards the next three; innermost
  std::vector<std::byte> loading_key_;  // keys below it were passed to load()
  std::uint64_t loading_as_of_ = kForEver;
  bool loaded_all_ = false;
  // Of the evicting thread. It met a record that will be evictable soon, or after a sync; and the
  // next pair to scan.
  bool some_wait_ = false;
  bool some_unsynced_ = false;
  std::uint32_t hand_prefix_ = 0;
  std::uint32_t hand_pair_ = 0;
  std::atomic<std::uint64_t> promoted_{0};
  Pins pins_;
  Expiries expiries_;
  std::function<void()> call_expirer_;
  std::vector<Cells*> cells_;  // by network
  std::function<void()> call_sweeper_;
  std::atomic<bool> called_sweeper_{false};
  std::mutex sweeping_;           // guards the next
  std::uint64_t sweep_from_ = 0;  // where the next sweep starts, counted over all cells
};

// Acquires everything that could fail before anything is published (S4).
template <class Decide>
Result<PutResult> Store::Impl::write(RecordFields& fields, std::size_t value_bytes,
                                     const PutOptions& options, Decide decide) {
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(fields.key.size(), value_bytes));
  const auto prepare = [&](const Target& at) -> Result<Plan> {
    RKV_RETURN_IF_ERROR(decide(at));
    return plan(at, fields);
  };
  return commit(room, fields, prepare, options.look, options.begin_by);
}

template <class Prepare>
Result<PutResult> Store::Impl::commit(CommitLog::Reservation room, RecordFields& fields,
                                      Prepare prepare, DiskLookup look, Nanos begin_by,
                                      CommitLog::Attachment copy) {
  const KeyHash hash = memory_.hash(fields.key);
  Locked locked(*this, hash);
  const Target at = target(hash, locked, fields.key);
  Status allowed = check_time(begin_by);
  if (allowed) allowed = check_in_memory(at, look);
  const Result<Plan> ready = allowed ? prepare(at) : std::unexpected(allowed.error());
  if (!ready) {
    locked.unlock();
    log_.unreserve(room);
    split_if_crowded(hash);  // the caller retries if its pair was full
    return std::unexpected(ready.error());
  }
  const CommitLog::Ticket ticket = log_.begin(room);
  fields.version = Version::of(boot_, ticket.sequence);
  const PutResult result =
      ready->only_logged ? PutResult{.version = fields.version} : publish(at, *ready, fields);
  log_.finish(ticket, CommitLog::Kind::kPut, fields.in_cell ? out_of_cell(fields) : fields,
              std::move(copy));
  locked.unlock();
  if (ready->only_logged) return result;
  // Only now that the new record is live: the allocator may reuse the block at once.
  if (at.found && !ready->in_place) release(at.found->slot);
  if (ready->vacancy.where == Index::Where::kStash) split_if_crowded(hash);
  if (fields.expiry_ms != 0) note_expiry(hash, fields);
  return result;
}

}  // namespace rkv::server
