#include "server/request/timings.h"

#include <algorithm>

namespace rkv::server {

namespace {

// Subtracts 1 ns, so that the bucket that ends below 2^k holds durations of at most 2^k ns. Bounds
// stated as "at most" are then exact.
std::size_t bucket_of(Nanos duration) {
  constexpr std::uint64_t kMost = (std::uint64_t{1} << kTimingBits) - 1;
  const auto ns = static_cast<std::uint64_t>(std::max<Nanos>(duration, 1)) - 1;
  return TimingBuckets::index(std::min(ns, kMost));
}

}  // namespace

Timings::Timings(const Clock& clock, std::size_t answers)
    : clock_(clock), all_(std::make_unique<std::array<Series, kOperations>>()) {
  pending_.reserve(std::max<std::size_t>(answers, 1));
}

void Timings::end(Nanos now) {
  for (const Pending& one : pending_) {
    Series& series = (*all_)[static_cast<std::size_t>(one.opcode)];
    const Nanos duration = std::max<Nanos>(now - one.taken, 0);
    rkv::server::add_to(series.buckets[bucket_of(duration)], 1);
    rkv::server::add_to(series.sum_ns, static_cast<std::uint64_t>(duration));
  }
  pending_.clear();
}

void Timings::add_to(TimingSum& sum, Opcode opcode) const {
  const Series& series = (*all_)[static_cast<std::size_t>(opcode)];
  for (std::size_t i = 0; i < kTimingBuckets; ++i) {
    const std::uint64_t count = series.buckets[i].load(std::memory_order_relaxed);
    sum.buckets[i] += count;
    sum.count += count;
  }
  sum.sum_ns += series.sum_ns.load(std::memory_order_relaxed);
}

std::uint64_t TimingSum::percentile(double percent) const {
  if (count == 0) return 0;
  const std::uint64_t wanted = percentile_rank(percent, count);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kTimingBuckets; ++i) {
    seen += buckets[i];
    if (seen >= wanted) return TimingBuckets::highest(i) + 1;
  }
  return 0;
}

std::uint64_t TimingSum::at_most_power(unsigned power) const {
  const std::size_t end =
      power >= kTimingBits ? kTimingBuckets : TimingBuckets::index(std::uint64_t{1} << power);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < end; ++i)
    sum += buckets[i];
  return sum;
}

}  // namespace rkv::server
