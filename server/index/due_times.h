// DueTimes: when the records of a pair, of a segment and of the whole index may expire first. A
// write lowers these times, and the expirer alone raises them. They replace a list of all records
// that expire: a record costs nothing, a pair 8 bytes.
//
// Times are Unix milliseconds and lower bounds. A record that was replaced or removed leaves its
// time behind; the expirer then looks at the pair once, finds nothing and raises the time.
//
// Invariants, true whenever the pair's lock is free:
//  DUE-1  A pair's time is not after the expiry of any record of the pair in memory.
//  DUE-2  A segment's time is not after the time of any of its pairs, and earliest() not after the
//      time of any segment. The exception is what the expirer has taken (take(), take_earliest()).
//      It looks at everything below that, and lowers what it took again.
//
// DUE-2 holds without a lock that two writers share, because both sides use one total order
// (seq_cst): a writer stores the pair's time and then looks at the segment's, the expirer takes the
// segment's time and then looks at the pairs'. So one of the two sees what the other did. The same
// holds one step higher for a segment and earliest().
//
// Thread safety: note(), set_pair(), split() under the lock of the pair, or of all pairs of the
// segments. take(), take_earliest(): the expirer, one thread. All others: any thread. add_extent():
// before a segment of the extent is used.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

#include "common/layout.h"
#include "server/memory/segments.h"

namespace rkv::server {

class DueTimes {
 public:
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  explicit DueTimes(std::uint32_t groups_per_segment)
      : groups_per_segment_(groups_per_segment),
        extents_(std::make_unique<Extent[]>(kMaxExtents)) {}

  void add_extent(std::uint32_t extent, std::uint32_t segments);

  // Notes that a record of the pair of `home` expires at `at_ms`. Returns true if no record of the
  // index expires earlier.
  bool note(GroupPlace home, std::uint64_t at_ms) {
    std::atomic<std::uint64_t>& pair = pair_at(home);
    if (pair.load(std::memory_order_relaxed) <= at_ms) return false;
    pair.store(at_ms, std::memory_order_seq_cst);
    return lower(segment_at(home), at_ms) && lower(earliest_, at_ms);
  }

  // Whether a record of this home with this expiry is found in time (DUE-1, DUE-2). REQUIRES: the
  // expirer is not at work.
  bool finds(GroupPlace home, std::uint64_t expiry_ms) const;

  std::uint64_t earliest() const { return earliest_.load(std::memory_order_seq_cst); }
  std::uint64_t of_segment(Segment segment) const {
    return extents_[segment.extent].segments[segment.number].load(std::memory_order_seq_cst);
  }
  std::uint64_t of_pair(GroupPlace home) const {
    return pair_at(home).load(std::memory_order_seq_cst);
  }

  // ---- the expirer

  // Set the time to kNever.
  void take_earliest() { earliest_.exchange(kNever, std::memory_order_seq_cst); }
  void take(Segment segment) {
    extents_[segment.extent].segments[segment.number].exchange(kNever, std::memory_order_seq_cst);
  }
  // Lowers the segment's time to the earliest of its pairs', and earliest() to the segment's.
  void give_back(Segment segment);
  void lower_earliest(std::uint64_t at_ms) { lower(earliest_, at_ms); }
  // REQUIRES: DUE-1.
  void set_pair(GroupPlace home, std::uint64_t at_ms) {
    pair_at(home).store(at_ms, std::memory_order_seq_cst);
  }

  // ---- a split

  // Half of the keys of `from` may be in `to` now. REQUIRES: `to` is not in use yet.
  void split(Segment from, Segment to);

 private:
  struct Extent {
    std::unique_ptr<std::atomic<std::uint64_t>[]> pairs;
    std::unique_ptr<std::atomic<std::uint64_t>[]> segments;
  };
  // Returns whether it was later before.
  static bool lower(std::atomic<std::uint64_t>& time, std::uint64_t at_ms) {
    std::uint64_t before = time.load(std::memory_order_seq_cst);
    while (before > at_ms) {
      if (time.compare_exchange_weak(before, at_ms, std::memory_order_seq_cst)) return true;
    }
    return false;
  }
  std::atomic<std::uint64_t>& pair_at(GroupPlace home) const {
    return extents_[home.extent].pairs[home.number / 2];
  }
  std::atomic<std::uint64_t>& segment_at(GroupPlace home) const {
    return extents_[home.extent].segments[home.number / groups_per_segment_];
  }

  const std::uint32_t groups_per_segment_;
  const std::unique_ptr<Extent[]> extents_;  // kMaxExtents
  std::atomic<std::uint64_t> earliest_{kNever};
};

}  // namespace rkv::server
