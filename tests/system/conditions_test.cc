// Conditional writes, counters and keys that expire, as programs use them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/clock.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

TEST(Conditions, EveryGetGivesTheVersionThatAWriteMayName) {
  Server server;
  Client client = server.client();
  const auto first = client.put_if_absent("k", "1");
  ASSERT_TRUE(first) << to_string(first.error());
  EXPECT_EQ(client.put_if_absent("k", "2").error().code, Code::kConflict);
  EXPECT_EQ(client.get("k")->version, *first);
  const std::string_view keys[] = {"k"};
  EXPECT_EQ(client.multi_get(keys).front()->version, *first);
  const auto second = client.put_if_version("k", "2", *first);
  ASSERT_TRUE(second);
  const auto late = client.put_if_version("k", "3", *first);
  EXPECT_EQ(late.error().code, Code::kConflict);
  EXPECT_EQ(late.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(client.get("k")->value, "2");
  EXPECT_EQ(client.remove_if_version("k", *first).error().code, Code::kConflict);
  EXPECT_TRUE(client.remove_if_version("k", *second));
  EXPECT_EQ(client.remove_if_version("k", *second).error().code, Code::kNotFound);
  EXPECT_EQ(client.put_if_version("k", "4", *second).error().code, Code::kNotFound);
}

// A server that has lost everything gives out no version that the one before it has given out. So
// what a program read before the restart does not let it write over what it has never read.
TEST(Conditions, AVersionOfBeforeARestartWithoutADataDirectoryIsNeverThatOfAnotherValue) {
  Server server({"--memory", "16MiB"});
  std::uint64_t highest = 0;
  for (int round = 0; round < 3; ++round) {
    Client client = server.client();
    const auto mine = client.put("config", "mine");
    ASSERT_TRUE(mine) << to_string(mine.error());
    EXPECT_GT(*mine, highest);
    server.kill();
    server.start();
    Client other = server.client();
    const auto theirs = other.put("config", "theirs");
    ASSERT_TRUE(theirs) << to_string(theirs.error());
    highest = *theirs;
    const auto late = other.put_if_version("config", "over it", *mine);
    ASSERT_FALSE(late) << "over a value that was never read";
    EXPECT_EQ(late.error().code, Code::kConflict);
    EXPECT_EQ(other.get("config")->value, "theirs");
  }
}

// Read, compute, write on condition: no addition is lost.
TEST(Conditions, ReadersThatWriteBackLoseNothing) {
  Server server;
  constexpr int kEach = 200;
  Client(server.client()).put("n", "0").value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Client client = server.client();
      for (int done = 0; done < kEach;) {
        const auto seen = client.get("n");
        ASSERT_TRUE(seen) << to_string(seen.error());
        const std::string next = std::to_string(std::stoi(seen->value) + 1);
        const auto written = client.put_if_version("n", next, seen->version);
        if (written) {
          ++done;
        } else {
          ASSERT_EQ(written.error().code, Code::kConflict) << to_string(written.error());
        }
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(Client(server.client()).get("n")->value, std::to_string(3 * kEach));
}

TEST(Conditions, CountersOutliveTheServer) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  EXPECT_EQ(client.incr("c", 7)->number, 7);
  EXPECT_EQ(client.decr("c")->number, 6);
  EXPECT_EQ(client.get_counter("c")->number, 6);
  const auto swapped = client.counter_cas("c", 6, 60);
  ASSERT_TRUE(swapped);
  EXPECT_TRUE(swapped->done);
  EXPECT_FALSE(client.counter_cas("c", 6, 61)->done);
  EXPECT_EQ(client.put("c", "plain").error().code, Code::kWrongType);
  EXPECT_EQ(client.incr("c", INT64_MAX).error().code, Code::kOutOfRange);
  ASSERT_TRUE(client.put("v", "plain"));
  EXPECT_EQ(client.incr("v").error().code, Code::kWrongType);
  EXPECT_EQ(client.get_counter("v").error().code, Code::kWrongType);
  EXPECT_EQ(client.get_counter("absent").error().code, Code::kNotFound);
  ASSERT_TRUE(client.flush());
  server.kill();
  server.start();
  EXPECT_EQ(client.get_counter("c")->number, 60);
  EXPECT_EQ(client.incr("c")->number, 61);
}

// A key is there until its time has come, as the server's clock goes, and gone 200 ms later: that
// much later no GET that begins returns it. Server and test go by clocks of one machine.
TEST(Conditions, KeysExpireOnTime) {
  constexpr int kKeys = 200;
  Server server;
  Client client = server.client();
  struct Lifetime {
    std::string key;
    Clock::time_point put_began{};
    Clock::time_point put_ended{};
    milliseconds ttl{};
    std::optional<Clock::time_point> last_seen = {};   // the begin of the last GET that found it
    std::optional<Clock::time_point> first_gone = {};  // the end of the first that did not
  };
  std::vector<Lifetime> all;
  for (int i = 0; i < kKeys; ++i) {
    Lifetime one{.key = fmt::format("k{}", i), .ttl = milliseconds(300 + i % 10 * 50)};
    one.put_began = Clock::now();
    ASSERT_TRUE(client.put_with(one.key, "v", {.ttl = one.ttl}));
    one.put_ended = Clock::now();
    all.push_back(one);
  }
  ASSERT_GT(client.get("k0")->expires_at_ms, 0U);
  while (std::ranges::any_of(all, [](const Lifetime& one) { return !one.first_gone; })) {
    for (Lifetime& one : all) {
      if (one.first_gone) continue;
      const auto begin = Clock::now();
      const auto got = client.get(one.key);
      if (got) {
        one.last_seen = begin;
        continue;
      }
      ASSERT_EQ(got.error().code, Code::kNotFound);
      one.first_gone = Clock::now();
    }
  }
  milliseconds latest{};
  for (const Lifetime& one : all) {
    EXPECT_GE(*one.first_gone, one.put_began + one.ttl) << one.key << " went too early";
    if (!one.last_seen) continue;
    const auto late = *one.last_seen - (one.put_ended + one.ttl);
    latest = std::max(latest, std::chrono::duration_cast<milliseconds>(late));
  }
  fmt::print("latest hit {} ms after the expiry\n", latest.count());
  EXPECT_LE(latest, milliseconds(200));
  EXPECT_EQ(server_stat(client, "expired_records"), static_cast<std::uint64_t>(kKeys));
  EXPECT_EQ(server_stat(client, "records"), 0U);
}

// A touch is a write: durable like one, and still there after a crash.
TEST(Conditions, WhatWasTouchedLivesOnAfterACrash) {
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  const std::string large(300'000, 'l');
  for (const std::string& value : {std::string("v"), large}) {
    ASSERT_TRUE(client.put_with("key", value, {.ttl = std::chrono::seconds(2)}));
    const auto touched =
        client.touch("key", std::chrono::hours(1), WriteOptions{.durability = Durability::kSync});
    ASSERT_TRUE(touched) << to_string(touched.error());
    server.kill();
    server.start();
    const auto got = client.get("key");
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_TRUE(got->value == value);
    EXPECT_EQ(got->version, *touched);
    EXPECT_GT(got->expires_at_ms, wall_clock_ms() + 3'000'000U);
    ASSERT_TRUE(client.touch("key", milliseconds(0)));
    EXPECT_EQ(client.get("key")->expires_at_ms, 0U);
  }
  EXPECT_EQ(client.touch("absent", std::chrono::hours(1)).error().code, Code::kNotFound);
}

// Touches are packed with puts, and take their order among the client's writes of a key.
TEST(Conditions, WhatIsTouchedBesideOtherWrites) {
  Server server;
  Client client = server.client();
  EXPECT_EQ(client.put_with("k", "v", {.if_absent = true, .keep_value = true}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(client.put_with("k", "v", {.keep_value = true}).error().code, Code::kInvalidArgument);
  const std::uint64_t version = *client.put("k", "v");
  EXPECT_EQ(client.put_with("k", "", {.if_version = version + 1, .keep_value = true}).error().code,
            Code::kConflict);
  const auto touched = client.put_with("k", "", {.if_version = version, .keep_value = true});
  ASSERT_TRUE(touched);
  EXPECT_GT(*touched, version);
  EXPECT_EQ(client.get("k")->value, "v");
}

TEST(Conditions, WhatExpiresWhileTheServerIsDownIsGone) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  ASSERT_TRUE(client.put_with("short", "v", {.ttl = milliseconds(1)}));
  ASSERT_TRUE(client.put_with("long", "v", {.ttl = std::chrono::hours(1)}));
  ASSERT_TRUE(client.flush());
  server.kill();
  server.start();
  EXPECT_EQ(client.get("short").error().code, Code::kNotFound);
  EXPECT_GT(client.get("long")->expires_at_ms, 0U);
}

TEST(Conditions, FromTheShell) {
  Server server;
  const auto run = [&](std::vector<std::string> arguments) {
    return kvclient(server.address(), std::move(arguments));
  };
  EXPECT_EQ(run({"put", "--if-absent", "k", "v"}).status, 0);
  EXPECT_EQ(run({"put", "--if-absent", "k", "w"}).status, 5);
  EXPECT_EQ(run({"put", "--if-version", "999", "k", "w"}).status, 5);
  EXPECT_EQ(run({"put", "--if-version", "999", "absent", "v"}).status, 1);
  EXPECT_EQ(run({"get", "k"}).output, "v");
  EXPECT_EQ(run({"incr", "c", "41"}).output, "41\n");
  EXPECT_EQ(run({"decr", "c"}).output, "40\n");
  EXPECT_EQ(run({"cas", "c", "40", "7"}).output, "7\n");
  EXPECT_EQ(run({"cas", "c", "40", "8"}).status, 5);
  EXPECT_EQ(run({"get", "c"}).output, "7\n");
  EXPECT_EQ(run({"incr", "k"}).status, 4);
  EXPECT_EQ(run({"incr", "c", "much"}).status, 2);
  EXPECT_EQ(run({"put", "--ttl", "soon", "k", "v"}).status, 2);
  EXPECT_EQ(run({"put", "--if-absent", "--if-version", "3", "k", "v"}).status, 2);
  EXPECT_EQ(run({"put", "--ttl", "1ms", "brief", "v"}).status, 0);
  Client client = server.client();
  while (client.get("brief"))
    std::this_thread::yield();
}

}  // namespace
}  // namespace rkv::testing_support
