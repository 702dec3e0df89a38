#include "bench/kvbench/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "bench/kvbench/keys.h"
#include "common/named_file.h"
#include "rkv/limits.h"

namespace rkv::kvbench {

// Adds the first terms; the rest is their integral by the Euler-Maclaurin formula. The error is
// below theta (theta+1) (theta+2) / 720 / 10^4^(theta+3), which is less than a double's precision.
double zeta(std::uint64_t first, std::uint64_t last, double theta) {
  constexpr std::uint64_t kAdded = 10'000;
  double sum = 0;
  std::uint64_t i = first;
  for (; i <= last && i - first < kAdded; ++i)
    sum += std::pow(static_cast<double>(i), -theta);
  if (i > last) return sum;
  const auto begin = static_cast<double>(i);
  const auto end = static_cast<double>(last);
  const double integral = (std::pow(end, 1 - theta) - std::pow(begin, 1 - theta)) / (1 - theta);
  const double ends = (std::pow(begin, -theta) + std::pow(end, -theta)) / 2;
  const double slopes = theta * (std::pow(begin, -theta - 1) - std::pow(end, -theta - 1)) / 12;
  return sum + integral + ends + slopes;
}

// ---------------------------------------------------------------------------------- zipfian

Zipfian::Zipfian(std::uint64_t least, std::uint64_t most)
    : Zipfian(least, most, zeta(1, most - least + 1, kZipfianConstant)) {}

Zipfian::Zipfian(std::uint64_t least, std::uint64_t most, double zeta_of_items)
    : least_(least),
      items_(most - least + 1),
      first_items_(items_),
      zeta_(zeta_of_items),
      eta_(eta()) {}

double Zipfian::eta() const {
  const double zeta_of_two = 1 + std::pow(0.5, kZipfianConstant);
  return (1 - std::pow(2.0 / static_cast<double>(first_items_), 1 - kZipfianConstant)) /
         (1 - zeta_of_two / zeta_);
}

std::uint64_t Zipfian::at(double u) const {
  const double weight = u * zeta_;
  if (weight < 1 || items_ < 2) return least_;
  if (weight < 1 + std::pow(0.5, kZipfianConstant) || items_ == 2) return least_ + 1;
  const double part = std::pow(eta_ * u - eta_ + 1, 1 / (1 - kZipfianConstant));
  const auto rank = static_cast<std::uint64_t>(static_cast<double>(items_) * part);
  return least_ + std::min(rank, items_ - 1);
}

void Zipfian::grow(std::uint64_t items) {
  if (items <= items_) return;
  zeta_ += zeta(items_ + 1, items, kZipfianConstant);
  items_ = items;
  eta_ = eta();
}

// YCSB uses ITEM_COUNT as the highest rank, so there is one item more.
ScrambledZipfian::ScrambledZipfian(std::uint64_t least, std::uint64_t most)
    : least_(least), count_(most - least + 1), ranks_(0, kItems, kZetaOfItems) {}

std::uint64_t ScrambledZipfian::scatter(std::uint64_t rank) const {
  return least_ + static_cast<std::uint64_t>(ycsb_hash(static_cast<std::int64_t>(rank))) % count_;
}

// YCSB's zipfian has as many items as the newest record's number, and 0 is the newest record. So
// record 0 is never chosen, unless it is the only record.
Latest::Latest(std::uint64_t records) : distances_(0, std::max<std::uint64_t>(records, 2) - 2) {}

std::uint64_t Latest::next(Random& random, std::uint64_t end) {
  const std::uint64_t newest = end - 1;
  distances_.grow(newest);
  return newest - std::min(distances_.next(random), newest);
}

// ------------------------------------------------------------------------------------ others

Hotspot::Hotspot(std::uint64_t least, std::uint64_t most, double hot_data, double hot_operations)
    : least_(least),
      hot_count_(static_cast<std::uint64_t>(static_cast<double>(most - least + 1) * hot_data)),
      cold_count_(most - least + 1 - hot_count_),
      hot_operations_(hot_operations) {}

// A set without records gets no draws (YCSB divides by zero there).
std::uint64_t Hotspot::next(Random& random) const {
  const bool hot = next_double(random) < hot_operations_;
  if (cold_count_ == 0 || (hot && hot_count_ != 0)) return least_ + random.below(hot_count_);
  return least_ + hot_count_ + random.below(cold_count_);
}

Exponential::Exponential(double percentile, double range)
    : gamma_(-std::log1p(-percentile / 100) / range) {}

// The inverse of the distribution function below `end`, (1 - e^(-gamma x)) / (1 - e^(-gamma end)).
std::uint64_t Exponential::at(double u, std::uint64_t end) const {
  const double below_end = -std::expm1(-gamma_ * static_cast<double>(end));
  const double distance = -std::log1p(-u * below_end) / gamma_;
  return end - 1 - std::min(static_cast<std::uint64_t>(distance), end - 1);
}

void AcknowledgedCounter::acknowledge(std::uint64_t number) {
  const MutexLock lock(mutex_);
  ahead_.push_back(number);
  std::ranges::push_heap(ahead_, std::greater<>{});
  std::uint64_t end = end_.load(std::memory_order_relaxed);
  while (!ahead_.empty() && ahead_.front() == end) {
    std::ranges::pop_heap(ahead_, std::greater<>{});
    ahead_.pop_back();
    ++end;
  }
  end_.store(end, std::memory_order_release);
}

OrSentence<LengthHistogram> LengthHistogram::read_file(const std::string& path) {
  constexpr std::uint64_t kMostBuckets = 1'000'000;
  constexpr std::size_t kLargest = std::size_t{64} << 20;  // more than so many buckets need
  auto text = read_named_file(path, kLargest);
  if (!text && text.error().is_too_long)
    return std::unexpected(fmt::format("{}: larger than 64 MiB: this is not a histogram", path));
  if (!text) return std::unexpected(fmt::format("{}: {}", path, text.error().why));
  std::istringstream in(std::move(*text));
  LengthHistogram histogram;
  std::size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    const auto wrong = [&](const char* what) {
      return std::unexpected(fmt::format("{}:{}:1: {}", path, line_number, what));
    };
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) return wrong("two columns separated by a tab are needed");
    std::uint64_t second = 0;
    const char* end = line.data() + line.size();
    if (const auto [at, error] = std::from_chars(line.data() + tab + 1, end, second);
        error != std::errc{} || (at != end && *at != '\t' && *at != '\r')) {
      return wrong("the second column is not a number");
    }
    const std::string first = line.substr(0, tab);
    if (line_number == 1) {
      if (first != "BlockSize" || second == 0 || second > kMaxValueBytes)
        return wrong("the first line must be BlockSize and a number of bytes from 1 to 16777216");
      histogram.block_bytes_ = second;
      continue;
    }
    if (first != std::to_string(histogram.counts_.size()) ||
        histogram.counts_.size() == kMostBuckets)
      return wrong("buckets must be numbered from 0 without gaps");
    if (second > std::numeric_limits<std::uint64_t>::max() - histogram.total_)
      return wrong("the counts add up to more than 64 bits");
    histogram.counts_.push_back(second);
    histogram.total_ += second;
  }
  if (histogram.total_ == 0) return std::unexpected(fmt::format("{}: all counts are zero", path));
  return histogram;
}

// As YCSB: bucket i stands for lengths up to (i + 1) blocks; the last bucket stands for as many
// blocks as its number.
std::uint64_t LengthHistogram::next(Random& random) const {
  std::uint64_t left = random.below(total_);
  for (std::size_t i = 0; i + 1 < counts_.size(); ++i) {
    if (left <= counts_[i]) return (i + 1) * block_bytes_;
    left -= counts_[i];
  }
  return (counts_.size() - 1) * block_bytes_;
}

}  // namespace rkv::kvbench
