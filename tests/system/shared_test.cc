// A client that many threads share, against a server.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "common/bytes.h"
#include "rkv/async_client.h"
#include "rkv/shared_client.h"
#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using namespace std::chrono_literals;

SharedClient shared_client(const Server& server, std::size_t connections = 1,
                           ClientOptions options = {}) {
  options.server = server.address();
  options.transport = test_transport();
  std::string refusal;
  auto client = SharedClient::connect(options, connections, &refusal);
  if (!client) throw std::runtime_error(to_string(client.error()) + ": " + refusal);
  return std::move(*client);
}

// Calls `work(thread)` on so many threads at once.
template <class Work>
void on_threads(int count, Work work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&work, t] { work(t); });
  for (std::thread& thread : threads)
    thread.join();
}

TEST(Shared, ManyThreadsReadAndWriteAndEachReadsItsOwnWrites) {
  constexpr int kThreads = 8;
  constexpr std::uint64_t kEach = 150;
  Server server({"--memory", "64MiB"});
  for (const std::size_t connections : {1U, 3U}) {
    SharedClient client = shared_client(server, connections);
    const std::string everyone = fmt::format("all of {}", connections);
    on_threads(kThreads, [&](int t) {
      const std::string key = fmt::format("key {}", t);
      std::uint64_t seen = 0;
      for (std::uint64_t i = 1; i <= kEach; ++i) {
        const auto put = client.put(key, whole_value(i, 1 + i % 40));
        ASSERT_TRUE(put) << to_string(put.error());
        const auto got = client.get(key);
        ASSERT_TRUE(got) << to_string(got.error());
        std::uint64_t counter = 0;
        ASSERT_TRUE(is_whole(got->value, &counter));
        EXPECT_EQ(counter, i);
        EXPECT_EQ(got->version, *put);
        const auto sum = client.incr(everyone);
        ASSERT_TRUE(sum) << to_string(sum.error());
        EXPECT_GT(sum->number, static_cast<std::int64_t>(seen));
        seen = static_cast<std::uint64_t>(sum->number);
      }
    });
    EXPECT_EQ(client.get_counter(everyone)->number, kThreads * kEach);
  }
}

// Threads that use many keys at once, beside others that use one, and what uses a connection of its
// own.
TEST(Shared, CallsOfAllKindsGoOnBesideEachOther) {
  constexpr std::size_t kKeys = 600;
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  SharedClient client = shared_client(server);
  on_threads(5, [&](int t) {
    std::vector<std::string> names;
    std::vector<std::string> values;
    for (std::size_t i = 0; i < kKeys; ++i) {
      names.push_back(fmt::format("{}/{:03}", t, i));
      values.push_back(whole_value(i, 1 + i % 9));
    }
    const std::vector<std::string_view> keys(names.begin(), names.end());
    std::vector<KeyValue> items;
    for (std::size_t i = 0; i < kKeys; ++i)
      items.push_back({.key = keys[i], .value = values[i]});
    for (const auto& put : client.multi_put(items))
      ASSERT_TRUE(put) << to_string(put.error());
    const auto got = client.multi_get(keys);
    for (std::size_t i = 0; i < kKeys; ++i) {
      ASSERT_TRUE(got[i]) << to_string(got[i].error());
      EXPECT_EQ(got[i]->value, values[i]);
    }
    const auto flushed = client.flush(20s);
    ASSERT_TRUE(flushed) << to_string(flushed.error());
    std::size_t shown = 0;
    const std::string prefix = fmt::format("{}/", t);
    Scanner scanner(client, {.prefix = prefix, .timeout = 20s});
    for (const ScanEntry& entry : scanner) {
      ASSERT_LT(shown, kKeys);
      EXPECT_EQ(entry.key, names[shown]);
      EXPECT_EQ(entry.value, values[shown]);
      ++shown;
    }
    EXPECT_TRUE(scanner.status());
    EXPECT_EQ(shown, kKeys);
    EXPECT_TRUE(client.ping(20s));
    EXPECT_TRUE(client.server_stats(20s));
  });
}

// The handles of an asynchronous client, of which no thread runs a loop.
TEST(Shared, ThreadsWaitForHandlesAndDriveEachOthers) {
  Server server;
  ClientOptions options{.server = server.address(), .transport = test_transport()};
  auto client = AsyncClient::connect(options);
  ASSERT_TRUE(client) << to_string(client.error());
  on_threads(6, [&](int t) {
    const std::string key = fmt::format("counter {}", t);
    for (int i = 1; i <= 200; ++i) {
      const auto sum = client->incr(key).start().wait();
      ASSERT_TRUE(sum) << to_string(sum.error());
      EXPECT_EQ(sum->number, i);
    }
  });
}

