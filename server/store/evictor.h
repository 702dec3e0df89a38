// Evictor: takes the least recently used records out of memory once data memory cannot grow. With a
// disk, only records that are there go. Without one the store can be a cache, whose records are
// dropped: to its clients that is a DELETE that no client sent.
//
// Thread safety: evict_for_space() and evicts_after_sync(): one thread. on_no_room() and
// drop_when_full() before the first operation. make_vacancy(): under the lock of its pair. All
// others: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "common/clock.h"
#include "server/persistence/commit_log.h"
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
  bool drops() const { return runs_ != nullptr; }
  // Whether it is of use to count a use of a record.
  bool counts_uses() const { return drops() || is_needed(); }

  // Whether evict_for_space() must be called regularly: records may leave memory, and data memory
  // cannot grow, because the limit is reached or the last attempt failed.
  bool is_needed() const {
    return (drops() || disk_.in_use()) && data_is_full_grown_.load(std::memory_order_relaxed);
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
  // Runs that callback, at most once until evict_for_space() begins. `units`: of the block that the
  // operation did not find.
  void call(std::uint64_t units) {
    if (drops()) runs_->ask(units);
    if (!called_.exchange(true, std::memory_order_relaxed) && call_) call_();
  }
  // A block of so many units that was kept for the operation that asked for it by call().
  std::optional<Location> take_run(std::uint64_t units) {
    return drops() ? runs_->take(units) : std::nullopt;
  }
  // Whether no call() will get a block of so many units.
  bool is_hopeless(std::uint64_t units) const { return drops() && runs_->is_hopeless(units); }
  // Frees what is kept for operations that have not come back.
  void give_up_runs() {
    if (drops()) runs_->give_up();
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
  std::size_t evict(std::size_t bytes);
  // Takes at most so many records out of memory. Returns their bytes.
  std::size_t evict_from(GroupPlace even, StripeCounters& counters, std::size_t most = kMostAtOnce);
  DiskTier::Leaves leaves(const RecordFields& record, std::uint64_t durable);
  bool is_durable(const RecordFields& record, std::uint64_t durable) const;

  RecordTable& table_;
  CommitLog& log_;
  DiskTier& disk_;
  const Clock& clock_;
  const std::uint32_t boot_;
  std::unique_ptr<RunMaker> runs_;  // of a cache
  std::atomic<bool> data_is_full_grown_{false};
  std::function<void()> call_;
  std::atomic<bool> called_{false};
  std::atomic<bool> nothing_to_evict_{false};
  // Of the evicting thread. It met a record that will be evictable soon, or after a sync; and the
  // next pair to scan.
  bool some_wait_ = false;
  bool some_unsynced_ = false;
  std::uint32_t hand_prefix_ = 0;
  std::uint32_t hand_pair_ = 0;
};

}  // namespace rkv::server
