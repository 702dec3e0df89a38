// HdrHistogram: log-linear buckets that keep three significant decimal digits at any magnitude,
// with the bucket boundaries, percentiles and V2 encoding of the original
// (https://hdrhistogram.org, public domain), so that its tools read what is written here.
//
//   LatencyRecorder recorder;          // one writer
//   recorder.record(nanoseconds);
//   HdrHistogram total;
//   recorder.add_to(total);            // from any thread, while it is written
//   total.percentile(99);
//
// Values are 0 to kMost; higher ones count as kMost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/histogram.h"

namespace rkv::kvbench {

// Where a value is counted. 2,048 values have a bucket each; above, each power of two is cut into
// 1,024 buckets: 1/1024 is below half a unit of the third digit.
struct HdrBuckets : LogLinearBuckets<10> {
  static constexpr std::uint64_t kMost = 3'600'000'000'000;  // an hour in nanoseconds, < 2^42
  static constexpr std::size_t kCount = count(42);

  static std::size_t index(std::uint64_t value) {
    return LogLinearBuckets::index(std::min(value, kMost));
  }
};

// Thread safety: as a container.
class HdrHistogram {
 public:
  HdrHistogram() : counts_(HdrBuckets::kCount) {}
  void record(std::uint64_t value, std::uint64_t times = 1);
  void add_at(std::size_t index, std::uint64_t times);
  void add(const HdrHistogram& other);
  // What was counted since `earlier`, a copy of this one.
  void subtract(const HdrHistogram& earlier);

  std::uint64_t count() const { return total_; }
  // 0 when empty. Of a bucket's values min() is the lowest, max() and percentile() the highest, and
  // mean() takes the one in the middle, as the original does.
  std::uint64_t min() const;
  std::uint64_t max() const;
  double mean() const;
  // The value below or at which `percent` of the values lie, 0 to 100.
  std::uint64_t percentile(double percent) const;
  std::uint64_t count_at(std::size_t index) const { return counts_[index]; }

  // The V2 encoding, compressed (by zlib's format, in stored blocks), in base64: a histogram in a
  // line of an .hlog file.
  std::string encode() const;

 private:
  std::vector<std::uint64_t> counts_;
  std::uint64_t total_ = 0;
};

// Counted into by one thread, without a lock or an atomic read-modify-write; read by any.
//
// Invariant L1: only the owner stores to a counter, and each store is one more than the last: so a
// reader sees, of each counter, what it was at some moment.
class LatencyRecorder {
 public:
  LatencyRecorder() : counts_(new std::atomic<std::uint64_t>[HdrBuckets::kCount] {}) {}
  void record(std::uint64_t value) {
    std::atomic<std::uint64_t>& count = counts_[HdrBuckets::index(value)];
    // Relaxed: a counter says nothing about other memory.
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void add_to(HdrHistogram& total) const;

 private:
  std::unique_ptr<std::atomic<std::uint64_t>[]> counts_;
};

}  // namespace rkv::kvbench
