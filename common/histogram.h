// Latency histogram with HdrHistogram's log-linear buckets: relative error below 1/128 at any
// magnitude, 64-bit range, no allocation after construction.
//
// Thread safety: none; one per thread, then merge().
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rkv {

// HdrHistogram's buckets: values below 2^(kBits+1) have one bucket each; above, each power of two
// is divided into 2^kBits buckets.
template <unsigned kBits>
struct LogLinearBuckets {
  static constexpr std::uint64_t kLinear = std::uint64_t{1} << (kBits + 1);
  // Number of buckets for all values of up to `value_bits` bits.
  static constexpr std::size_t count(unsigned value_bits) {
    return (value_bits - kBits + 1) * (std::size_t{1} << kBits);
  }
  static std::size_t index(std::uint64_t value) {
    const auto shift = static_cast<unsigned>(std::bit_width(value | (kLinear - 1))) - (kBits + 1);
    return (std::size_t{shift} << kBits) + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t lowest(std::size_t index) {
    if (index < kLinear) return index;
    const std::size_t shift = (index >> kBits) - 1;
    return (index - (shift << kBits)) << shift;
  }
  // For the last bucket lowest(index + 1) may wrap to 0; the bucket then ends at 2^64 - 1.
  static std::uint64_t highest(std::size_t index) { return lowest(index + 1) - 1; }
};

// Returns the rank, counted from 1, of the value at this percentile among `count` ordered values.
inline std::uint64_t percentile_rank(double percent, std::uint64_t count) {
  // Round the percentage down by one ulp, so that 7 % of 100 values is the 7th value despite
  // rounding in the product.
  const double part = std::nextafter(percent, 0.0) / 100;
  const double rank = std::ceil(part * static_cast<double>(count));
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(rank), 1, count);
}

class Histogram {
 public:
  Histogram();
  void record(std::uint64_t value);
  void merge(const Histogram& other);
  std::uint64_t count() const { return count_; }
  std::uint64_t max() const { return max_; }
  // Returns the highest value equivalent to the value at this percentile (0 to 100), as
  // HdrHistogram does; 0 when empty.
  std::uint64_t percentile(double percent) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace rkv
