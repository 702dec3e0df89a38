// PairLocks: one lock for each pair of groups (a group and its overflow neighbour). The lock covers
// every change of the keys of the pair: groups, records, stash. Several pairs share a lock
// (striping).
//
// A thread holds at most one of these locks. The exception is a split, which takes all locks of its
// segment in ascending order and holds none before (DESIGN.md, "Locks"). A thread that holds a pair
// lock may take the locks of the allocator, stash, segments and loading, never the reverse.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

// Counters of a stripe under its lock, so that no counter is shared by all threads.
struct StripeCounters {
  std::uint64_t records = 0;
  std::uint64_t puts_in_place = 0;
  std::uint64_t puts_moved = 0;
  std::uint64_t splits = 0;
  std::uint64_t expiring = 0;  // records with an expiry
  std::uint64_t expired = 0;
  std::uint64_t on_disk = 0;  // slots that say the record is on disk
  std::uint64_t evicted = 0;
};

class PairLocks {
 public:
  // A cache line each, so that threads on different stripes do not disturb one another.
  struct alignas(64) Stripe {
    Mutex mutex;
    StripeCounters counters RKV_GUARDED_BY(mutex);
  };

  PairLocks() : stripes_(std::make_unique<Stripe[]>(kStripes)) {}

  Stripe& of(GroupPlace home) const { return stripes_[home.number / 2 % kStripes]; }

  // All locks of a segment's pairs. Its groups are first..first+count-1.
  class Segment {
   public:
    Segment(const PairLocks& locks, GroupPlace first, std::uint32_t count)
        : stripes_(locks.stripes_.get()),
          first_(first.number / 2 % kStripes),
          count_(std::min(count / 2, kStripes)) {
      for (std::uint32_t i = 0; i < kStripes; ++i) {
        if (covers(i)) stripes_[i].mutex.lock();
      }
    }
    ~Segment() {
      for (std::uint32_t i = 0; i < kStripes; ++i) {
        if (covers(i)) stripes_[i].mutex.unlock();
      }
    }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    // Not analysed: the analysis does not follow locks that a loop takes.
    StripeCounters& counters() const RKV_NO_THREAD_SAFETY_ANALYSIS {
      return stripes_[first_].counters;
    }

   private:
    // Ascending order, even if the segment's stripes wrap from the last to the first.
    bool covers(std::uint32_t stripe) const {
      return (stripe + kStripes - first_) % kStripes < count_;
    }
    Stripe* const stripes_;
    const std::uint32_t first_;
    const std::uint32_t count_;
  };

  StripeCounters total() const {
    StripeCounters sum;
    for (std::uint32_t i = 0; i < kStripes; ++i) {
      const MutexLock lock(stripes_[i].mutex);
      sum.records += stripes_[i].counters.records;
      sum.puts_in_place += stripes_[i].counters.puts_in_place;
      sum.puts_moved += stripes_[i].counters.puts_moved;
      sum.splits += stripes_[i].counters.splits;
      sum.expiring += stripes_[i].counters.expiring;
      sum.expired += stripes_[i].counters.expired;
      sum.on_disk += stripes_[i].counters.on_disk;
      sum.evicted += stripes_[i].counters.evicted;
    }
    return sum;
  }

 private:
  // 1024 locks, 64 KiB: with 16 active threads, 1.5 % of the operations collide.
  static constexpr std::uint32_t kStripes = 1024;
  std::unique_ptr<Stripe[]> stripes_;
};

}  // namespace rkv::server
