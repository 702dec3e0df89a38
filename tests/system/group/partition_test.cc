// Three replicas on hosts of their own, between which ways are cut. Writes go on as long as two
// replicas reach each other and one of them reaches etcd, and nothing that was acknowledged is
// lost. Clients reach all replicas.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/system/group/hosts.h"
#include "tests/system/group/replica_group.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

enum Place { kPrimary, kBackup, kOtherBackup, kEtcd };

struct Partition {
  const char* name;
  std::vector<std::pair<Place, Place>> lost;  // what the first sends to the second
  bool changes = true;                        // the primary or who is in sync
};

// Both directions.
std::vector<std::pair<Place, Place>> between(std::vector<std::pair<Place, Place>> pairs) {
  const std::size_t count = pairs.size();
  for (std::size_t i = 0; i < count; ++i)
    if (pairs[i].second != kEtcd) pairs.emplace_back(pairs[i].second, pairs[i].first);
  return pairs;
}

std::vector<Partition> partitions() {
  return {
      {"ThePrimaryAndABackup", between({{kPrimary, kBackup}})},
      {"ThePrimaryAndBothBackups", between({{kPrimary, kBackup}, {kPrimary, kOtherBackup}})},
      {"TheBackups", between({{kBackup, kOtherBackup}}), false},
      {"ThePrimaryAndEtcd", between({{kPrimary, kEtcd}}), false},
      {"AllAndEtcd", between({{kPrimary, kEtcd}, {kBackup, kEtcd}, {kOtherBackup, kEtcd}}), false},
      {"ABackupAndEtcd", between({{kBackup, kEtcd}}), false},
      {"ThePrimaryAndEtcdAndABackup", between({{kPrimary, kEtcd}, {kPrimary, kBackup}})},
      {"ThePrimaryAndAll",
       between({{kPrimary, kEtcd}, {kPrimary, kBackup}, {kPrimary, kOtherBackup}})},
      {"ABackupAndAll", between({{kBackup, kEtcd}, {kBackup, kPrimary}, {kBackup, kOtherBackup}})},
      {"WhatThePrimarySendsToABackup", {{kPrimary, kBackup}}},
      {"WhatABackupSendsToThePrimary", {{kBackup, kPrimary}}},
      {"WhatBackupsSendToThePrimary", {{kBackup, kPrimary}, {kOtherBackup, kPrimary}}},
  };
}

std::vector<ReplicaGroup::Host> places_on(const Hosts& hosts) {
  std::vector<ReplicaGroup::Host> places;
  for (std::size_t host = 0; host < hosts.count(); ++host)
    places.push_back({.address = hosts.address(host), .enter = hosts.enter(host)});
  return places;
}

// Whether what the host sends to the address arrives: of two connections one at least.
bool reaches(const Hosts& hosts, std::size_t host, const std::string& address, int port) {
  std::vector<std::string> argv = hosts.enter(host);
  argv.insert(argv.end(), {"/usr/bin/timeout", "2", "/bin/bash", "-c",
                           fmt::format("exec 3<>/dev/tcp/{}/{}", address, port)});
  return run_program(argv).status == 0 || run_program(argv).status == 0;
}

TEST(Hosts, WhatIsCutIsLostUntilItIsHealed) {
  const Hosts hosts(2);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(listen(listener, 16), 0);  // at a port that is free, on all addresses
  sockaddr_in bound{};
  socklen_t length = sizeof bound;
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &length), 0);
  const int port = ntohs(bound.sin_port);
  EXPECT_TRUE(reaches(hosts, 0, Hosts::second_address(), port));
  hosts.cut(0, Hosts::second_address());
  EXPECT_FALSE(reaches(hosts, 0, Hosts::second_address(), port));
  EXPECT_TRUE(reaches(hosts, 0, Hosts::own_address(), port));
  EXPECT_TRUE(reaches(hosts, 1, Hosts::second_address(), port));
  hosts.heal();
  EXPECT_TRUE(reaches(hosts, 0, Hosts::second_address(), port));
  close(listener);
}

