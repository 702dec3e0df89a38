// A server whose records are dropped when memory is full (--evict): which go, which stay, and that
// no client ever finds a value after a newer one was acknowledged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

const std::vector<std::string> kCache{"--memory", "16MiB", "--evict"};

std::string key_of(std::uint64_t number) {
  return fmt::format("evicting-{:07}", number);
}

// 8 to 14 KB.
std::string value_of(std::uint64_t number) {
  return whole_value(number, 1000 + number * 7 % 750);
}

// How many of the keys are there. A key that is there has its value.
std::uint64_t present(Client& client, std::uint64_t first, std::uint64_t end) {
  std::uint64_t count = 0;
  for (std::uint64_t i = first; i < end; ++i) {
    const auto got = client.get(key_of(i));
    if (got) {
      EXPECT_EQ(got->value, value_of(i));
      ++count;
    } else {
      EXPECT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
    }
  }
  return count;
}

// Some 66 MB in 16 MiB.
TEST(Evicting, NewRecordsTakeThePlaceOfOldOnes) {
  Server server(kCache);
  Client client = server.client();
  constexpr std::uint64_t kRecords = 6'000;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const auto put = client.put(key_of(i), value_of(i));
    ASSERT_TRUE(put) << to_string(put.error());
  }
  EXPECT_GT(server_stat(client, "evicted_records"), kRecords / 2);
  const std::uint64_t asked = client.stats().two_sided_gets;
  EXPECT_LT(present(client, 0, kRecords / 2), kRecords / 20) << "the oldest half";
  EXPECT_GT(present(client, kRecords - 500, kRecords), 350U) << "the newest";
  // Misses, too, are READs. One GET in 64 that finds its record tells the server of the others.
  EXPECT_LE(client.stats().two_sided_gets - asked, 500U / 64 + 1);
  server.stop_and_check();
}

// The server sees no READ: what keeps a record is what its readers report.
TEST(Evicting, WhatIsReadOneSidedlyStays) {
  Server server(kCache);
  Client client = server.client();
  constexpr std::uint64_t kCold = 6'000;
  constexpr std::uint64_t kHot = 20;
  const auto hot_found = [&] { return present(client, kCold, kCold + kHot); };
  for (std::uint64_t i = kCold; i < kCold + kHot; ++i)
    ASSERT_TRUE(client.put(key_of(i), value_of(i)));
  std::uint64_t asked = 0;
  std::uint64_t lost = 0;
  for (std::uint64_t i = 0; i < kCold; ++i) {
    ASSERT_TRUE(client.put(key_of(i), value_of(i)));
    if (i % 20 == 0) lost += kHot - hot_found();
    asked += kHot;
  }
  EXPECT_EQ(lost, 0U) << "of " << kHot << " keys";
  EXPECT_LT(present(client, 0, 500), 50U) << "as old as those that were read";
  EXPECT_LT(client.stats().two_sided_gets * 32, asked) << "GETs by request";
  server.stop_and_check();
}

TEST(Evicting, KeysThatExpireGoAndOneSidedCountersStay) {
  Server server(kCache);
  Client client = server.client();
  constexpr int kCounters = 50;
  // A counter that has no cell is a record like others: over TCP and iWARP all of them.
  std::vector<std::string> counters;
  for (int i = 0; i < kCounters; ++i) {
    auto opened = client.open_counter(fmt::format("counter {}", i));
    ASSERT_TRUE(opened) << to_string(opened.error());
    ASSERT_TRUE(client.incr(*opened, i));
    if (opened->is_one_sided()) counters.push_back(opened->key());
  }
  EXPECT_EQ(counters.size(), test_transport() == Transport::kShm ? kCounters : counters.size());
  constexpr std::uint64_t kRecords = 4'000;
  for (std::uint64_t i = 0; i < kRecords; ++i) {
    const PutOptions options{.ttl = std::chrono::hours(1 + i % 2)};
    ASSERT_TRUE(client.put_with(key_of(i), value_of(i), options));
  }
  EXPECT_LT(server_stat(client, "expiring_records"), kRecords / 2);
  for (const std::string& key : counters) {
    const auto counter = client.get_counter(key);
    ASSERT_TRUE(counter) << to_string(counter.error());
    EXPECT_EQ(key, fmt::format("counter {}", counter->number));
  }
  server.stop_and_check();
}

