// The same from the outside: a store that is kept full of records of very different sizes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/random.h"
#include "tests/server/core/store_fixture.h"

namespace rkv::server {
namespace {

constexpr std::size_t kMemoryBytes = std::size_t{64} << 20;

// Whenever there is no room, keys go at random until there is.
class FullStore {
 public:
  void put(std::size_t value_bytes, Random& random) {
    const std::string key = fmt::format("key-{:012}", ++number_);
    value_.resize(value_bytes, 'v');
    while (!t_.put(key, value_)) {
      const std::size_t victim = random.below(stored_.size());
      ASSERT_TRUE(t_.remove(stored_[victim].key));
      bytes_ -= stored_[victim].bytes;
      std::swap(stored_[victim], stored_.back());
      stored_.pop_back();
      ++removed_;
    }
    stored_.push_back({key, record_bytes(key.size(), value_bytes)});
    bytes_ += stored_.back().bytes;
  }
  // The part of the data extents that holds headers, keys and values.
  double utilisation() const {
    return static_cast<double>(bytes_) / static_cast<double>(t_.store.stats().data_bytes);
  }
  std::uint64_t removed() const { return removed_; }

 private:
  struct Stored {
    std::string key;
    std::size_t bytes;  // of the record
  };
  StoreUnderTest t_{{.memory_bytes = kMemoryBytes, .epoch = kTestEpoch, .hash_seed = 42}};
  std::string value_;
  std::vector<Stored> stored_;
  std::uint64_t bytes_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t removed_ = 0;
};

// Values of 16 bytes to 16 KiB, each doubling as frequent.
TEST(Utilisation, OfAStoreThatIsKeptFull) {
  if (kSanitized) GTEST_SKIP() << "a figure, for the plain build";
  FullStore store;
  Random random(5);
  double lowest = 1;
  double sum = 0;
  int samples = 0;
  constexpr std::uint64_t kLives = 6;  // the memory is written so many times over
  std::uint64_t next_sample = kLives * kMemoryBytes * 2 / 3;
  for (std::uint64_t written = 0; written < kLives * kMemoryBytes;) {
    const std::uint64_t top = std::uint64_t{16} << random.below(10);
    const std::size_t bytes = top + random.below(top);
    ASSERT_NO_FATAL_FAILURE(store.put(bytes, random));
    written += bytes;
    if (written < next_sample) continue;
    next_sample = written + (std::uint64_t{1} << 20);
    lowest = std::min(lowest, store.utilisation());
    sum += store.utilisation();
    ++samples;
  }
  ASSERT_GT(samples, 100);
  ASSERT_GT(store.removed(), 0U);
  fmt::print("{:.1f} % of the data extents on average, {:.1f} % at least\n", 100 * sum / samples,
             100 * lowest);
  EXPECT_GE(lowest, 0.85);
}

// Keys of 8 to 39 bytes, so that every remainder of a unit is as frequent.
TEST(Utilisation, WhatARecordOf100BytesCosts) {
  StoreUnderTest t({.memory_bytes = kMemoryBytes, .epoch = kTestEpoch, .hash_seed = 42});
  const std::string value(100, 'v');
  std::uint64_t bytes = 0;
  constexpr std::uint64_t kRecords = 100'000;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    std::string key = fmt::format("{:08}", i);
    key.resize(8 + i % 32, 'k');
    ASSERT_TRUE(t.put(key, value));
    bytes += key.size() + value.size();
  }
  const double beyond =
      static_cast<double>(t.store.stats().data_bytes_used - bytes) / static_cast<double>(kRecords);
  fmt::print("{:.1f} bytes of the data extents beyond key and value\n", beyond);
  EXPECT_LE(beyond, 40.0);
}

}  // namespace
}  // namespace rkv::server
