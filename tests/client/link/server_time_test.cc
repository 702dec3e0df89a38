// A client's bound for the server's clock is never too late (STIME-2), whatever the clocks do.
#include "client/link/server_time.h"

#include <gtest/gtest.h>

#include "common/random.h"

namespace rkv::client {
namespace {

// Two clocks that begin anywhere and differ in rate, and messages that take any time.
class TwoClocks {
 public:
  TwoClocks(Random& random, Nanos drift_parts)
      : random_(random),
        ours_(below(kNanosPerSecond * 1'000'000)),
        servers_(below(kNanosPerSecond * 1'000'000)),
        drift_parts_(drift_parts) {}

  void pass(Nanos ours) {
    const Nanos drift = ours / drift_parts_;
    ours_ += ours;
    servers_ += ours - drift + (drift > 0 ? below(2 * drift) : 0);
  }
  Nanos ours() const { return ours_; }
  Nanos servers() const { return servers_; }
  std::uint64_t servers_us() const { return static_cast<std::uint64_t>(servers_ / kNanosPerUs); }
  Nanos below(Nanos limit) {
    return static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(limit)));
  }

 private:
  Random& random_;
  Nanos ours_;
  Nanos servers_;
  Nanos drift_parts_;
};

// Runs connections of many requests; how many of them were to begin by a time that came after our
// own deadline.
int too_late(std::uint64_t seed, Nanos drift_parts) {
  Random random(seed);
  int bad = 0;
  for (int connection = 0; connection < 200; ++connection) {
    TwoClocks clocks(random, drift_parts);
    ServerTime time;
    const std::uint64_t accepted = clocks.servers_us();
    clocks.pass(clocks.below(kNanosPerSecond));
    time.begin(accepted, clocks.ours());
    for (int i = 0; i < 50; ++i) {
      if (random.below(2) == 0) {
        const std::uint64_t sent = clocks.servers_us();
        clocks.pass(clocks.below(random.below(10) == 0 ? kNanosPerSecond : kNanosPerMs));
        time.note(sent);
      }
      clocks.pass(clocks.below(random.below(10) == 0 ? 1000 * kNanosPerSecond : kNanosPerSecond));
      const Nanos wait = clocks.below(10 * kNanosPerSecond);
      const std::uint64_t by_us = time.begin_by_us(clocks.ours() + wait, clocks.ours());
      EXPECT_NE(by_us, 0U);
      clocks.pass(wait);
      bad += by_us > clocks.servers_us() ? 1 : 0;
    }
  }
  return bad;
}

TEST(ServerTime, NothingMayBeginAfterItsDeadline) {
  const std::uint64_t seed = random_from_kernel();
  EXPECT_EQ(too_late(seed, ServerTime::kDrift + 1), 0) << "seed " << seed;
}

// The canary: clocks that differ by more than is assumed.
TEST(ServerTime, ClocksThatRunApartAreSeen) {
  EXPECT_GT(too_late(1, ServerTime::kDrift / 20), 0);
}

TEST(ServerTime, AFreshAnswerLeavesNearlyAllOfTheTime) {
  ServerTime time;
  time.begin(1'000'000, 0);
  EXPECT_EQ(time.begin_by_us(kNanosPerSecond, 0), 1'000'000U + 990'000U);
  // An answer that came at once, and one that was under way for long: the better one counts.
  time.note(51'000'000);
  EXPECT_EQ(time.begin_by_us(51 * kNanosPerSecond, 50 * kNanosPerSecond), 51'990'000U);
  time.note(51'000'000);
  EXPECT_EQ(time.begin_by_us(53 * kNanosPerSecond, 52 * kNanosPerSecond), 53'970'000U);
}

TEST(ServerTime, AnyNumbersOfAPeerAndOfACallerAreTaken) {
  ServerTime time;
  time.begin(~std::uint64_t{0}, std::numeric_limits<Nanos>::max() / 4);
  time.note(~std::uint64_t{0});
  const Nanos now = std::numeric_limits<Nanos>::max() / 4;
  EXPECT_EQ(time.begin_by_us(std::numeric_limits<Nanos>::max(), now), 0U) << "too far to be said";
  EXPECT_NE(time.begin_by_us(std::numeric_limits<Nanos>::min(), now), 0U);
  EXPECT_NE(time.begin_by_us(now, now), 0U);
}

}  // namespace
}  // namespace rkv::client
