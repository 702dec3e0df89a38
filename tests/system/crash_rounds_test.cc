// A server killed with SIGKILL at random instants under a mixed load, again and again over one data
// directory, judged by the ledgers (crash_ledger.h, LEDGER-1 to LEDGER-5; cell_ledger.h).
// RKV_CRASH_ROUNDS says how often.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "common/layout.h"
#include "common/random.h"
#include "tests/system/cell_ledger.h"
#include "tests/system/crash_ledger.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using Outcome = CrashLedger::Outcome;
using Shown = CrashLedger::Shown;
using ::testing::IsEmpty;

constexpr std::size_t kWriters = 3;
constexpr std::size_t kKeysEach = 6;
constexpr std::size_t kKeys = kWriters * kKeysEach;
constexpr std::uint64_t kMostOperations = 800;  // until the kill
constexpr milliseconds kTimeout{3000};

std::string key_name(std::size_t key) {
  return fmt::format("key-{}", key);
}
std::string counter_name(std::size_t writer) {
  return fmt::format("counter-{}", writer);
}
std::string cell_name(std::size_t writer) {
  return fmt::format("cell-{}", writer);
}

std::uint64_t seed() {
  const char* const given = std::getenv("RKV_TEST_SEED");
  const std::uint64_t value =
      given != nullptr ? std::strtoull(given, nullptr, 0) : random_from_kernel();
  std::printf("repeat with RKV_TEST_SEED=%lu\n", value);
  std::fflush(stdout);
  return value;
}

struct Round {
  std::atomic<std::uint64_t> operations{0};
  std::atomic<bool> over{false};
};

Durability any_level(Random& random) {
  return static_cast<Durability>(1 + random.below(3));
}

// Writes its own keys and its own counters, one by requests and one by atomics, until the round is
// over.
class Writer {
 public:
  Writer(std::size_t number, CrashLedger& ledger, Client client, std::uint64_t seed)
      : number_(number), ledger_(ledger), client_(std::move(client)), random_(seed) {}

  void run(Round& round) {
    while (!round.over.load(std::memory_order_relaxed)) {
      const std::uint64_t what = random_.below(8);
      what == 0 ? count() : what == 1 ? add() : write();
      round.operations.fetch_add(1, std::memory_order_relaxed);
    }
  }
  CounterLedger& counter() { return counter_; }
  CellLedger& cell() { return cell_; }

 private:
  std::size_t any_length() {
    const std::uint64_t kind = random_.below(40);
    if (kind == 0) return 150'000 + random_.below(100'000);
    return 10 + random_.below(kind < 4 ? 9000 : 400);
  }
  Result<std::uint64_t> send(const std::string& key, const std::string& value, bool removal,
                             Durability level) {
    if (removal) return client_.remove(key, {.durability = level, .timeout = kTimeout});
    return client_.put_with(key, value, {.timeout = kTimeout, .durability = level});
  }
  void write() {
    const std::size_t key = number_ * kKeysEach + random_.below(kKeysEach);
    const bool removal = random_.below(5) == 0;
    const Durability level = any_level(random_);
    const std::string value = ledger_.begin(key, removal ? 0 : any_length(), level);
    const auto done = send(key_name(key), value, removal, level);
    if (done) return ledger_.end(key, Outcome::kDone, *done);
    const bool in_doubt = done.error().write == WriteOutcome::kMayHaveHappened;
    ledger_.end(key, in_doubt ? Outcome::kUnknown : Outcome::kRefused);
  }
  void count() {
    const Durability level = any_level(random_);
    counter_.begin();
    const auto counted =
        client_.incr(counter_name(number_), 1, {.durability = level, .timeout = kTimeout});
    if (counted) return counter_.done(counted->number, level);
    if (counted.error().write == WriteOutcome::kNotApplied) counter_.refused();
  }
  void add() {
    if (!one_sided_) {
      auto opened = client_.open_counter(cell_name(number_));
      if (!opened) return;
      one_sided_ = std::move(*opened);
    }
    cell_.begin();
    const auto added = client_.incr(*one_sided_, 1, {.timeout = kTimeout});
    if (added) return cell_.done(added->number, clock_.now());
    if (added.error().write == WriteOutcome::kNotApplied) cell_.refused();
  }

  const std::size_t number_;
  CrashLedger& ledger_;
  Client client_;
  Random random_;
  CounterLedger counter_;
  std::optional<OneSidedCounter> one_sided_;
  CellLedger cell_;
  const SteadyClock clock_;
};

