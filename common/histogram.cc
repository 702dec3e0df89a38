#include "common/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rkv {

namespace {

// Values below 2^8 have a bucket each; above, each power of two is cut into 2^7 buckets.
constexpr int kSubBits = 7;
constexpr std::uint64_t kLinear = std::uint64_t{1} << (kSubBits + 1);
constexpr std::size_t kBuckets = kLinear + (64 - (kSubBits + 1)) * (std::size_t{1} << kSubBits);

std::size_t bucket_of(std::uint64_t value) {
  if (value < kLinear) return value;
  const int shift = static_cast<int>(std::bit_width(value)) - (kSubBits + 1);
  const std::uint64_t sub = (value >> shift) - (std::uint64_t{1} << kSubBits);
  return kLinear + static_cast<std::size_t>(shift - 1) * (std::size_t{1} << kSubBits) + sub;
}

std::uint64_t highest_in(std::size_t bucket) {
  if (bucket < kLinear) return bucket;
  const std::size_t above = bucket - kLinear;
  const int shift = static_cast<int>(above >> kSubBits) + 1;
  const std::uint64_t sub = (above & ((1U << kSubBits) - 1)) + (1U << kSubBits);
  return ((sub + 1) << shift) - 1;
}

}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::record(std::uint64_t value) {
  ++buckets_[bucket_of(value)];
  ++count_;
  max_ = std::max(max_, value);
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

std::uint64_t Histogram::percentile(double percent) const {
  if (count_ == 0) return 0;
  const double rank = std::ceil(percent / 100.0 * static_cast<double>(count_));
  const auto wanted = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(rank), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= wanted) return std::min(highest_in(i), max_);
  }
  return max_;
}

}  // namespace rkv
