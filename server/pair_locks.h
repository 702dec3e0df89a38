// One lock for each pair of groups (a group and its overflow neighbour): it covers every change of
// the keys that live there - groups, records, stash. Several pairs share a lock (striping).
//
// A thread holds at most one of these locks, but for a split, which takes all of its segment in
// ascending order and holds none when it begins (DESIGN.md, "Locks"). Under them, a thread may take
// the allocator's, the stash's and the segments' locks, never the other way round.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>

#include "common/layout.h"

namespace rkv::server {

// What a stripe counts, guarded by its lock: no counter is shared by all threads.
struct StripeCounters {
  std::uint64_t records = 0;
  std::uint64_t puts_in_place = 0;
  std::uint64_t puts_moved = 0;
  std::uint64_t splits = 0;
  std::uint64_t expiring = 0;  // of the records: those with an expiry
  std::uint64_t expired = 0;
  std::uint64_t on_disk = 0;  // slots that say so
  std::uint64_t evicted = 0;
};

class PairLocks {
 public:
  // A cache line each: threads at work on different stripes do not disturb one another.
  struct alignas(64) Stripe {
    std::mutex mutex;
    StripeCounters counters;
  };

  PairLocks() : stripes_(std::make_unique<Stripe[]>(kStripes)) {}

  Stripe& of(GroupPlace home) const { return stripes_[home.number / 2 % kStripes]; }

  // All locks of a segment's pairs: its groups are first..first+count-1.
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

    StripeCounters& counters() const { return stripes_[first_].counters; }

   private:
    // Ascending, also where the segment's pairs pass the last stripe and begin again at the first.
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
      const std::scoped_lock lock(stripes_[i].mutex);
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
  // 1024 locks, 64 KiB: with 16 threads at work, a collision for 1.5 % of the operations.
  static constexpr std::uint32_t kStripes = 1024;
  std::unique_ptr<Stripe[]> stripes_;
};

}  // namespace rkv::server
