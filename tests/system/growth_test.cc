// A server that starts small and grows while clients read: nobody notices but by the statistics.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/histogram.h"
#include "common/random.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::size_t kOldKeys = 1'000;
constexpr std::size_t kNewKeys = 40'000;

std::string name_of(std::size_t i) {
  return fmt::format("key-{}", i);
}
std::string value_of(std::size_t i) {
  return fmt::format("{}-{:0>{}}", i, "", i % 90);
}

void put_range(Client& client, std::size_t first, std::size_t end) {
  std::vector<std::string> texts;
  std::vector<KeyValue> items;
  for (std::size_t i = first; i < end; ++i) {
    texts.push_back(name_of(i));
    texts.push_back(value_of(i));
  }
  for (std::size_t i = 0; i < texts.size(); i += 2)
    items.push_back({.key = texts[i], .value = texts[i + 1]});
  for (const auto& put : client.multi_put(items, std::chrono::minutes(1)))
    ASSERT_TRUE(put) << to_string(put.error());
}

// A client that reads old keys, and keys that never existed.
struct Reader {
  Client client;
  Histogram nanoseconds = {};
  std::uint64_t wrong = 0;

  void read(std::size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto got = client.get(name_of(i));
    nanoseconds.record(static_cast<std::uint64_t>(
        std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count()));
    if (!got || got->value != value_of(i)) ++wrong;
  }
  void miss(std::size_t i) {
    if (client.get(fmt::format("absent-{}", i)).error().code != Code::kNotFound) ++wrong;
  }
  std::string told() const {
    return fmt::format("{} GETs, p50 {:.1f} us, p99 {:.1f} us", nanoseconds.count(),
                       static_cast<double>(nanoseconds.percentile(50)) / 1000,
                       static_cast<double>(nanoseconds.percentile(99)) / 1000);
  }
};

TEST(Growth, NoGetFailsAndEveryKeyIsFoundWhileTheStoreGrows) {
  Server server({"--memory", "32MiB"});
  Client writer = server.client();
  put_range(writer, 0, kOldKeys);
  const std::uint64_t memory_before = server_stat(writer, "memory_bytes");
  const std::uint64_t splits_before = server_stat(writer, "index_splits");
  // One that goes on with what it has cached, and one that has only its directory.
  Reader warm{server.client()};
  Reader cold{server.client({.cache_bytes = 0})};
  std::atomic<bool> stop{false};
  std::thread reading([&] {
    Random random(1);
    for (std::uint64_t round = 0; !stop.load(std::memory_order_relaxed); ++round) {
      const std::size_t i = random.below(kOldKeys);
      warm.read(i);
      cold.read(i);
      if (round % 16 == 0) cold.miss(i);
    }
  });
  for (std::size_t i = kOldKeys; i < kNewKeys && !HasFailure(); i += 1'000)
    put_range(writer, i, std::min(i + 1'000, kNewKeys));
  stop = true;
  reading.join();

  const std::uint64_t memory = server_stat(writer, "memory_bytes");
  const std::uint64_t splits = server_stat(writer, "index_splits");
  fmt::print("{} to {} MiB, {} splits; while it grew: warm {}; cold {}\n", memory_before >> 20,
             memory >> 20, splits - splits_before, warm.told(), cold.told());
  EXPECT_EQ(warm.wrong, 0U);
  EXPECT_EQ(cold.wrong, 0U);
  EXPECT_GT(memory, memory_before);
  EXPECT_GE(splits, splits_before + 15);

  // Found by a reader that was there all the while, and by a new one.
  Client fresh = server.client();
  for (Client* client : {&cold.client, &fresh}) {
    for (std::size_t i = 0; i < kNewKeys; i += 61) {
      const auto got = client->get(name_of(i));
      ASSERT_TRUE(got) << name_of(i) << ": " << to_string(got.error());
      ASSERT_EQ(got->value, value_of(i));
    }
  }
  server.stop_and_check();
}

}  // namespace
}  // namespace rkv::testing_support