// Reads everybody's keys, and remembers what was reported durable.
class Reader {
 public:
  Reader(CrashLedger& ledger, Client client, std::uint64_t seed)
      : ledger_(ledger), client_(std::move(client)), random_(seed) {}

  void run(Round& round) {
    while (!round.over.load(std::memory_order_relaxed)) {
      const std::size_t key = random_.below(kKeys);
      const Durability level = random_.below(4) == 0 ? any_level(random_) : Durability::kMemory;
      const auto got = client_.get(key_name(key), {.at_least = level, .timeout = kTimeout});
      // A missing key, too, may be the word of another server.
      const std::uint64_t servers = client_.stats().reconnects;
      if (std::exchange(servers_, servers) != servers) seen_.clear();
      if (!got) continue;
      EXPECT_GE(got->durability, level);
      if (got->durability >= Durability::kWal) {
        ledger_.told_durable(key, got->value, got->version);
        ++claims_;
      }
      EXPECT_GE(got->version, seen_[key]) << key_name(key) << " went back while its server lived";
      seen_[key] = got->version;
    }
  }
  std::uint64_t claims() const { return claims_; }

 private:
  CrashLedger& ledger_;
  Client client_;
  Random random_;
  std::uint64_t servers_ = 0;                  // how often it has connected again
  std::map<std::size_t, std::uint64_t> seen_;  // versions, of the present server
  std::uint64_t claims_ = 0;
};

std::vector<Shown> look(Client& client) {
  std::vector<Shown> shown(kKeys);
  for (std::size_t key = 0; key < kKeys; ++key) {
    const auto got = client.get(key_name(key));
    if (!got) {
      EXPECT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
      continue;
    }
    EXPECT_EQ(got->is_counter, false);
    shown[key] = {.value = got->value, .version = got->version};
  }
  return shown;
}

std::int64_t look_at_counter(Client& client, const std::string& name) {
  const auto got = client.get_counter(name);
  if (got) return got->number;
  EXPECT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
  return 0;
}

class CrashRounds : public ::testing::Test {
 protected:
  void SetUp() override {
    Random random(seed());
    server_ = std::make_unique<Server>(
        std::vector<std::string>{"--memory", "64MiB", "--data-dir", scratch_.path("data")});
    for (std::size_t i = 0; i < kWriters; ++i)
      writers_.push_back(std::make_unique<Writer>(i, ledger_, server_->client(), random()));
    reader_ = std::make_unique<Reader>(ledger_, server_->client(), random());
    witness_ = std::make_unique<LogWitness>(server_->client());
    random_ = random;
  }

  // Load, until `enough`; then the kill, in the midst of it.
  template <class Enough>
  void load_and_kill(Enough enough) {
    Round round;
    std::vector<std::thread> threads;
    for (const auto& writer : writers_)
      threads.emplace_back([&] { writer->run(round); });
    threads.emplace_back([&] { reader_->run(round); });
    threads.emplace_back([&] { witness_->run(round.over); });
    while (!enough(round))
      std::this_thread::yield();
    killed_ = clock_.now();
    bound_ = witness_->bound(killed_);
    server_->kill();
    round.over.store(true);
    restart();  // while some wait for a server: they are served by the new one
    for (std::thread& thread : threads)
      thread.join();
  }
  virtual void restart() { server_->start(); }

