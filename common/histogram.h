// Latency histogram with HdrHistogram's log-linear buckets: relative error below 1/128 at any
// magnitude, 64-bit range, no allocation after construction.
//
// Thread safety: none; one per thread, then merge().
#pragma once

#include <cstdint>
#include <vector>

namespace rkv {

class Histogram {
 public:
  Histogram();
  void record(std::uint64_t value);
  void merge(const Histogram& other);
  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  // Highest value equivalent to the one at this percentile (0 to 100), as HdrHistogram gives it;
  // 0 when empty.
  std::uint64_t percentile(double percent) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace rkv
