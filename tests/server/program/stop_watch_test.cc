#include "server/program/stop_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace rkv::server {
namespace {

TEST(StopWatch, SaysWhenAStopTakesTooLong) {
  std::promise<void> said;
  const StopWatch watch(1, [&] { said.set_value(); });
  said.get_future().wait();
}

TEST(StopWatch, SaysNothingOfAStopThatEndsInTime) {
  std::atomic<bool> said{false};
  {
    const StopWatch watch(3600 * kNanosPerSecond, [&] { said = true; });
  }
  EXPECT_FALSE(said);
}

}  // namespace
}  // namespace rkv::server
