// An index filled to the brim and beyond: no PUT fails, and the reference reader finds every key.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

MemoryOptions index_to_fill() {
  MemoryOptions options = small_memory();
  fix_index(options, kSanitized ? 16 : 128);
  return options;
}

struct Found {
  std::uint64_t one_sided = 0;
  std::uint64_t asked = 0;
  double reads_per_hit = 0;
};

class Fill : public ::testing::Test {
 protected:
  // Values of no bytes: the records are 32 bytes, so the index is full long before the data.
  void put_up_to(std::uint64_t keys) {
    for (; keys_ < keys; ++keys_) {
      const auto put = t_.put(fmt::format("{:x}", keys_), "");
      ASSERT_TRUE(put) << keys_;
    }
    ASSERT_EQ(t_.store.stats().records, keys);
  }
  Found find_all() {
    Found found;
    int reads = 0;
    for (std::uint64_t i = 0; i < keys_; ++i) {
      t_.port.reads = 0;
      const testing::Answer answer = t_.read(fmt::format("{:x}", i));
      EXPECT_NE(answer.kind, testing::Answer::Kind::kMiss) << i;
      if (answer.kind == testing::Answer::Kind::kAskServer) {
        found.asked += 1;
        EXPECT_TRUE(t_.get(fmt::format("{:x}", i))) << i;
      } else {
        found.one_sided += 1;
        reads += t_.port.reads;
      }
    }
    found.reads_per_hit = static_cast<double>(reads) / static_cast<double>(found.one_sided);
    return found;
  }

  StoreUnderTest t_{index_to_fill()};
  std::uint64_t keys_ = 0;
};

TEST_F(Fill, EveryKeyIsFoundAtEveryLoad) {
  const std::uint64_t slots = t_.memory->slot_count();
  for (const std::uint64_t percent : {50, 80, 90, 100, 105}) {
    ASSERT_NO_FATAL_FAILURE(put_up_to(slots * percent / 100));
    const Found found = find_all();
    fmt::print("load {:3} %: {} keys, {:.3f} READs a hit without a cache, {:.2f} % stashed\n",
               percent, keys_, found.reads_per_hit,
               100.0 * static_cast<double>(found.asked) / static_cast<double>(keys_));
    EXPECT_EQ(found.asked, t_.store.stats().stashed_records);
    if (percent <= 90) {
      EXPECT_LE(found.asked * 50, keys_) << "at most 2 % are stashed at 90 % load";
    }
    if (percent <= 80) {
      EXPECT_LE(found.reads_per_hit, 2.05);
    }
  }
  // Emptied in the order of arrival; the remaining records are found.
  for (std::uint64_t i = 0; i < keys_; ++i) {
    ASSERT_TRUE(t_.remove(fmt::format("{:x}", i))) << i;
    const std::uint64_t left = keys_ - 1;
    if (i % 97 == 0 && i < left) {
      EXPECT_TRUE(t_.read_or_ask(fmt::format("{:x}", left)));
    }
  }
  EXPECT_EQ(t_.store.stats().records, 0U);
  EXPECT_EQ(t_.store.stats().stashed_records, 0U);
  EXPECT_EQ(t_.store.stats().data_bytes_used, 0U);
  EXPECT_EQ(t_.read("1").kind, testing::Answer::Kind::kMiss);
}

TEST(OutOfMemory, LeavesEverythingIntactAndRecoversAfterDeletes) {
  StoreUnderTest t(small_memory());
  const std::string value(1000, 'v');
  std::uint64_t keys = 0;
  Result<PutResult> put = t.put(fmt::format("k{}", keys), value);
  while (put)
    put = t.put(fmt::format("k{}", ++keys), value);
  EXPECT_EQ(put.error().code, Code::kOutOfMemory);
  const StoreStats full = t.store.stats();
  EXPECT_EQ(full.records, keys);
  fmt::print(
      "full: {} records of 1000-byte values, {:.1f} % of the data extents in blocks\n", keys,
      100.0 * static_cast<double>(full.data_bytes_used) / static_cast<double>(full.data_bytes));
  EXPECT_GE(full.data_bytes_used * 100, full.data_bytes * 95);

  EXPECT_FALSE(t.put("k0", std::string(5000, 'w'))) << "a move needs a second block";
  EXPECT_TRUE(t.put("k0", value)) << "in place needs nothing";
  for (std::uint64_t i = 0; i < keys; ++i)
    ASSERT_EQ(t.read_or_ask(fmt::format("k{}", i)), value) << i;
  EXPECT_EQ(t.read_or_ask(fmt::format("k{}", keys)), std::nullopt);

  for (std::uint64_t i = 0; i < keys; i += 2)
    ASSERT_TRUE(t.remove(fmt::format("k{}", i)));
  for (std::uint64_t i = 0; i < keys; i += 2)
    ASSERT_TRUE(t.put(fmt::format("k{}", i), value)) << i;
  EXPECT_EQ(t.store.stats().records, keys);
}

}  // namespace
}  // namespace rkv::server
