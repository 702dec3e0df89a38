// A kvserver on a machine in trouble: system calls that interposed_calls.cc changes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/system/shifted_clock.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(Trouble, AKeyLivesLongerWhenTheWallClockIsSetBack) {
  ShiftedClock clock;
  Server server({"--memory", "32MiB"}, clock.environment());
  Client client = server.client();
  ASSERT_TRUE(client.put_with("brief", "x", {.ttl = seconds(4)}));
  clock.set_ahead(-kDay);
  // Clocks are read in whole milliseconds: it may also be -86399.999.
  ASSERT_TRUE(server.process().wait_for_output("the wall clock was adjusted by -86"))
      << server.process().output();
  std::this_thread::sleep_for(seconds(5));  // it must not expire by then
  EXPECT_TRUE(client.get("brief"));
}

// A start with a clock that is a day ahead hides what seems to have expired. It removes nothing: a
// later start with the right clock shows it.
TEST(Trouble, AStartWithAWrongClockRemovesNothing) {
  ScratchDirectory scratch;
  ShiftedClock clock;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")}, clock.environment());
  {
    Client client = server.client();
    ASSERT_TRUE(client.put_with("hour", "x", {.ttl = std::chrono::hours(1)}));
    ASSERT_TRUE(client.put("stays", "y"));
  }
  EXPECT_EQ(server.stop(), 0);
  clock.set_ahead(kDay);
  server.start();
  {
    Client client = server.client();
    EXPECT_EQ(client.get("hour").error().code, Code::kNotFound);
    EXPECT_TRUE(client.get("stays"));
  }
  EXPECT_EQ(server.stop(), 0);
  clock.set_ahead(0);
  server.start();
  Client client = server.client();
  EXPECT_TRUE(client.get("hour"));
}

TEST(Trouble, EveryThreadThatCannotBeStartedIsAFailedStart) {
  ScratchDirectory scratch;
  constexpr int kMost = 100;  // threads of a start
  int refused = 0;
  for (;; ++refused) {
    ASSERT_LT(refused, kMost);
    Process server({RKV_KVSERVER, "--no-auth", "--listen", test_address() + ":19999", "--memory",
                    "32MiB", "--metrics", "127.0.0.1:0", "--data-dir", scratch.path("data"),
                    "--backup-dir", scratch.path("backups")},
                   {preload(), fmt::format("RKV_TEST_REFUSED_THREAD={}", refused)});
    if (server.wait_for_output("kvserver ready")) break;
    const Ended ended = server.wait();
    EXPECT_EQ(ended.status, 3) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("thread")) << refused;
    EXPECT_THAT(ended.output, HasSubstr("raise the limit of processes (ulimit -u)")) << refused;
  }
  EXPECT_GT(refused, 30);
}

// A backup that copies, onto a disk that takes a second for each write: minutes, if it were
// awaited.
TEST(Trouble, AStopDoesNotWaitForABackupThatCopies) {
  ScratchDirectory scratch;
  Server server(
      {"--memory", "64MiB", "--data-dir", scratch.path("data"), "--backup-dir",
       scratch.path("backups")},
      {preload(), "RKV_TEST_SLOW_FILES=" + scratch.path("backups"), "RKV_TEST_NO_HARD_LINKS=1"});
  {
    Client client = server.client();
    const std::string value(100'000, 'v');
    for (int i = 0; i < 400; ++i)
      ASSERT_TRUE(client.put(fmt::format("key{}", i), value));
    ASSERT_TRUE(client.flush());
  }
  Process backup({RKV_KVCLIENT, "--server", server.address(), "--timeout", "10m", "backup", "one"});
  const auto is_copying = [&] {
    std::error_code none;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(scratch.path("backups"), none)) {
      if (entry.is_regular_file(none) && entry.file_size(none) > 0) return true;
    }
    return false;
  };
  while (!is_copying()) {
    ASSERT_TRUE(backup.running()) << backup.output();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(server.stop(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - began, seconds(12));
  const Ended ended = backup.wait();
  EXPECT_NE(ended.status, 0) << ended.output;
}

}  // namespace
}  // namespace rkv::testing_support
