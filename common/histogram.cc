#include "common/histogram.h"

#include <algorithm>

namespace rkv {

namespace {
using Buckets = LogLinearBuckets<7>;
constexpr std::size_t kBuckets = Buckets::count(64);
}  // namespace

Histogram::Histogram() : buckets_(kBuckets) {}

void Histogram::record(std::uint64_t value) {
  ++buckets_[Buckets::index(value)];
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
  const std::uint64_t wanted = percentile_rank(percent, count_);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= wanted) return std::min(Buckets::highest(i), max_);
  }
  return max_;
}

}  // namespace rkv
