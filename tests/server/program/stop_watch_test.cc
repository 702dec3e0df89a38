#include "server/program/stop_watch.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
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

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// No address space has room for a thread's stack.
[[noreturn]] void stop_without_threads() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{1} << 47);
  pthread_setattr_default_np(&attributes);
  {
    const StopWatch watch(1, [] { std::_Exit(1); });
  }
  std::_Exit(0);
}

TEST(StopWatch, LetsAStopGoOnWithoutAThread) {
  EXPECT_EXIT(stop_without_threads(), ::testing::ExitedWithCode(0), "no thread can watch");
}
#endif

}  // namespace
}  // namespace rkv::server
