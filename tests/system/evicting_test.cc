// A server whose records are dropped when memory is full (--evict): which go, which stay, and that
// no client ever finds a value after a newer one was acknowledged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "rkv/async_client.h"
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

// Puts values that are their keys, PREFIX and a number. Returns how many were refused.
std::uint64_t put_short(Client& client, const std::string& prefix, std::uint64_t first,
                        std::uint64_t end) {
  constexpr std::uint64_t kAtOnce = 500;
  std::vector<std::string> keys(kAtOnce);
  std::vector<KeyValue> items(kAtOnce);
  std::uint64_t refused = 0;
  for (std::uint64_t i = first; i < end; i += kAtOnce) {
    for (std::uint64_t k = 0; k < kAtOnce; ++k) {
      keys[k] = fmt::format("{}{}", prefix, i + k);
      items[k] = {.key = keys[k], .value = keys[k]};
    }
    for (const auto& put : client.multi_put(items))
      refused += put ? 0 : 1;
  }
  return refused;
}

std::uint64_t short_there(Client& client, const std::string& prefix, std::uint64_t first,
                          std::uint64_t end) {
  std::uint64_t there = 0;
  for (std::uint64_t i = first; i < end; ++i) {
    const std::string key = fmt::format("{}{}", prefix, i);
    const auto got = client.get(key);
    EXPECT_TRUE(got ? got->value == key : got.error().code == Code::kNotFound);
    there += got ? 1 : 0;
  }
  return there;
}