TEST(Shared, EachThreadsOperationEndsByItsDeadlineAlthoughTheServerStandsStill) {
  Server server;
  SharedClient client = shared_client(server);
  ASSERT_TRUE(client.put("key", "value"));
  server.process().signal(SIGSTOP);
  on_threads(4, [&](int t) {
    const auto begin = std::chrono::steady_clock::now();
    const Timeout timeout = t == 3 ? 1900ms : (t + 1) * 100ms;  // each its own, not the longest
    const auto put = client.put("key", "new", timeout);
    const auto took = std::chrono::steady_clock::now() - begin;
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code, Code::kTimeout) << to_string(put.error());
    EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
    EXPECT_GE(took, timeout - 1ms);
    EXPECT_LT(took, timeout + 1500ms);
  });
  // A call that waits for another one's connection has its deadline too. A connection that is lost
  // meanwhile cannot be made again.
  on_threads(3, [&](int) {
    const auto begin = std::chrono::steady_clock::now();
    const auto flushed = client.flush(300ms);
    ASSERT_FALSE(flushed);
    const Code code = flushed.error().code;
    EXPECT_TRUE(code == Code::kTimeout || code == Code::kDisconnected || code == Code::kUnreachable)
        << to_string(flushed.error());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
  });
  server.process().signal(SIGCONT);
  EXPECT_TRUE(client.put("key", "later", 20s));
  EXPECT_TRUE(client.ping(20s));
}

// Each addition is made once, although the server is killed under the threads.
TEST(Shared, ThreadsGoOnWithTheNextServerAndKnowWhatMayHaveHappened) {
  constexpr int kThreads = 6;
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data"), "--durability", "wal"});
  SharedClient client = shared_client(server, 2, {.timeout = 60s});
  std::atomic<std::int64_t> done = 0;
  std::atomic<std::int64_t> unknown = 0;
  std::atomic<bool> over = false;
  std::thread killer([&] {
    for (int round = 0; round < 3; ++round) {
      const std::int64_t before = done;
      while (done < before + 200)
        std::this_thread::sleep_for(1ms);
      server.kill();
      server.start();
    }
    over = true;
  });
  on_threads(kThreads, [&](int) {
    while (!over) {
      const auto sum = client.incr("counter");
      if (sum) {
        ++done;
      } else {
        EXPECT_EQ(sum.error().write, WriteOutcome::kMayHaveHappened) << to_string(sum.error());
        ++unknown;
      }
    }
  });
  killer.join();
  const auto sum = client.get_counter("counter");
  ASSERT_TRUE(sum) << to_string(sum.error());
  EXPECT_GE(sum->number, done);
  EXPECT_LE(sum->number, done + unknown);
}

// SHARED-2
TEST(Shared, AFlushSaysOnceThatTheServerHasRestarted) {
  ScratchDirectory scratch;
  Server server(
      {"--memory", "32MiB", "--data-dir", scratch.path("data"), "--sync-interval", "10s"});
  SharedClient client = shared_client(server, 2, {.timeout = 30s});
  const auto write = [&] {
    on_threads(2, [&](int t) {
      const std::string key = fmt::format("key {}", t);
      const auto put = [&] {
        return client.put(key, "value", {.durability = Durability::kMemory});
      };
      auto done = put();
      // It was sent to the server that was killed, and nobody knows what became of it.
      if (!done && done.error().write == WriteOutcome::kMayHaveHappened) done = put();
      EXPECT_TRUE(done) << to_string(done.error());
    });
  };
  write();
  EXPECT_TRUE(client.flush());
  server.kill();
  server.start();
  EXPECT_TRUE(client.flush()) << "all was on disk";
  write();
  server.kill();
  server.start();
  const auto flushed = client.flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code, Code::kStale) << to_string(flushed.error());
  EXPECT_TRUE(client.flush());
  // Also if a thread has written to the next server before the flush.
  write();
  server.kill();
  server.start();
  write();
  EXPECT_EQ(client.flush().error().code, Code::kStale);
  EXPECT_TRUE(client.flush());
}

