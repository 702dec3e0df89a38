// How a forked child learns about objects of its parent, and the actions that happen in it at once.
#include "rkv/fork.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "common/at_fork.h"
#include "common/log.h"

namespace rkv {
namespace {

// Whether `holds` holds in a child.
template <class Holds>
bool in_child(Holds holds) {
  const pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

TEST(ForkGuard, KnowsAChildAndItsChildren) {
  const ForkGuard guard;
  EXPECT_FALSE(guard.is_inherited());
  EXPECT_TRUE(in_child([&] {
    const ForkGuard own;
    return guard.is_inherited() && !own.is_inherited() &&
           in_child([&] { return guard.is_inherited() && own.is_inherited(); });
  }));
  EXPECT_FALSE(guard.is_inherited());
}

TEST(ForkOwned, IsDeletedWhereItWasMadeAlone) {
  static int deleted = 0;
  struct Counted {
    ~Counted() { ++deleted; }
  };
  ForkOwned<Counted> object = std::make_unique<Counted>();
  EXPECT_TRUE(in_child([&] {
    object = std::make_unique<Counted>();  // in the same place
    const bool left = deleted == 0;
    object.reset();
    return left && deleted == 1;
  }));
  object.reset();
  EXPECT_EQ(deleted, 1);
}

TEST(AtFork, IsCalledInEachChildWhileItLives) {
  int calls = 0;
  std::optional<AtFork> first([&] { ++calls; });
  AtFork second([&] { calls += 10; });
  EXPECT_TRUE(in_child([&] { return calls == 11 && in_child([&] { return calls == 22; }); }));
  EXPECT_EQ(calls, 0) << "in the parent";
  first.reset();
  EXPECT_TRUE(in_child([&] { return calls == 10; }));
}

// Threads that come and go, and log, at the moment of the fork.
TEST(AtFork, AChildWaitsForNoLockOfItsParentsThreads) {
  set_log_sink([](LogLevel, std::string_view) {});
  std::atomic<bool> stops = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      while (!stops) {
        const AtFork some([] {});
        log_line(LogLevel::kInfo, "line");
      }
    });
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(in_child([] {
      alarm(20);
      const AtFork some([] {});
      log_line(LogLevel::kInfo, "line");
      return true;
    })) << i;
  stops = true;
  for (std::thread& thread : threads)
    thread.join();
  set_log_sink({});
}

}  // namespace
}  // namespace rkv