// The same, a thousand keys at a time.
std::uint64_t many_short_there(Client& client, const std::string& prefix, std::uint64_t first,
                               std::uint64_t end) {
  std::uint64_t there = 0;
  std::vector<std::string> keys(1'000);
  for (std::uint64_t i = first; i < end; i += keys.size()) {
    for (std::size_t k = 0; k < keys.size(); ++k)
      keys[k] = fmt::format("{}{}", prefix, i + k);
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto found = client.multi_get(views);
    for (std::size_t k = 0; k < keys.size(); ++k) {
      EXPECT_TRUE(found[k] ? found[k]->value == keys[k] : found[k].error().code == Code::kNotFound);
      there += found[k] ? 1 : 0;
    }
  }
  return there;
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

// Whatever the way of reading: one at a time, in batches, thousands in flight.
TEST(Evicting, ReadsAreReported) {
  Server server(kCache);
  Client client = server.client();
  constexpr std::uint64_t kKeys = 500;
  ASSERT_EQ(put_short(client, "key ", 0, kKeys), 0U);
  std::vector<std::string> keys(kKeys);
  for (std::uint64_t i = 0; i < kKeys; ++i)
    keys[i] = fmt::format("key {}", i);
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  AsyncClient async =
      *AsyncClient::connect({.server = server.address(), .transport = test_transport()});
  const auto expect_reports = [&](const char* how, std::uint64_t reads, const auto& read) {
    const std::uint64_t before = server_stat(client, "reads_reported_by_clients");
    for (int round = 0; round < 20; ++round)
      read();
    const std::uint64_t reported = server_stat(client, "reads_reported_by_clients") - before;
    EXPECT_GT(reported, reads * 20 * 8 / 10) << how;
    EXPECT_LE(reported, reads * 20) << how;
  };
  expect_reports("get", kKeys, [&] { short_there(client, "key ", 0, kKeys); });
  expect_reports("multi_get", kKeys, [&] {
    client.multi_get_into(views, [](std::size_t, const auto& got) { EXPECT_TRUE(got); });
  });
  expect_reports("asynchronous", kKeys, [&] {
    std::vector<Pending<Value>> gets;
    for (const std::string& key : keys)
      gets.push_back(async.get(key).start());
    for (Pending<Value>& one : gets)
      EXPECT_TRUE(one.wait());
  });
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
  if (test_transport() == Transport::kShm) {
    EXPECT_EQ(counters.size(), std::size_t{kCounters});
  }
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
// of groups then drops records of its own, and again the oldest.
TEST(Evicting, ManyShortRecordsAfterLongOnes) {
  Server server(kCache);
  Client client = server.client();
  for (std::uint64_t i = 0; i < 2'000; ++i)
    ASSERT_TRUE(client.put(key_of(i), value_of(i)));
  constexpr std::uint64_t kShort = 400'000;
  ASSERT_EQ(put_short(client, "old ", 0, kShort), 0U);
  const std::uint64_t records = server_stat(client, "records");
  EXPECT_GT(records, 60'000U);
  EXPECT_LT(records, 200'000U) << "the index was never full";
  EXPECT_EQ(many_short_there(client, "old ", kShort - 10'000, kShort), 10'000U);
  EXPECT_LT(many_short_there(client, "old ", 0, 200'000), 20'000U);
  // 100 keys that are read stay, while others are put as often as there are records.
  ASSERT_EQ(put_short(client, "hot ", 0, 500), 0U);
  std::uint64_t lost = 0;
  for (std::uint64_t i = 0; i < 100'000; i += 1'000) {
    for (int round = 0; round < 4; ++round)
      lost += 100 - short_there(client, "hot ", 0, 100);
    ASSERT_EQ(put_short(client, "new ", i, i + 1'000), 0U);
  }
  EXPECT_LT(lost, 100U) << "of 40,000 reads";
  server.stop_and_check();
}

// A writer's new vacancy may be taken by a writer of another pair.
TEST(Evicting, SeveralWritersOfAFullIndexAreNotRefused) {
  Server server({"--memory", "16MiB", "--evict", "--threads", "4"});
  {
    Client client = server.client();
    for (std::uint64_t i = 0; i < 2'000; ++i)
      ASSERT_TRUE(client.put(key_of(i), value_of(i)));
  }
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&, i] {
      Client client = server.client();
      refused += put_short(client, fmt::format("{} ", i), 0, 100'000);
    });
  }
  for (std::thread& one : writers)
    one.join();
  EXPECT_EQ(refused.load(), 0U);
  server.stop_and_check();
}

// Values that are still arriving take all the memory, and none of them may go yet.
TEST(Evicting, MoreWritersThanTheirValuesFit) {
  Server server({"--memory", "64MiB", "--evict"});
  std::atomic<std::uint64_t> done{0};
  std::vector<std::thread> writers;
  for (std::uint64_t i = 0; i < 12; ++i) {
    writers.emplace_back([&, i] {
      Client client = server.client({.timeout = std::chrono::seconds(60)});
      const std::string value = whole_value(i, (8U << 20) / 8);
      for (std::uint64_t n = 0; n < 5; ++n) {
        const auto put = client.put(fmt::format("{}/{}", i, n), value);
        EXPECT_TRUE(put) << to_string(put.error());
        done += put ? 1 : 0;
      }
    });
  }
  for (std::thread& one : writers)
    one.join();
  EXPECT_EQ(done.load(), 60U);
  server.stop_and_check();
}

// Puts so many short values that the cache is full of them. Returns how many there are.
std::uint64_t fill(Client& client, std::size_t value_bytes, std::uint64_t records,
                   const std::string& prefix = "short ") {
  const std::string value(value_bytes, 'f');
  std::vector<std::string> keys(1'000);
  std::vector<KeyValue> items(1'000);
  for (std::uint64_t i = 0; i < records; i += keys.size()) {
    for (std::size_t k = 0; k < keys.size(); ++k) {
      keys[k] = fmt::format("{}{}", prefix, i + k);
      items[k] = {.key = keys[k], .value = value};
    }
    for (const auto& put : client.multi_put(items))
      EXPECT_TRUE(put) << to_string(put.error());
  }
  return server_stat(client, "records");
}

// The holes that short records leave do not fit. What lies in one stretch goes, not the whole
// cache.
TEST(Evicting, ALongValueTakesThePlaceOfItsLengthOfShortOnes) {
  Server server({"--memory", "64MiB", "--evict"});
  Client client = server.client();
  const std::uint64_t before = fill(client, 900, 80'000);
  EXPECT_GT(before, 50'000U);
  for (const std::uint64_t mib : {1U, 2U, 4U}) {
    const std::uint64_t dropped = server_stat(client, "evicted_records");
    const std::string value = whole_value(mib, (mib << 20) / 8);
    const auto put = client.put(fmt::format("long {}", mib), value);
    ASSERT_TRUE(put) << to_string(put.error());
    EXPECT_EQ(client.get(fmt::format("long {}", mib))->value, value);
    EXPECT_LT(server_stat(client, "evicted_records") - dropped, before / 4) << mib << " MiB";
  }
  server.stop_and_check();
}

// Many values that are somewhat longer than the others cost what they take, and not 1/64 each.
TEST(Evicting, LongerValuesTakeThePlaceOfTheirLength) {
  Server server({"--memory", "64MiB", "--evict"});
  Client client = server.client();
  const std::uint64_t before = fill(client, 60, 700'000);
  EXPECT_GT(server_stat(client, "evicted_records"), 10'000U) << "the cache was not full";
  const std::uint64_t dropped = server_stat(client, "evicted_records");
  for (int i = 0; i < 100; ++i)  // 3 % of the memory
    ASSERT_TRUE(
        client.put(fmt::format("long {}", i), std::string(i % 2 == 0 ? 1'500 : 32'000, 'l')));
  EXPECT_LT(server_stat(client, "evicted_records") - dropped, before / 8);
  server.stop_and_check();
}

// One-sided counters stay. A value for which they leave no stretch is refused, and costs nothing.
TEST(Evicting, AValueThatOneSidedCountersLeaveNoPlaceForIsRefused) {
  Server server({"--memory", "64MiB", "--evict"});
  Client client = server.client();
  fill(client, 60, 20'000);
  if (!client.open_counter("first")->is_one_sided()) return server.stop_and_check();  // TCP, iWARP
  for (int i = 0; i < 700; ++i) {
    fill(client, 60, 1'000, fmt::format("between {}/", i));
    ASSERT_TRUE(client.open_counter(fmt::format("counter {}", i)));
  }
  const std::uint64_t before = fill(client, 60, 700'000);
  const std::uint64_t dropped = server_stat(client, "evicted_records");
  const auto put = client.put("long", std::string(31U << 18, 'l'));
  EXPECT_EQ(put ? Code::kInternal : put.error().code, Code::kOutOfMemory);
  EXPECT_LT(server_stat(client, "evicted_records") - dropped, before / 8);
  EXPECT_TRUE(client.put("short", "value"));
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
