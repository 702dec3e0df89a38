#include "server/store/expiry_clock.h"
#include "tests/support/manual_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace rkv::server {
namespace {

TEST(ExpiryClock, OfAGroupStandsWhenItIsNotSetAgain) {
  ManualClock clock;
  ExpiryClock expiry(clock, 1000);
  expiry.set(5000, 300 * kNanosPerMs, 5020);
  clock.advance(200 * kNanosPerMs);
  EXPECT_EQ(expiry.unix_ms(), 5200U);
  EXPECT_EQ(expiry.end_of(10), 5020U + 201 + 10) << "rounded up, and by the other clock";
  clock.advance(200 * kNanosPerMs);
  EXPECT_EQ(expiry.unix_ms(), 5300U);
  EXPECT_EQ(expiry.end_of(10), 5020U + 401 + 10);
  expiry.set(5000);
  EXPECT_EQ(expiry.unix_ms(), 5400U);
}

// With both times of one set(): the sum of any two others is another one.
TEST(ExpiryClock, AReaderSeesTheTimesOfOneSet) {
  ManualClock clock;
  clock.advance(1'000'000 * kNanosPerMs);
  ExpiryClock expiry(clock, 0);
  expiry.set(9'000'000, 1'000'000 * kNanosPerMs, 0);
  std::atomic<bool> stops{false};
  std::thread sets([&] {
    for (std::uint64_t at = 0; !stops.load(); at = (at + 1000) % 1'000'000)
      expiry.set(10'000'000 - at, static_cast<Nanos>(at) * kNanosPerMs, 0);
  });
  for (int i = 0; i < 1'000'000; ++i)
    ASSERT_EQ(expiry.unix_ms(), 10'000'000U);
  stops.store(true);
  sets.join();
}

}  // namespace
}  // namespace rkv::server