  void check_counters(Client& client) {
    for (std::size_t number = 0; number < kWriters; ++number) {
      CounterLedger& counter = writers_[number]->counter();
      const std::int64_t counted = look_at_counter(client, counter_name(number));
      ASSERT_TRUE(counter.allows(counted))
          << counter_name(number) << " shows " << counted << ", not " << counter.describe();
      counter.go_on_from(counted);
      CellLedger& cell = writers_[number]->cell();
      const std::int64_t added = look_at_counter(client, cell_name(number));
      ASSERT_TRUE(cell.existed(added))
          << cell_name(number) << " shows " << added << ", not " << cell.describe();
      ASSERT_LE(cell.lost(added, killed_), bound_) << cell_name(number);
      cell.go_on_from(added, killed_);
    }
  }

  std::uint32_t boot() {
    Client client = server_->client();
    return static_cast<std::uint32_t>(server_stat(client, "boot"));
  }

  ScratchDirectory scratch_;
  CrashLedger ledger_{kKeys};
  std::unique_ptr<Server> server_;
  std::vector<std::unique_ptr<Writer>> writers_;
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<LogWitness> witness_;
  Random random_{0};
  const SteadyClock clock_;
  Nanos killed_ = 0;
  Nanos bound_ = 0;  // of what one-sided counters may lose then
};

TEST_F(CrashRounds, WhatWasAcknowledgedAsDurableIsThereAfterEveryKill) {
  const char* const given = std::getenv("RKV_CRASH_ROUNDS");
  ASSERT_NE(given, nullptr) << "RKV_CRASH_ROUNDS says how many: run this by ctest";
  const std::uint64_t rounds = std::strtoull(given, nullptr, 10);
  std::uint64_t operations = 0;
  for (std::uint64_t number = 0; number < rounds; ++number) {
    const std::uint32_t killed = boot();
    const std::uint64_t target = 1 + random_.below(kMostOperations);
    // Every fourth time long enough that a one-sided counter has something that it may not lose.
    const bool is_long = number % 4 == 0;
    const Nanos began = clock_.now();
    load_and_kill([&](const Round& round) {
      if (round.operations.load() < target) return false;
      const Nanos now = clock_.now();
      return !is_long || now - began > 2 * witness_->bound(now);
    });
    operations += target;
    Client client = server_->client();
    const std::vector<Shown> shown = look(client);
    ASSERT_THAT(ledger_.check(shown, killed), IsEmpty()) << "round " << number;
    ledger_.go_on_from(shown);
    ASSERT_NO_FATAL_FAILURE(check_counters(client)) << "round " << number;
  }
  std::printf("%lu rounds, some %lu operations, %lu claims of durability kept\n", rounds,
              operations, reader_->claims());
  EXPECT_GT(reader_->claims(), rounds);
  server_->stop_and_check();
}

// The same load over a disk that lies: at the restart the directory is as it was some time before.
// If the ledger finds nothing wrong with that, it finds nothing wrong with anything.
class RolledBack : public CrashRounds {
 protected:
  void restart() override {
    std::filesystem::remove_all(scratch_.path("data"));
    std::filesystem::rename(scratch_.path("before"), scratch_.path("data"));
    CrashRounds::restart();
  }
};

TEST_F(RolledBack, IsCaught) {
  {
    Client client = server_->client();
    ASSERT_TRUE(client.put("other", "synced"));
    ASSERT_TRUE(client.flush());
  }
  server_->kill();
  std::filesystem::copy(scratch_.path("data"), scratch_.path("before"),
                        std::filesystem::copy_options::recursive);
  server_->start();
  const std::uint32_t killed = boot();
  load_and_kill([&](const Round& round) { return round.operations.load() >= 300; });
  Client client = server_->client();
  EXPECT_FALSE(ledger_.check(look(client), killed).empty());
  server_->stop_and_check();
}

}  // namespace
}  // namespace rkv::testing_support