// Memory is full of long records when short ones come, so that the index runs out of slots: a pair
// of groups then drops a record of its own.
TEST(Evicting, ManyShortRecordsAfterLongOnes) {
  Server server(kCache);
  Client client = server.client();
  for (std::uint64_t i = 0; i < 2'000; ++i)
    ASSERT_TRUE(client.put(key_of(i), value_of(i)));
  constexpr std::uint64_t kShort = 400'000;
  constexpr std::size_t kAtOnce = 1000;
  std::vector<std::string> keys(kAtOnce);
  std::vector<KeyValue> items(kAtOnce);
  for (std::uint64_t i = 0; i < kShort; i += kAtOnce) {
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      keys[k] = fmt::format("{}", i + k);
      items[k] = {.key = keys[k], .value = keys[k]};
    }
    std::size_t refused = 0;
    for (const auto& put : client.multi_put(items))
      refused += put ? 0 : 1;
    ASSERT_EQ(refused, 0U) << "after " << i;
  }
  const std::uint64_t records = server_stat(client, "records");
  EXPECT_GT(records, 20'000U);
  EXPECT_LT(records, kShort);
  std::uint64_t found = 0;
  for (std::uint64_t i = kShort - 1000; i < kShort; ++i) {
    const auto got = client.get(fmt::format("{}", i));
    if (!got) continue;
    EXPECT_EQ(got->value, fmt::format("{}", i));
    ++found;
  }
  EXPECT_GT(found, 500U);
  server.stop_and_check();
}

TEST(Evicting, LargeValuesOfAllSizes) {
  Server server({"--memory", "64MiB", "--evict"});
  Client client = server.client();
  std::mt19937_64 random(1);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::size_t words = (random() % 4 == 0 ? 1U << 19 : 1U << 13) - random() % 4096;
    const auto put = client.put(key_of(i), whole_value(i, words));
    ASSERT_TRUE(put) << i << ": " << to_string(put.error());
  }
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto got = client.get(key_of(i));
    if (!got) continue;
    std::uint64_t number = 0;
    EXPECT_TRUE(is_whole(got->value, &number));
    EXPECT_EQ(number, i);
    ++found;
  }
  EXPECT_GT(found, 10U);
  EXPECT_GT(server_stat(client, "evicted_records"), 50U);
  server.stop_and_check();
}

// Each key has one writer, which publishes what was acknowledged. A reader that begins afterwards
// finds that, something newer, or nothing: never an older value, whose block it may know.
class Attack {
 public:
  static constexpr std::size_t kWriters = 2;
  static constexpr std::uint64_t kKeys = 3'000;  // some 27 MB
  explicit Attack(Server& server) : server_(server) {}

  void write(std::size_t writer) {
    Client client = server_.client();
    std::mt19937_64 random(writer);
    for (std::uint64_t n = 1; n <= 6'000; ++n) {
      const std::uint64_t key = random() % (kKeys / kWriters) * kWriters + writer;
      const std::uint64_t round = floors_[key].load() + 1;
      const std::size_t words = 200 + random() % 2000;
      const auto put = client.put(key_of(key), whole_value(round * kKeys + key, words));
      EXPECT_TRUE(put) << to_string(put.error());
      floors_[key].store(round);
    }
    running_.fetch_sub(1);
  }
  void read(std::size_t reader) {
    Client client = server_.client();
    std::mt19937_64 random(100 + reader);
    while (running_.load() != 0) {
      // Some keys are read much more than others.
      const std::uint64_t key = random() % (random() % 2 == 0 ? kKeys : kKeys / 50);
      const std::uint64_t floor = floors_[key].load();
      const auto got = client.get(key_of(key));
      if (!got) {
        EXPECT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
        missing_.fetch_add(1);
        continue;
      }
      std::uint64_t number = 0;
      EXPECT_TRUE(is_whole(got->value, &number));
      EXPECT_EQ(number % kKeys, key);
      EXPECT_GE(number / kKeys, floor) << "an older value of " << key;
      found_.fetch_add(1);
    }
  }
  void run() {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kWriters; ++i) {
      threads.emplace_back([this, i] { write(i); });
      threads.emplace_back([this, i] { read(i); });
    }
    for (std::thread& one : threads)
      one.join();
  }
  std::uint64_t found() const { return found_.load(); }
  std::uint64_t missing() const { return missing_.load(); }

 private:
  Server& server_;
  std::array<std::atomic<std::uint64_t>, kKeys> floors_{};
  std::atomic<std::size_t> running_{kWriters};
  std::atomic<std::uint64_t> found_{0};
  std::atomic<std::uint64_t> missing_{0};
};

TEST(Evicting, NobodyFindsAnOlderValue) {
  Server server(kCache);
  Attack attack(server);
  attack.run();
  fmt::print("{} found, {} missing\n", attack.found(), attack.missing());
  EXPECT_GT(attack.found(), 100U);
  EXPECT_GT(attack.missing(), 10U);
  Client client = server.client();
  EXPECT_GT(server_stat(client, "evicted_records"), 1000U);
  server.stop_and_check();
}

}  // namespace
}  // namespace rkv::testing_support
