// Writes that are as durable as they were asked to be, as programs use them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using ::testing::HasSubstr;

// No sync but those asked for, within the test.
std::vector<std::string> with_data(const ScratchDirectory& scratch) {
  return {"--memory", "32MiB", "--data-dir", scratch.path("data"), "--sync-interval", "60m"};
}

// Each kind of write, at each level, is there after a kill.
TEST(Durability, WhatWasAskedToBeDurableSurvivesAKill) {
  ScratchDirectory scratch;
  Server server(with_data(scratch));
  Client client = server.client();
  for (const Durability level : {Durability::kWal, Durability::kSync}) {
    const WriteOptions durable{.durability = level};
    const std::string tag = to_string(level);
    const std::string large(200'000, 'l');
    ASSERT_TRUE(client.put("gone-" + tag, "x"));
    ASSERT_TRUE(client.put("gone-if-" + tag, "x"));
    ASSERT_TRUE(client.incr("swapped-" + tag, 5));
    const auto put = client.put_with("put-" + tag, "value", {.durability = level});
    ASSERT_TRUE(put) << to_string(put.error());
    ASSERT_TRUE(client.put_with("absent-" + tag, "v", {.if_absent = true, .durability = level}));
    ASSERT_TRUE(client.put_with("large-" + tag, large, {.durability = level}));
    ASSERT_TRUE(client.remove("gone-" + tag, durable));
    ASSERT_TRUE(
        client.remove_if_version("gone-if-" + tag, client.get("gone-if-" + tag)->version, durable));
    ASSERT_EQ(client.incr("counter-" + tag, 7, durable)->number, 7);
    ASSERT_EQ(client.decr("counter-" + tag, 3, durable)->number, 4);
    ASSERT_TRUE(client.counter_cas("swapped-" + tag, 5, 9, durable)->done);
    const std::string many[] = {"many-a-" + tag, "many-b-" + tag};
    const KeyValue items[] = {{many[0], "1"}, {many[1], "2"}};
    for (const auto& one : client.multi_put(items, durable))
      ASSERT_TRUE(one) << to_string(one.error());
    server.kill();
    server.start();
    EXPECT_EQ(client.get("put-" + tag)->version, *put);
    EXPECT_EQ(client.get("absent-" + tag)->value, "v");
    EXPECT_EQ(client.get("large-" + tag)->value, large);
    EXPECT_EQ(client.get("gone-" + tag).error().code, Code::kNotFound);
    EXPECT_EQ(client.get("gone-if-" + tag).error().code, Code::kNotFound);
    EXPECT_EQ(client.get_counter("counter-" + tag)->number, 4);
    EXPECT_EQ(client.get_counter("swapped-" + tag)->number, 9);
    EXPECT_EQ(client.get("many-a-" + tag)->value, "1");
    EXPECT_EQ(client.get("many-b-" + tag)->value, "2");
  }
}

// Group commit, as the statistics show it: many clients' sync PUTs, fewer syncs.
TEST(Durability, ConcurrentSyncPutsShareSyncs) {
  ScratchDirectory scratch;
  Server server(with_data(scratch));
  Client observer = server.client();
  const std::uint64_t syncs_before = server_stat(observer, "syncs");
  constexpr std::size_t kWriters = 4;
  constexpr std::size_t kPuts = 100;
  std::vector<std::thread> writers;
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      Client client = server.client();
      std::vector<std::string> keys(kPuts);
      std::vector<KeyValue> items;
      for (std::size_t i = 0; i < kPuts; ++i) {
        keys[i] = fmt::format("{}-{}", writer, i);
        items.push_back({.key = keys[i], .value = "value"});
      }
      for (const auto& put : client.multi_put(items, {.durability = Durability::kSync}))
        EXPECT_TRUE(put) << to_string(put.error());
    });
  }
  for (std::thread& writer : writers)
    writer.join();
  const std::uint64_t puts = server_stat(observer, "sync_writes");
  const std::uint64_t syncs = server_stat(observer, "syncs") - syncs_before;
  std::printf("%lu sync PUTs by %zu clients took %lu syncs\n", puts, kWriters, syncs);
  EXPECT_EQ(puts, kWriters * kPuts);
  // A client has 4 under way at most, and all that a turn of the worker takes share a sync.
  EXPECT_LE(syncs, puts / 2);
  EXPECT_GE(syncs, 1U);
  EXPECT_GE(server_stat(observer, "sync_mark"), server_stat(observer, "last_sequence"));
}

