// Lives of a store under all of its threads, until the time is over; and a proof for each check
// that it notices its fault.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "common/clock.h"
#include "common/random.h"
#include "tests/storm/life.h"

namespace rkv::storm {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kOperations = 2'000;
constexpr std::uint64_t kOnDiskOperations = 12'000;  // each key is written some three times
#else
constexpr std::uint64_t kOperations = 15'000;  // per writer and life
constexpr std::uint64_t kOnDiskOperations = kOperations;
#endif

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 0);
}

TEST(Storm, EveryThreadAtOnce) {
  const std::uint64_t seconds = number_from("RKV_STORM_SECONDS", 3);
  const std::uint64_t seed = number_from("RKV_STORM_SEED", random_from_kernel());
  const std::string again = fmt::format("./run storm --seconds {} --seed {}", seconds, seed);
  fmt::print("repeat with: {}\n", again);
  std::fflush(stdout);
  const SteadyClock clock;
  const Nanos end = clock.now() + static_cast<Nanos>(seconds) * 1000 * kNanosPerMs;
  std::uint64_t lives = 0;
  std::uint64_t writes = 0;
  std::uint64_t gets = 0;
  std::uint64_t one_sided = 0;
  std::uint64_t evicted = 0;
  std::uint64_t splits = 0;
  // One life of each kind, even on a slow machine.
  for (; lives < 3 || clock.now() < end; ++lives) {
    const auto kind = static_cast<Kind>(lives % 3);
    const auto life = std::make_unique<Life>(kind, mix64(seed + lives), Canary::kNone);
    life->run(kind == Kind::kOnDisk ? kOnDiskOperations : kOperations);
    ASSERT_EQ(life->violation(), "") << "life " << lives << "; repeat with: " << again;
    writes += life->writes;
    gets += life->gets;
    one_sided += life->one_sided;
    evicted += life->store().stats().evicted;
    splits += life->store().stats().index_splits;
  }
  fmt::print("{} lives, {} writes, {} GETs ({} one-sided), {} evictions, {} splits\n", lives,
             writes, gets, one_sided, evicted, splits);
  EXPECT_GT(writes, lives * kOperations);
  EXPECT_GT(one_sided, 0U);
  EXPECT_GT(evicted, 0U);
  EXPECT_GT(splits, 0U);
}

struct Seen {
  Canary canary;
  Kind kind;
  const char* sentence;
  const char* at_rest = nullptr;  // what the check at the end says, if no reader saw it before
};
class StormCanary : public ::testing::TestWithParam<Seen> {};

// Several lives, because a reader must read at the right moment.
TEST_P(StormCanary, IsSeen) {
  std::string violation;
  for (std::uint64_t seed = 1; seed <= 20 && violation.empty(); ++seed) {
    const auto life = std::make_unique<Life>(GetParam().kind, seed, GetParam().canary);
    life->run(kOperations / 4);
    violation = life->violation();
  }
  const char* const at_rest = GetParam().at_rest;
  EXPECT_TRUE(violation.contains(GetParam().sentence) ||
              (at_rest != nullptr && violation.contains(at_rest)))
      << violation;
}
INSTANTIATE_TEST_SUITE_P(
    All, StormCanary,
    ::testing::Values(Seen{Canary::kWrongByte, Kind::kSmall, "no value that was ever written",
                           "is not what was written last"},
                      Seen{Canary::kOldValue, Kind::kSmall, "which was acknowledged"},
                      Seen{Canary::kMissedKey, Kind::kSmall, "was missed"},
                      Seen{Canary::kLostCount, Kind::kGrowing, "counter-"},
                      Seen{Canary::kLostBlock, Kind::kGrowing, "used_bytes"},
                      Seen{Canary::kDamage, Kind::kSmall, "a record that is not live"}));

}  // namespace
}  // namespace rkv::storm