TEST(GroupOnHosts, ABackupWhosePortIsClosedIsNotInSyncAndTakesNothingOver) {
  constexpr std::size_t kWalled = 2;
  const Hosts hosts(3);
  ReplicaGroup group(places_on(hosts), Hosts::second_address());
  const std::string& address = group.address(kWalled);
  hosts.close_port(kWalled, 1 + std::stoi(address.substr(address.rfind(':') + 1)));
  group.start(0);
  ASSERT_TRUE(group.process(0).wait_for_output("kvserver ready", 240)) << group.logs();
  group.start(1);
  group.wait_for_in_sync(2);
  const std::string before = group.configuration();
  group.start(kWalled);
  const auto is_named_by = [&](std::size_t primary) {
    return group.process(primary).wait_for_output("n2 is connected, but cannot be reached", 60);
  };
  ASSERT_TRUE(is_named_by(0)) << group.logs();
  Client client = group.client_of_all();
  for (int i = 0; i < 500; ++i)
    ASSERT_TRUE(client.put(fmt::format("key-{}", i), "value"));
  EXPECT_EQ(group.configuration(), before) << group.logs();
  group.kill(0);
  EXPECT_EQ(group.wait_for_primary(0), 1U);
  ASSERT_TRUE(is_named_by(1)) << group.logs();
  EXPECT_EQ(group.in_sync_count(), 1U) << group.configuration();
  hosts.heal();
  group.wait_for_in_sync(2);
  group.kill(1);
  EXPECT_EQ(group.wait_for_primary(1), kWalled);
  EXPECT_EQ(client.get("key-499")->value, "value");
}

class Partitions : public ::testing::TestWithParam<std::tuple<Partition, int>> {
 protected:
  Partitions() {
    group_.start_all();
    client_.emplace(group_.client_of_all());
  }
  void cut(const Partition& partition) const {
    for (const auto& [from, to] : partition.lost)
      hosts_.cut(from, to == kEtcd ? Hosts::second_address() : hosts_.address(to));
  }
  // Writes until so many have been acknowledged, within the client's timeout each.
  void write(int count) {
    for (; count > 0; --count, ++written_) {
      const auto began = steady_clock::now();
      const auto put = client_->put(fmt::format("key-{}", written_), std::to_string(written_));
      longest_ = std::max(longest_, steady_clock::now() - began);
      ASSERT_TRUE(put) << to_string(put.error()) << client_->last_refusal() << group_.logs();
    }
  }
  void expect_all() {
    for (int i = 0; i < written_; ++i)
      EXPECT_EQ(client_->get(fmt::format("key-{}", i))->value, std::to_string(i));
  }

  const Hosts hosts_{3};
  ReplicaGroup group_{places_on(hosts_),
                      Hosts::second_address(),
                      {"--min-copies", std::to_string(std::get<1>(GetParam()))}};
  std::optional<Client> client_;
  int written_ = 0;
  steady_clock::duration longest_{};
};

TEST_P(Partitions, WritesGoOn) {
  const Partition& partition = std::get<0>(GetParam());
  ASSERT_NO_FATAL_FAILURE(write(50));
  const std::string before = group_.configuration();
  cut(partition);
  const auto began = steady_clock::now();
  ASSERT_NO_FATAL_FAILURE(write(50));
  if (partition.changes) {
    EXPECT_TRUE(holds_in_time([&] { return group_.configuration() != before; }));
  }
  // Longer than it takes to notice who is silent, and to try again to join.
  while (steady_clock::now() - began < milliseconds(5000))
    ASSERT_NO_FATAL_FAILURE(write(10));
  if (!partition.changes) {
    EXPECT_EQ(group_.configuration(), before) << group_.logs();
  }
  hosts_.heal();
  group_.wait_for_in_sync(3);
  ASSERT_NO_FATAL_FAILURE(write(50));
  expect_all();
  fmt::print("the longest write took {} ms\n",
             std::chrono::duration_cast<milliseconds>(longest_).count());
}

INSTANTIATE_TEST_SUITE_P(Between, Partitions,
                         ::testing::Combine(::testing::ValuesIn(partitions()),
                                            ::testing::Values(1, 2)),
                         [](const auto& tested) {
                           return fmt::format("{}WithCopies{}", std::get<0>(tested.param).name,
                                              std::get<1>(tested.param));
                         });

}  // namespace
}  // namespace rkv::testing_support
