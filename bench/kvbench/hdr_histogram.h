// HdrHistogram: log-linear buckets that keep three significant decimal digits at any magnitude.
// Bucket boundaries, percentiles and V2 encoding are those of the original
// (https://hdrhistogram.org, public domain), so that its tools can read the output.
//
//   LatencyRecorder recorder;          // one writer
//   recorder.record(nanoseconds);
//   HdrHistogram total;
//   recorder.add_to(total);            // from any thread, while it is written
//   total.percentile(99);
//
// Values are 0 to kMost; higher values count as kMost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/histogram.h"

namespace rkv::kvbench {

// The bucket of a value. 2,048 values have a bucket each. Above, each power of two has 1,024
// buckets: 1/1024 is below half a unit of the third digit.
struct HdrBuckets : LogLinearBuckets<10> {
  static constexpr std::uint64_t kMost = 3'600'000'000'000;  // an hour in nanoseconds, < 2^42
  static constexpr std::size_t kCount = count(42);

  static std::size_t index(std::uint64_t value) {
    return LogLinearBuckets::index(std::min(value, kMost));
  }
};

// Thread safety: as for a standard container.
class HdrHistogram {
 public:
  HdrHistogram() : counts_(HdrBuckets::kCount) {}
  void record(std::uint64_t value, std::uint64_t times = 1);
  void add_at(std::size_t index, std::uint64_t times);
  void add(const HdrHistogram& other);
  // Subtracts `earlier`, an older copy of this histogram: leaves what was counted since.
  void subtract(const HdrHistogram& earlier);

  std::uint64_t count() const { return total_; }
  // 0 when empty. min() is the lowest value of its bucket; max() and percentile() are the highest;
  // mean() uses the middle of each bucket, as the original does.
  std::uint64_t min() const;
  std::uint64_t max() const;
  double mean() const;
  // The lowest value that at least `percent` percent (0 to 100) of the values do not exceed.
  std::uint64_t percentile(double percent) const;
  std::uint64_t count_at(std::size_t index) const { return counts_[index]; }

  // A histogram for a line of an .hlog file: the V2 encoding, compressed (zlib format, stored
  // blocks), in base64.
  std::string encode() const;

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
};

// A histogram that one thread writes, without a lock or an atomic read-modify-write, and any thread
// may read.
//
// Invariants:
//  HDR-1  Only the owner stores to a counter, and each store is one more than the last. So a reader
//      sees for each counter a value that it had at some moment.
class LatencyRecorder {
 public:
  LatencyRecorder() : counts_(new std::atomic<std::uint64_t>[HdrBuckets::kCount] {}) {}
  void record(std::uint64_t value) {
    std::atomic<std::uint64_t>& count = counts_[HdrBuckets::index(value)];
    // Relaxed: a counter does not publish other memory.
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void add_to(HdrHistogram& total) const;

 private:
  std::unique_ptr<std::atomic<std::uint64_t>[]> counts_;
};

}  // namespace rkv::kvbench
