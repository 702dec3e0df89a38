// A value that is rewritten without pause can be read, within the stated number of READs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::uint64_t kMostReads = 64;  // client/README.md

struct Rewriting {
  const char* name;
  std::vector<std::size_t> words;  // lengths of the values, in turn
};

// Rewrites the key until told to stop.
void rewrite(Server& server, const Rewriting& how, const std::atomic<bool>& stop) {
  Client client = server.client();
  for (std::uint64_t n = 1; !stop.load(std::memory_order_relaxed); ++n) {
    const auto put = client.put("hot", whole_value(n, how.words[n % how.words.size()]));
    ASSERT_TRUE(put) << to_string(put.error());
  }
}

TEST(Pins, AValueRewrittenWithoutPauseIsRead) {
  constexpr std::uint64_t kRewrites = 500;
  for (const Rewriting& how :
       {Rewriting{"in place, 256 bytes", {32}}, Rewriting{"in place, 64 KiB", {8192}},
        Rewriting{"moving, 64 KiB", {8192, 8000}}}) {
    Server server;
    Client client = server.client();
    ASSERT_TRUE(client.put("hot", whole_value(0, how.words.front())));
    std::atomic<bool> stop{false};
    std::thread writer([&] { rewrite(server, how, stop); });
    std::uint64_t most = 0;
    std::uint64_t newest = 0;
    while (newest < kRewrites && !HasFailure()) {
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

}  // namespace
}  // namespace rkv::testing_support