TEST(Shared, OneSidedCountersCountForAllThreads) {
  Server server;
  SharedClient client = shared_client(server);
  on_threads(3, [&](int) {
    auto counter = client.open_counter("visits");
    ASSERT_TRUE(counter) << to_string(counter.error());
    for (int i = 0; i < 100; ++i)
      ASSERT_TRUE(client.incr(*counter));
    const std::vector<CounterAddition> additions(20, {.counter = &*counter, .summand = 5});
    for (const auto& added : client.multi_incr(additions))
      EXPECT_TRUE(added);
  });
  EXPECT_EQ(client.get_counter("visits")->number, 600);
  EXPECT_GT(client.stats().two_sided_requests, 0U);
}

// Also of changes that the further connection has made itself, and only once.
TEST(Shared, AFlushSaysThatAOneSidedChangeMayBeLost) {
  ScratchDirectory scratch;
  Server server(
      {"--memory", "32MiB", "--data-dir", scratch.path("data"), "--sync-interval", "10s"});
  SharedClient client = shared_client(server, 1, {.timeout = 30s});
  auto counter = client.open_counter("visits");
  ASSERT_TRUE(counter) << to_string(counter.error());
  ASSERT_TRUE(client.incr(*counter));
  server.kill();
  server.start();
  EXPECT_EQ(client.flush().error().code, Code::kStale);
  EXPECT_TRUE(client.flush());
}

// A thread that drives without a pause leaves the turn to nobody.
TEST(Shared, StatisticsAreOfNowAlthoughAnotherThreadDrives) {
  Server server;
  ClientOptions options{.server = server.address(), .transport = test_transport()};
  auto client = AsyncClient::connect(options);
  ASSERT_TRUE(client) << to_string(client.error());
  ASSERT_TRUE(client->put("key", "value").start().wait());
  server.process().signal(SIGSTOP);
  std::thread driver([&] { (void)client->put("key", "new", {.timeout = 60s}).start().wait(); });
  while (client->in_flight() == 0 || client->stats().two_sided_requests < 2)
    std::this_thread::sleep_for(1ms);
  server.process().signal(SIGCONT);
  driver.join();
}

TEST(Shared, LongValuesLandInRegisteredMemory) {
  Server server({"--memory", "256MiB"});
  SharedClient client = shared_client(server);
  constexpr std::size_t kCount = 24;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (std::size_t i = 0; i < kCount; ++i) {
    keys.push_back("block" + std::to_string(i));
    values.push_back(whole_value(i, std::size_t{128} << (i % 12)));  // 1 KiB to 2 MiB
    ASSERT_TRUE(client.put(keys[i], values[i]));
  }
  auto memory = client.allocate_buffer(kCount << 21);
  ASSERT_TRUE(memory) << to_string(memory.error());
  EXPECT_EQ(client.allocate_buffer(0).error().code, Code::kInvalidArgument);
  const std::vector<std::string_view> names(keys.begin(), keys.end());
  std::vector<std::span<std::byte>> rooms;
  for (std::size_t i = 0; i < kCount; ++i)
    rooms.push_back(memory->bytes().subspan(i << 21, std::size_t{1} << 21));
  on_threads(4, [&](int thread) {
    for (auto i = static_cast<std::size_t>(thread); i < kCount; i += 4) {
      const auto size = client.get_into(keys[i], rooms[i]);
      ASSERT_TRUE(size) << to_string(size.error());
      EXPECT_EQ(as_text(rooms[i].first(size->bytes)), values[i]);
    }
  });
  std::ranges::fill(memory->bytes(), std::byte{0});
  const auto sizes = client.multi_get_buffers(names, rooms);
  ASSERT_EQ(sizes.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(sizes[i]) << to_string(sizes[i].error());
    EXPECT_EQ(as_text(rooms[i].first(sizes[i]->bytes)), values[i]);
  }
  rooms.pop_back();
  EXPECT_EQ(client.multi_get_buffers(names, rooms).front().error().code, Code::kInvalidArgument);
}

TEST(Shared, WrongOptionsAreRefused) {
  ClientOptions options{.server = test_address() + ":1", .repeat_connect = false};
  options.transport = test_transport();
  for (const std::size_t connections : {std::size_t{0}, std::size_t{65}}) {
    const auto client = SharedClient::connect(options, connections);
    ASSERT_FALSE(client);
    EXPECT_EQ(client.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace rkv::testing_support
