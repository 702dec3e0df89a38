#include "common/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace rkv {
namespace {

TEST(MutexLock, IsHeldUntilItEnds) {
  Mutex mutex;
  {
    const MutexLock lock(mutex);
    std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  }
  if (!mutex.try_lock()) FAIL() << "still held";
  mutex.unlock();
}

TEST(MutexLock, CanBeReleasedAndTakenAgain) {
  Mutex mutex;
  MutexLock lock(mutex);
  lock.unlock();
  std::thread([&] { const MutexLock other(mutex); }).join();
  lock.lock();
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()); }).join();
  lock.unlock();  // the destructor must not release it a second time
}

TEST(SharedMutex, LetsReadersInTogether) {
  SharedMutex mutex;
  const ReaderLock lock(mutex);
  std::thread([&] { const ReaderLock other(mutex); }).join();
}

TEST(SharedMutex, LetsOneWriterInAtATime) {
  constexpr int kAdditions = 10'000;
  SharedMutex mutex;
  int sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kAdditions; ++n) {
        const WriterLock lock(mutex);
        ++sum;
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(sum, 2 * kAdditions);
}

TEST(ConditionVariable, ReleasesTheMutexWhileItWaits) {
  Mutex mutex;
  ConditionVariable changed;
  bool done = false;
  std::thread other([&] {
    {
      const MutexLock lock(mutex);
      done = true;
    }
    changed.notify_all();
  });
  {
    const MutexLock lock(mutex);
    while (!done)
      changed.wait(mutex);
    std::thread([&] { EXPECT_FALSE(mutex.try_lock()) << "wait() returned without it"; }).join();
  }
  other.join();
}

TEST(ConditionVariable, ReturnsFalseWhenTheTimeHasPassed) {
  Mutex mutex;
  ConditionVariable changed;
  const MutexLock lock(mutex);
  EXPECT_FALSE(changed.wait_until(mutex, std::chrono::steady_clock::now()));
  while (changed.wait_for(mutex, std::chrono::milliseconds(1))) {
  }
  std::thread([&] { EXPECT_FALSE(mutex.try_lock()) << "a wait returned without it"; }).join();
}

}  // namespace
}  // namespace rkv