// The durability that a GET reports for its version, without and with a look at the marks.
TEST(Durability, GetsTellAndInsist) {
  ScratchDirectory scratch;
  Server server(with_data(scratch));
  Client client = server.client();
  ASSERT_TRUE(client.put_with("synced", "s", {.durability = Durability::kSync}));
  const std::uint64_t map_reads = client.stats().map_reads;
  EXPECT_EQ(client.get("synced")->durability, Durability::kSync);
  EXPECT_TRUE(client.get("synced", {.at_least = Durability::kSync}));
  EXPECT_EQ(client.stats().map_reads, map_reads) << "the put's answer had said it";

  // Nobody syncs it, and nobody waits for it: written it is before long.
  ASSERT_TRUE(client.put("new", "n"));
  const auto logged = client.get("new", {.at_least = Durability::kWal});
  ASSERT_TRUE(logged) << to_string(logged.error());
  EXPECT_EQ(logged->durability, Durability::kWal);
  EXPECT_EQ(kvclient(server.address(), {"get", "--durable=wal", "new"}).output, "n");
  // Its timer would sync in an hour: who insists makes it sync now.
  const auto synced = client.get("new", {.at_least = Durability::kSync});
  ASSERT_TRUE(synced) << to_string(synced.error());
  EXPECT_EQ(synced->value, "n");
  EXPECT_EQ(synced->durability, Durability::kSync);
  ASSERT_TRUE(client.put("newer", "m"));
  const std::string_view newer[] = {"newer"};
  const auto many = client.multi_get(newer, {.at_least = Durability::kSync});
  ASSERT_TRUE(many.front()) << to_string(many.front().error());
  ASSERT_TRUE(client.put("new", "n"));
  EXPECT_EQ(kvclient(server.address(), {"get", "--durable", "new"}).output, "n");
  EXPECT_THAT(kvclient(server.address(), {"--output", "json", "get", "new"}).output,
              HasSubstr(R"("durability":"sync")"));
  EXPECT_EQ(client.stats().two_sided_gets, 0U);
}

TEST(Durability, TheServersLevelIsForWritesThatNameNone) {
  ScratchDirectory scratch;
  auto arguments = with_data(scratch);
  arguments.insert(arguments.end(), {"--durability", "wal"});
  Server server(arguments);
  Client client = server.client();
  ASSERT_TRUE(client.put("key", "value"));
  EXPECT_EQ(server_stat(client, "wal_writes"), 1U);
  ASSERT_TRUE(client.put_with("key", "value", {.durability = Durability::kMemory}));
  EXPECT_EQ(server_stat(client, "wal_writes"), 1U);
  EXPECT_EQ(kvclient(server.address(), {"put", "--durability", "sync", "key", "last"}).status, 0);
  EXPECT_EQ(server_stat(client, "sync_writes"), 1U);
  EXPECT_EQ(kvclient(server.address(), {"incr", "--durability", "sync", "n"}).status, 0);
  EXPECT_EQ(kvclient(server.address(), {"decr", "--durability", "sync", "n"}).status, 0);
  EXPECT_EQ(kvclient(server.address(), {"cas", "--durability=sync", "n", "0", "5"}).status, 0);
  EXPECT_EQ(kvclient(server.address(), {"del", "--durability=sync", "n"}).status, 0);
  EXPECT_EQ(server_stat(client, "sync_writes"), 5U);
  server.kill();
  server.start();
  EXPECT_EQ(client.get("key")->value, "last");
}

TEST(Durability, AServerWithoutADiskSaysSo) {
  Server server;
  Client client = server.client();
  for (const Durability level : {Durability::kWal, Durability::kSync}) {
    const auto put = client.put_with("key", "value", {.durability = level});
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code, Code::kUnsupported);
    EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
    EXPECT_THAT(client.last_refusal(), HasSubstr("--data-dir"));
    EXPECT_EQ(client.put_with("key", std::string(200'000, 'l'), {.durability = level}).error().code,
              Code::kUnsupported);
    EXPECT_EQ(client.get("key").error().code, Code::kNotFound) << "nothing was written";
  }
  ASSERT_TRUE(client.put("key", "value"));
  EXPECT_EQ(client.get("key")->durability, Durability::kMemory);
  EXPECT_EQ(client.get("key", {.at_least = Durability::kWal}).error().code, Code::kUnsupported);
  const Ended put = kvclient(server.address(), {"put", "--durability", "sync", "k", "v"});
  EXPECT_EQ(put.status, 4);
  EXPECT_THAT(put.output, HasSubstr("memory only"));
  EXPECT_EQ(kvclient(server.address(), {"put", "--durability", "memory", "k", "v"}).status, 0);
}

}  // namespace
}  // namespace rkv::testing_support
