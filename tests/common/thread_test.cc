#include "common/thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <csignal>
#include <thread>

namespace rkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The processors that this process may use, by the kernel's own account.
std::vector<unsigned> usable() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<unsigned> all;
  for (unsigned i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) all.push_back(i);
  }
  return all;
}

TEST(Thread, AreTakenInTheOrderGiven) {
  const auto all = usable();
  const unsigned first = all.front();
  const unsigned last = all.back();
  EXPECT_THAT(*parse_processors(std::to_string(first)), ElementsAre(first));
  EXPECT_THAT(*parse_processors(std::to_string(last) + "-" + std::to_string(last)),
              ElementsAre(last));
  if (first == last) return;
  EXPECT_THAT(*parse_processors(std::to_string(last) + "," + std::to_string(first)),
              ElementsAre(last, first));
  if (last - first + 1 != all.size()) return;  // with gaps
  EXPECT_EQ(*parse_processors(std::to_string(first) + "-" + std::to_string(last)), all);
}

TEST(Thread, WhatIsNoListIsToldSo) {
  for (const char* list : {"", ",", "0,", "a", "1-", "-1", "3-2", "0 ", "0x1", "1024", "0-1-2"}) {
    const auto parsed = parse_processors(list);
    ASSERT_FALSE(parsed) << list;
    EXPECT_EQ(parsed.error(), "must be processor numbers, such as 2-5,8") << list;
  }
  const std::string one = std::to_string(usable().front());
  EXPECT_THAT(parse_processors(one + "," + one).error(), HasSubstr("each processor once"));
  const std::string none = std::to_string(usable().back() + 1);
  EXPECT_THAT(parse_processors(none).error(),
              HasSubstr("must be among the processors that this process may use, "));
}

TEST(Thread, AThreadStaysOnItsOwn) {
  for (const unsigned processor : usable()) {
    std::thread([&] {
      ASSERT_TRUE(stay_on(processor));
      EXPECT_THAT(usable(), ElementsAre(processor));
    }).join();
  }
  EXPECT_FALSE(stay_on(CPU_SETSIZE - 1)) << "a machine with so many";
}

TEST(Thread, SoManyAreToBeHadAtATime) {
  EXPECT_TRUE(try_threads(0));
  EXPECT_TRUE(try_threads(20));
  EXPECT_TRUE(check_stack_limit(4096));
  EXPECT_FALSE(check_stack_limit(SIZE_MAX - 1));  // RLIM_INFINITY is more
}

TEST(Thread, OneOfALibraryTakesNoneOfTheProgramsSignals) {
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  sigset_t inside;
  auto thread = start_without_signals([&] { pthread_sigmask(SIG_SETMASK, nullptr, &inside); });
  ASSERT_TRUE(thread);
  thread->join();
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) {
    EXPECT_EQ(sigismember(&inside, number), 1) << number;
    EXPECT_EQ(sigismember(&after, number), sigismember(&before, number)) << number;
  }
}

}  // namespace
}  // namespace rkv
