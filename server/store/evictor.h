// Evictor: takes the least recently used records out of memory once data memory cannot grow. With a
// disk, only records that are there go. Without one the store can be a cache, whose records are
// dropped: to its clients that is a DELETE that no client sent.
//
// Thread safety: evict_for_space() and evicts_after_sync(): one thread. on_no_room() and
// drop_when_full() before the first operation. make_vacancy(): under the lock of its pair. All
// others: any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "common/clock.h"
#include "server/log/commit_log.h"
#include "server/store/disk_tier.h"
#include "server/store/record_table.h"
#include "server/store/run_maker.h"

namespace rkv::server {

class Evictor {
 public:
  // All arguments must outlive the object. `boot` is the upper half of all versions of this start.
  Evictor(RecordTable& table, CommitLog& log, DiskTier& disk, const Clock& clock,
          std::uint32_t boot)
      : table_(table), log_(log), disk_(disk), clock_(clock), boot_(boot) {}

  // Makes the store a cache. REQUIRES: a volatile log, and no disk.
  void drop_when_full();
  bool drops() const { return runs_ != nullptr && runs_->drops(); }
  // Makes a store that keeps all its records move some of them together, for a long record that
  // finds no free run. REQUIRES: no disk, and not drop_when_full().
  void move_for_runs(StretchClearer::Move move);
  bool moves() const { return runs_ != nullptr && !runs_->drops(); }
  // Whether use counts of records matter.
  bool counts_uses() const { return drops() || (!moves() && is_needed()); }

  // Whether evict_for_space() must be called regularly: records may leave memory or be moved, and
  // data memory cannot grow, because the limit is reached or the last attempt failed.
  bool is_needed() const {
    return (runs_ != nullptr || disk_.in_use()) &&
           data_is_full_grown_.load(std::memory_order_relaxed);
  }
  // Evicts the least recently used records that may go, until enough data memory is free. Returns
  // true if there is now free memory, or none was needed; false if nothing was evictable.
  // Blocks no operation for more than a few microseconds.
  bool evict_for_space();
  // After evict_for_space() found nothing: whether a sync would make records evictable.
  bool evicts_after_sync() const { return some_unsynced_; }
  // Whether the last evict_for_space() found nothing evictable, now or after a sync.
  bool has_nothing_to_evict() const { return nothing_to_evict_.load(std::memory_order_relaxed); }
  // Whether more than 1/16 of the data extents is free.
  bool has_spare_room() const;
  // Reports keys that clients have read, by hash. Their records stay longer in memory.
  void touch(std::span<const std::uint64_t> hashes) const;

  // Sets a callback for an operation that found no space. It runs in any thread, inside that
  // operation.
  void on_no_room(std::function<void()> call) { call_ = std::move(call); }
  // Whether an operation that found no block of so many units may find one after call().
  bool may_free(std::uint64_t units) const;
  // Runs that callback, at most once until evict_for_space() begins. `units`: of the block that the
  // operation did not find.
  void call(std::uint64_t units) {
    if (runs_ != nullptr) runs_->ask(units);
    if (!called_.exchange(true, std::memory_order_relaxed) && call_) call_();
  }
  // A block of so many units that was kept for the operation that asked for it by call().
  std::optional<Location> take_run(std::uint64_t units) {
    return runs_ != nullptr ? runs_->take(units) : std::nullopt;
  }
  // Whether no call() will get a block of so many units.
  bool is_hopeless(std::uint64_t units) const {
    return runs_ != nullptr && runs_->is_hopeless(units);
  }
  // Whether free memory as a whole would hold several records of this length.
  bool has_room_in_pieces(std::uint64_t units) const;
  // Frees what is kept for operations that have not come back.
  void give_up_runs() {
    if (runs_ != nullptr) runs_->give_up();
  }
  // Records that were looked at to make runs, since the start.
  std::uint64_t records_visited_for_runs() const {
    return runs_ == nullptr ? 0 : runs_->records_visited();
  }
  // Drops some records of a pair whose slots are all taken, the least recently used ones, for a key
  // that has none. Returns whether it dropped any: no if the store is not a cache, or if no record
  // of the pair may go. Another pair may get the place, so look again.
  bool make_vacancy(const Target& target);
  // Says whether data memory cannot grow, now or at all.
  void set_data_is_full_grown(bool full) {
    data_is_full_grown_.store(full, std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kMostAtOnce = std::size_t{4} * kSlotsPerGroup;
  std::size_t wanted_bytes(bool called) const;
  bool needs_a_run() const;
  // Records that have left the index, and whose blocks are to be released.
  struct Gone {
    std::array<Slot, kMostAtOnce> slots{};
    std::size_t count = 0;
    std::size_t bytes = 0;
  };
  std::size_t evict(std::size_t bytes);
  // Takes records out of memory until so many bytes become free, and at most so many records.
  // Under the lock of the pair.
  void evict_from(GroupPlace even, StripeCounters& counters, std::size_t wanted_bytes,
                  std::size_t most, Gone& gone);
  // Returns the bytes.
  std::size_t release(const Gone& gone);
  DiskTier::Leaves leaves(const RecordFields& record, std::uint64_t durable);
  bool is_durable(const RecordFields& record, std::uint64_t durable) const;

  RecordTable& table_;
  CommitLog& log_;
  DiskTier& disk_;
  const Clock& clock_;
  const std::uint32_t boot_;
  std::unique_ptr<RunMaker> runs_;  // of a store without a disk
  std::atomic<bool> data_is_full_grown_{false};
  std::function<void()> call_;
  std::atomic<bool> called_{false};
  std::atomic<bool> nothing_to_evict_{false};
  // Used by the evicting thread: it met a record that will be evictable soon, or after a sync; and
  // the next pair to scan.
  bool some_wait_ = false;
  bool some_unsynced_ = false;
  std::uint32_t hand_prefix_ = 0;
  std::uint32_t hand_pair_ = 0;
};

}  // namespace rkv::server
