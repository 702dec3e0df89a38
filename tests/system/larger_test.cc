// More data than memory, and a server that answers at once after a start.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

std::string name_of(std::uint64_t number) {
  return fmt::format("larger-{:06}", number);
}

std::string value_of(std::uint64_t number, std::uint64_t change) {
  return fmt::format("{}/{}:", number, change) +
         std::string(8000 + number * 7 % 6000, static_cast<char>('a' + change % 26));
}

using Expected = std::map<std::string, std::string>;

void expect_all(Client& client, const Expected& expected) {
  std::vector<std::string_view> keys;
  keys.reserve(expected.size());
  for (const auto& [key, value] : expected)
    keys.emplace_back(key);
  std::size_t wrong = 0;
  client.multi_get_into(
      keys,
      [&](std::size_t i, const Result<ValueView>& got) {
        const std::string& value = expected.find(std::string(keys[i]))->second;
        if (value.empty()) {
          wrong += got || got.error().code != Code::kNotFound ? 1 : 0;
        } else {
          wrong += !got || got->value != value ? 1 : 0;
        }
      },
      std::chrono::seconds(60));
  EXPECT_EQ(wrong, 0U);
}

// Some 33 MB in 16 MiB: written, read, changed, removed; the same after a kill, before and after
// the records have come into memory.
TEST(Larger, MoreDataThanMemory) {
  ScratchDirectory scratch;
  Server server({"--memory", "16MiB", "--data-dir", scratch.path("data"), "--load-rate", "1MiB"});
  Client client = server.client();
  constexpr std::uint64_t kRecords = 3'000;
  Expected expected;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const std::string value = value_of(i, 0);
    ASSERT_TRUE(client.put(name_of(i), value));
    expected[name_of(i)] = value;
  }
  EXPECT_GT(server_stat(client, "records_on_disk"), kRecords / 3);
  std::mt19937_64 random(1);
  for (int n = 0; n < 800; ++n) {
    const std::uint64_t i = random() % kRecords;
    std::string& value = expected[name_of(i)];
    if (n % 4 == 0) {
      const auto removed = client.remove(name_of(i));
      EXPECT_EQ(removed.has_value(), !value.empty());
      value.clear();
    } else {
      value = value_of(i, static_cast<std::uint64_t>(n) + 1);
      ASSERT_TRUE(client.put(name_of(i), value));
    }
  }
  for (std::uint64_t i = kRecords; i < kRecords + 200; ++i)
    expected[name_of(i)].clear();  // never written
  expect_all(client, expected);
  EXPECT_GT(server_stat(client, "promoted_records"), 500U);

  ASSERT_TRUE(client.flush());
  server.kill();
  server.start();
  // 33 MB at 1 MiB a second: this takes place long before the loading is over.
  EXPECT_TRUE(client.get(name_of(17)) || expected[name_of(17)].empty());
  EXPECT_EQ(client.get("nobody").error().code, Code::kNotFound);
  for (std::uint64_t i = 0; i < kRecords; i += 50) {
    std::string& value = expected[name_of(i)];
    if (i % 100 == 0) {
      EXPECT_EQ(client.remove(name_of(i)).has_value(), !value.empty());
      value.clear();
    } else {
      value = value_of(i, i);
      ASSERT_TRUE(client.put(name_of(i), value));
    }
  }
  EXPECT_EQ(server_stat(client, "loading"), 1U);
  expect_all(client, expected);
  server.stop_and_check();

  Server unhurried({"--memory", "16MiB", "--data-dir", scratch.path("data")});
  Client other = unhurried.client();
  while (server_stat(other, "loading") != 0) {
  }
  expect_all(other, expected);
  unhurried.stop_and_check();
}

// The server sees no READ. What keeps a record that is read one-sidedly is what its readers tell
// along with the GETs that they must ask for.
TEST(Larger, WhatIsReadOneSidedlyStaysInMemory) {
  ScratchDirectory scratch;
  Server server({"--memory", "16MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  constexpr std::uint64_t kRecords = 3'000;
  constexpr std::uint64_t kHot = 20;
  for (std::uint64_t i = 0; i < kRecords; ++i)
    ASSERT_TRUE(client.put(name_of(i), value_of(i, 0)));
  ASSERT_TRUE(client.flush());
  const auto asked_for_hot_ones = [&] {
    const std::uint64_t before = client.stats().two_sided_gets;
    for (std::uint64_t i = 0; i < kHot; ++i)
      EXPECT_TRUE(client.get(name_of(i)));
    return client.stats().two_sided_gets - before;
  };
  asked_for_hot_ones();
  const std::uint64_t evicted = server_stat(client, "evicted_records");
  std::uint64_t asked = 0;
  for (std::uint64_t n = 0; n < 2 * kRecords; ++n) {
    EXPECT_TRUE(client.get(name_of(n % kRecords)));
    if (n % 10 == 0) asked += asked_for_hot_ones();
  }
  fmt::print("asked for {} keys {} times\n", kHot, asked);
  EXPECT_GT(server_stat(client, "evicted_records") - evicted, kRecords);
  EXPECT_LE(asked, kHot) << "they have left memory again and again";
  server.stop_and_check();
}

// When the loading is over, misses are one-sided again.
TEST(Larger, MissesAreReadWhenTheLoadingIsOver) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_TRUE(client.put(name_of(i), value_of(i, 0)));
  ASSERT_TRUE(client.flush());
  server.stop_and_check();
  server.start();
  while (server_stat(client, "loading") != 0) {
  }
  const std::uint64_t asked = server_stat(client, "two_sided_gets");
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_TRUE(client.get(name_of(i)));
    EXPECT_EQ(client.get(name_of(1'000'000 + i)).error().code, Code::kNotFound);
  }
  EXPECT_EQ(server_stat(client, "two_sided_gets"), asked);
}

}  // namespace
}  // namespace rkv::testing_support
