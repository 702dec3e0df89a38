// A value that is rewritten without pause can be read, within the stated number of READs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::uint64_t kMostReads = 64;  // client/README.md

struct Rewriting {
  const char* name;
  std::vector<std::size_t> words;  // lengths of the values, in turn
  std::uint64_t pins = 0;          // so many at least
};

// Rewrites the key until stopped. So many PUTs on their way that the server is at it all the
// time.
constexpr std::size_t kInFlight = 32;
void rewrite(Server& server, const Rewriting& how, const std::atomic<bool>& stop) {
  Client client = server.client();
  std::vector<std::string> values(kInFlight);
  std::vector<KeyValue> items(kInFlight);
  for (std::uint64_t n = 0; !stop.load(std::memory_order_relaxed);) {
    for (std::size_t i = 0; i < kInFlight; ++i) {
      ++n;
      values[i] = whole_value(n, how.words[n % how.words.size()]);
      items[i] = {.key = "hot", .value = values[i]};
    }
    for (const auto& put : client.multi_put(items))
      ASSERT_TRUE(put) << to_string(put.error());
  }
}

// Over verbs alone, where a READ of 64 KiB takes as long as a PUT and meets one after the other: it
// goes on until that has been pinned. Shorter values and moving ones are torn too seldom for pins,
// and over shared memory all are; for those, and for the counts, stands
// tests/protocol/rewriting_test.cc, which puts whole PUTs between the cache lines of a READ.
TEST(Pins, AValueRewrittenWithoutPauseIsRead) {
  constexpr std::uint64_t kRewrites = 500;
  for (const Rewriting& how :
       {Rewriting{"in place, 256 bytes", {32}}, Rewriting{"in place, 64 KiB", {8192}, 1},
        Rewriting{"moving, 64 KiB", {8192, 8000}}}) {
    Server server;
    Client client = server.client();
    ASSERT_TRUE(client.put("hot", whole_value(0, how.words.front())));
    std::atomic<bool> stop{false};
    std::thread writer([&] { rewrite(server, how, stop); });
    std::uint64_t most = 0;
    std::uint64_t newest = 0;
    while ((newest < kRewrites || client.stats().pins < how.pins) && !HasFailure()) {
      const std::uint64_t before = client.stats().rdma_reads;
      const auto got = client.get("hot");
      ASSERT_TRUE(got) << to_string(got.error());
      std::uint64_t counter = 0;
      EXPECT_TRUE(is_whole(got->value, &counter)) << "a torn value";
      EXPECT_GE(counter, newest);
      newest = counter;
      most = std::max(most, client.stats().rdma_reads - before);
    }
    stop = true;
    writer.join();
    const ClientStats stats = client.stats();
    fmt::print(
        "{}: {} GETs of {} values, {} tears, {} pins, {} asked the server, at most {} READs\n",
        how.name, stats.gets, newest, stats.tears_detected, stats.pins, stats.two_sided_gets, most);
    EXPECT_LE(most, kMostReads);
  }
}

// The server is stopped again and again, until it is in the middle of a PUT: nothing that the
// reader does makes the record whole then. It must have pinned it, and given up READing, each time;
// and be served when the server goes on.
TEST(Pins, AReaderOfHalfAPutPinsAndEnds) {
  constexpr std::uint64_t kPins = 3;
  Server server;
  Client client = server.client();
  const Rewriting how{"in place, 64 KiB", {8192}};
  ASSERT_TRUE(client.put("hot", whole_value(0, how.words.front())));
  std::atomic<bool> stop{false};
  std::thread writer([&] { rewrite(server, how, stop); });
  std::uint64_t most = 0;
  std::uint64_t stops = 0;
  const auto get = [&](Client::Timeout timeout) {
    const std::uint64_t before = client.stats().rdma_reads;
    auto got = client.get("hot", {.timeout = timeout});
    most = std::max(most, client.stats().rdma_reads - before);
    std::uint64_t counter = 0;
    if (got) {
      EXPECT_TRUE(is_whole(got->value, &counter)) << "a torn value";
    }
    return got.has_value();
  };
  for (; client.stats().pins < kPins && !HasFailure(); ++stops) {
    const std::uint64_t pins = client.stats().pins;
    server.process().signal(SIGSTOP);
    const bool read = get(std::chrono::milliseconds(20));
    if (client.stats().pins != pins) {
      EXPECT_FALSE(read) << "half a PUT, and no server to ask";
    }
    server.process().signal(SIGCONT);
    EXPECT_TRUE(get(std::chrono::seconds(60)));
  }
  stop = true;
  writer.join();
  const ClientStats stats = client.stats();
  fmt::print("{} stops: {} tears, {} pins, at most {} READs\n", stops, stats.tears_detected,
             stats.pins, most);
  EXPECT_GE(stats.tears_detected, kPins);
  EXPECT_LE(most, kMostReads);
}

}  // namespace
}  // namespace rkv::testing_support
