// The power of all replicas of a group goes, again and again: no write that was answered at `sync`
// is lost. Their disks are models that forget what was not synced (forgetful_server.cc). etcd keeps
// its power.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

constexpr std::size_t kReplicas = 3;
constexpr std::size_t kWriters = 2;
constexpr std::size_t kKeys = 8;  // of each writer
constexpr int kDeposed = 3;       // status of a forgetful server that lost its place in the group

// A key whose only writer stores the numbers 1, 2, ... in turn.
struct Key {
  std::string name;
  std::uint64_t tried = 0;     // the last number that was sent
  std::uint64_t promised = 0;  // the last one that was answered at `sync`
};

std::uint64_t number_in(std::string_view value) {
  std::uint64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

// Returns what is wrong with the stored number of a key; empty: nothing.
std::string what_is_wrong(const Key& key, std::uint64_t stored) {
  if (stored < key.promised)
    return fmt::format("{} is {}, and {} was promised\n", key.name, stored, key.promised);
  if (stored > key.tried)
    return fmt::format("{} is {}, and {} was the last\n", key.name, stored, key.tried);
  return {};
}

class PoweredGroup {
 public:
  explicit PoweredGroup(const char* honesty)
      : group_(kReplicas, {}, {RKV_FORGETFUL_SERVER, honesty}) {
    for (std::size_t writer = 0; writer < kWriters; ++writer) {
      for (std::size_t i = 0; i < kKeys; ++i)
        keys_[writer][i].name = fmt::format("{}-{}", writer, i);
    }
    group_.start_all();
  }

  // Writes, a loss of all power, and a new start. What is wrong afterwards; empty: nothing.
  std::string round() {
    write_until_power_is_lost();
    leave_what_is_synced();
    // The last one in sync that comes back becomes the primary.
    for (const std::size_t number : in_any_order())
      group_.start(number);
    std::string wrong = look();
    if (wrong.empty()) wrong = wait_for_in_sync();
    return wrong.empty() ? wrong : wrong + group_.logs();
  }

 private:
  using Keys = std::array<Key, kKeys>;

  void write(Keys& keys, std::uint64_t seed) {
    Random random(seed);
    Client client = group_.client_of_all();
    while (!power_is_lost_.load()) {
      Key& key = keys[random.below(kKeys)];
      const std::string value =
          fmt::format("{} {}", ++key.tried, std::string(random.below(4000), 'v'));
      constexpr std::array kLevels = {Durability::kSync, Durability::kWal, Durability::kMemory};
      const Durability level = kLevels[random.below(kLevels.size())];
      const auto put = client.put_with(key.name, value,
                                       {.timeout = std::chrono::seconds(1), .durability = level});
      if (!put || level != Durability::kSync) continue;
      key.promised = key.tried;
      promises_.fetch_add(1);
    }
  }

  void write_until_power_is_lost() {
    power_is_lost_.store(false);
    const std::uint64_t enough = promises_.load() + 1 + random_.below(300);
    std::vector<std::thread> writers;
    for (Keys& keys : keys_)
      writers.emplace_back([this, &keys, seed = random_()] { write(keys, seed); });
    EXPECT_TRUE(holds_in_time([&] { return promises_.load() >= enough; })) << group_.logs();
    power_is_lost_.store(true);
    for (const std::size_t number : in_any_order())
      group_.process(number).signal(SIGUSR1);
    for (std::thread& writer : writers)
      writer.join();
  }

  void leave_what_is_synced() {
    for (std::size_t number = 0; number < kReplicas; ++number) {
      const Ended ended = group_.ended(number);
      if (ended.status == kDeposed) continue;  // what it had is safe
      EXPECT_EQ(ended.status, 0) << ended.output;
      std::filesystem::remove_all(group_.data(number));
      std::filesystem::rename(group_.data(number) + ".left", group_.data(number));
    }
  }

  std::array<std::size_t, kReplicas> in_any_order() {
    std::array<std::size_t, kReplicas> order{};
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random_);
    return order;
  }

  // A replica that was deposed starts again. Another one that has ended is wrong.
  std::string start_deposed() {
    for (std::size_t number = 0; number < kReplicas; ++number) {
      if (group_.process(number).running()) continue;
      const Ended ended = group_.ended(number);
      if (ended.status != kDeposed) return ended.output;
      group_.start(number);
    }
    return {};
  }

  std::string look() {
    std::string wrong;
    std::optional<Client> client;
    EXPECT_TRUE(holds_in_time([&] {
      wrong = start_deposed();
      for (std::size_t number = 0; number < kReplicas && wrong.empty() && !client; ++number) {
        if (auto connected = group_.connect(number, std::chrono::milliseconds(300)))
          client.emplace(std::move(*connected));
      }
      return client.has_value() || !wrong.empty();
    })) << group_.logs();
    for (std::size_t writer = 0; writer < kWriters && client && wrong.empty(); ++writer)
      wrong = look_at(keys_[writer], *client);
    return wrong;
  }

  std::string wait_for_in_sync() {
    std::string wrong;
    EXPECT_TRUE(holds_in_time([&] {
      wrong = start_deposed();
      return !wrong.empty() || group_.in_sync_count() == kReplicas;
    })) << group_.configuration()
        << group_.logs();
    return wrong;
  }

  static std::string look_at(const Keys& keys, Client& client) {
    std::string wrong;
    for (const Key& key : keys) {
      const auto got = client.get(key.name);
      if (!got && got.error().code != Code::kNotFound) return to_string(got.error());
      wrong += what_is_wrong(key, got ? number_in(got->value) : 0);
    }
    return wrong;
  }

  ReplicaGroup group_;
  Random random_{std::random_device{}()};
  std::array<Keys, kWriters> keys_;
  std::atomic<std::uint64_t> promises_{0};
  std::atomic<bool> power_is_lost_{false};
};

int rounds() {
  const char* given = std::getenv("RKV_POWER_ROUNDS");
  return given == nullptr ? 5 : std::atoi(given);
}

TEST(GroupPower, WhatWasSyncedSurvivesTheLossOfAllPower) {
  PoweredGroup group("honest");
  for (int round = 0; round < rounds(); ++round)
    ASSERT_EQ(group.round(), "") << "in round " << round;
}

TEST(GroupPower, DisksThatLieAboutTheirSyncsAreFoundOut) {
  PoweredGroup group("lying");
  std::string wrong;
  for (int round = 0; round < 20 && wrong.empty(); ++round)
    wrong = group.round();
  EXPECT_NE(wrong, "") << "nothing was found";
}

}  // namespace
}  // namespace rkv::testing_support
