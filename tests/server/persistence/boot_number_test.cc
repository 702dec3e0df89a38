#include "server/persistence/boot_number.h"

#include <gtest/gtest.h>

#include "common/layout.h"
#include "rkv/clock.h"

namespace rkv::server {
namespace {

constexpr std::int64_t k2020 = 1'577'836'800 * kNanosPerSecond;
constexpr std::int64_t k2026 = 1'795'000'000 * kNanosPerSecond;

Version first(std::int64_t unix_ns, std::uint64_t random = 0) {
  const FirstVersion begin = first_version_at(unix_ns, random);
  return Version::of(begin.boot, begin.sequence);
}

TEST(BootNumber, IsTheSecondOfTheStart) {
  EXPECT_EQ(least_boot_at(k2020 + 7 * kNanosPerSecond), 7U);
  EXPECT_EQ(least_boot_at(k2026 + kNanosPerSecond), least_boot_at(k2026) + 1);
}

TEST(BootNumber, AClockThatCannotBeIsNotBelieved) {
  for (const std::int64_t wrong : {std::int64_t{0}, k2020 - 1, k2020 + kNanosPerSecond * 0x80000001,
                                   std::int64_t{-5} * kNanosPerSecond})
    EXPECT_EQ(least_boot_at(wrong), 1U) << wrong;
}

// Within the second as well: whatever a server can have given out since, the next begins above it.
TEST(FirstVersion, RisesWithTheClock) {
  EXPECT_EQ(first(k2026 + kNanosPerSecond).bits - first(k2026).bits, std::uint64_t{1} << 32);
  constexpr std::int64_t kMillisecond = 1'000'000;
  constexpr std::uint64_t kMostWrites = 500'000;  // in a millisecond, of the shortest, 8 words each
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t begin = k2026 + i * kMillisecond;
    const std::uint64_t highest = first(begin).bits + kMostWrites * 8;
    ASSERT_GT(first(begin + kMillisecond).bits, highest) << i;
  }
}

TEST(FirstVersion, WithoutABelievedClockItIsDrawnAboveAllTimes) {
  const Version drawn = first(0, 0x123456789ABCDEF0);
  EXPECT_GT(drawn, first(k2020 + kNanosPerSecond * 0x80000000));
  EXPECT_NE(drawn, first(0, 0x223456789ABCDEF0));
  EXPECT_NE(drawn, first(0, 0x123456789ABCDEF8));
  EXPECT_LT(first(0, ~std::uint64_t{0}).boot(), 0xD0000000U) << "it counts up from there";
}

}  // namespace
}  // namespace rkv::server
