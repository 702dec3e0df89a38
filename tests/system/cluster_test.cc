// Three servers as one store: everything a client does, a server that dies and comes back, and
// lists that are wrong.
#include "rkv/cluster.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "common/random.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kShort{1500};
// How much later a call may end on a machine that is busy with other things.
constexpr milliseconds kSlack{4000};

bool is_loss(Code code) {
  return code == Code::kDisconnected || code == Code::kUnreachable || code == Code::kTimeout ||
         code == Code::kBusy;
}

class ClusterOfThree : public ::testing::Test {
 protected:
  static constexpr std::size_t kServers = 3;

  ClusterOfThree() {
    for (std::size_t i = 0; i < kServers; ++i) {
      servers_.push_back(std::make_unique<Server>(std::vector<std::string>{
          "--memory", "32MiB", "--data-dir", scratch_.path(fmt::format("data-{}", i))}));
      list_ += (i == 0 ? "" : ",") + servers_.back()->address();
    }
  }
  ShardMap map() const { return *ShardMap::parse(list_); }
  static ClientOptions options() {
    return {.timeout = std::chrono::seconds(60),
            .transport = test_transport(),
            .connect_timeout = std::chrono::seconds(20)};
  }
  Cluster connect() {
    std::string problem;
    auto cluster = Cluster::connect(map(), options(), &problem);
    EXPECT_TRUE(cluster) << problem;
    return std::move(*cluster);
  }
  Ended client(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {RKV_KVCLIENT, "--servers", list_});
    return run_program(std::move(arguments), 300);
  }
  static std::vector<std::string> names(std::size_t count, const char* prefix = "key") {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(fmt::format("{}-{}", prefix, i));
    return all;
  }
  static void fill(Cluster& cluster, const std::vector<std::string>& keys) {
    std::vector<KeyValue> items;
    for (const std::string& key : keys)
      items.push_back({.key = key, .value = key});
    for (const auto& put : cluster.multi_put(items, WriteOptions{.durability = Durability::kWal}))
      ASSERT_TRUE(put) << to_string(put.error());
  }
  // Each of the keys has itself as its value; those of the server that is gone fail.
  static void expect_all(Cluster& cluster, const std::vector<std::string>& keys,
                         std::optional<std::size_t> gone, milliseconds timeout) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    const auto before = steady_clock::now();
    const auto values = cluster.multi_get(views, timeout);
    EXPECT_LT(steady_clock::now() - before, timeout + kSlack);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (cluster.map().shard_of(keys[i]) == gone) {
        ASSERT_FALSE(values[i]) << keys[i];
        ASSERT_TRUE(is_loss(values[i].error().code)) << to_string(values[i].error());
      } else {
        ASSERT_TRUE(values[i]) << keys[i] << ": " << to_string(values[i].error());
        ASSERT_EQ(values[i]->value, keys[i]);
      }
    }
  }

  ScratchDirectory scratch_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::string list_;
};

TEST_F(ClusterOfThree, EveryOperationGoesToTheKeysServer) {
  Cluster cluster = connect();
  std::vector<Client> alone;
  for (auto& server : servers_)
    alone.push_back(server->client());
  std::set<std::size_t> used;
  for (const std::string& key : names(30)) {
    const std::size_t home = cluster.map().shard_of(key);
    used.insert(home);
    const auto version = cluster.put_if_absent(key, "one");
    ASSERT_TRUE(version) << to_string(version.error());
    for (std::size_t i = 0; i < kServers; ++i)
      ASSERT_EQ(alone[i].get(key).has_value(), i == home) << key;
    EXPECT_EQ(cluster.put_if_absent(key, "two").error().code, Code::kConflict);
    ASSERT_TRUE(cluster.put_if_version(key, "three", *version));
    EXPECT_EQ(cluster.remove_if_version(key, *version).error().code, Code::kConflict);
    std::array<std::byte, 16> into;
    EXPECT_EQ(cluster.get_into(key, into)->bytes, 5U);
    EXPECT_EQ(cluster.get_into(key, std::span(into).first(2)).error().code, Code::kTooLarge);
    EXPECT_EQ(cluster.needed_bytes(), 5U);
    EXPECT_EQ(*cluster.client_of(key), *cluster.client_at(home));
    EXPECT_EQ((*cluster.client_of(key))->get(key)->value, "three");
    ASSERT_TRUE(cluster.remove(key));
    EXPECT_EQ(cluster.get(key).error().code, Code::kNotFound);
    EXPECT_EQ(cluster.incr(key, 5)->number, 5);
    EXPECT_EQ(cluster.decr(key)->number, 4);
    EXPECT_TRUE(cluster.counter_cas(key, 4, 9)->done);
    EXPECT_EQ(cluster.get_counter(key)->number, 9);
  }
  EXPECT_EQ(used.size(), kServers);
  std::vector<OneSidedCounter> counters;
  for (const std::string& key : names(9, "cell"))
    counters.push_back(*cluster.open_counter(key));
  std::vector<CounterAddition> additions;
  for (OneSidedCounter& counter : counters)
    additions.push_back({.counter = &counter, .summand = 3});
  for (const auto& sum : cluster.multi_incr(additions))
    EXPECT_EQ(sum->number, 3) << to_string(sum.error());
  EXPECT_EQ(cluster.incr(counters.front())->number, 4);
  for (const auto& flushed : cluster.flush())
    EXPECT_TRUE(flushed);
  for (const auto& pong : cluster.ping())
    EXPECT_TRUE(pong);
  EXPECT_EQ(cluster.server_stats().size(), kServers);
  EXPECT_GE(cluster.stats().gets, 90U);
}

TEST_F(ClusterOfThree, ManyKeysComeInOrderEachWithItsOwnStatus) {
  Cluster cluster = connect();
  const auto keys = names(2000);
  fill(cluster, keys);
  std::vector<std::string> asked;
  for (std::size_t i = 0; i < keys.size(); ++i)
    asked.push_back(i % 7 == 3 ? "absent-" + keys[i] : i % 11 == 5 ? "" : keys[i]);
  const std::vector<std::string_view> views(asked.begin(), asked.end());
  for (int round = 0; round < 2; ++round) {
    const auto values = cluster.multi_get(views);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      if (asked[i].empty()) {
        ASSERT_EQ(values[i].error().code, Code::kInvalidArgument);
      } else if (asked[i] != keys[i]) {
        ASSERT_EQ(values[i].error().code, Code::kNotFound);
      } else {
        ASSERT_TRUE(values[i]) << to_string(values[i].error());
        ASSERT_EQ(values[i]->value, keys[i]);
      }
    }
  }
  const std::string large(std::size_t{3} << 20, 'L');
  const std::string too_large((std::size_t{16} << 20) + 1, 'L');
  std::vector<KeyValue> items;
  for (std::size_t i = 0; i < 12; ++i)
    items.push_back({.key = keys[i], .value = i == 6 ? too_large : large});
  const auto puts = cluster.multi_put(items);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i == 6) {
      EXPECT_EQ(puts[i].error().code, Code::kTooLarge);
    } else {
      EXPECT_TRUE(puts[i]) << to_string(puts[i].error());
    }
  }
  const auto got = cluster.multi_get(std::span(views).first(1));
  EXPECT_EQ(got.front()->value, large);
}

TEST_F(ClusterOfThree, AFlushIsStaleForTheServerThatHasRestarted) {
  Cluster cluster = connect();
  for (const std::string& key : names(100))
    ASSERT_TRUE(cluster.put(key, key));
  servers_[1]->kill();
  servers_[1]->start();
  const auto flushed = cluster.flush();
  EXPECT_TRUE(flushed[0]);
  ASSERT_FALSE(flushed[1]);
  EXPECT_EQ(flushed[1].error().code, Code::kStale);
  EXPECT_TRUE(flushed[2]);
  for (const auto& again : cluster.flush())
    EXPECT_TRUE(again) << to_string(again.error());
}

TEST_F(ClusterOfThree, ADeadServerFailsItsOwnKeysAndComesBack) {
  Cluster cluster = connect();
  const auto keys = names(1000);
  fill(cluster, keys);
  expect_all(cluster, keys, std::nullopt, options().timeout);
  servers_[1]->kill();
  expect_all(cluster, keys, 1, kShort);
  expect_all(cluster, keys, 1, kShort);
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = key});
  const auto before = steady_clock::now();
  const auto puts = cluster.multi_put(items, kShort);
  EXPECT_LT(steady_clock::now() - before, kShort + kSlack);
  for (std::size_t i = 0; i < keys.size(); ++i)
    ASSERT_EQ(puts[i].has_value(), cluster.map().shard_of(keys[i]) != 1) << keys[i];
  const auto flushed = cluster.flush(kShort);
  EXPECT_TRUE(flushed[0]);
  EXPECT_FALSE(flushed[1]);
  EXPECT_TRUE(flushed[2]);
  const auto page = cluster.scan({.timeout = kShort});
  ASSERT_FALSE(page);
  EXPECT_EQ(cluster.last_server().address, servers_[1]->address());

  // Opened while it is down: the same.
  Cluster late = connect();
  expect_all(late, keys, 1, kShort);
  servers_[1]->start();
  expect_all(cluster, keys, std::nullopt, options().timeout);
  expect_all(late, keys, std::nullopt, options().timeout);
}

// It takes connections and answers no request: READs go on, and the others' requests.
// Over verbs, where nobody answers who has the address: not even the device is found that leads
// there.
TEST_F(ClusterOfThree, AHostThatIsNotThereFailsItsOwnKeys) {
  const std::string good = servers_.front()->address();
  const std::string network = good.substr(0, good.rfind('.'));
  const std::string nobody = network + (good.find(".254:") == std::string::npos ? ".254" : ".253");
  ClientOptions options = ClusterOfThree::options();
  options.timeout = std::chrono::seconds(10);
  std::string problem;
  const auto before = steady_clock::now();
  auto cluster = Cluster::connect(*ShardMap::parse(nobody + ":7471," + good), options, &problem);
  ASSERT_TRUE(cluster) << problem;
  EXPECT_LT(steady_clock::now() - before, options.timeout + kSlack);
  const auto keys = names(100);
  const std::size_t gone = cluster->map().servers()[0].address == good ? 1 : 0;
  for (const std::string& key : keys) {
    if (cluster->map().shard_of(key) == gone) continue;
    ASSERT_TRUE(cluster->put(key, key));
  }
  expect_all(*cluster, keys, gone, kShort);
  const auto lost = std::ranges::find(
      keys, gone, [&](const std::string& key) { return cluster->map().shard_of(key); });
  const auto begin = steady_clock::now();
  const auto put = cluster->put(*lost, "v", kShort);
  EXPECT_LT(steady_clock::now() - begin, kShort + kSlack);
  ASSERT_FALSE(put);
  EXPECT_TRUE(is_loss(put.error().code)) << to_string(put.error());
}

TEST_F(ClusterOfThree, AServerThatHangsDelaysNoOther) {
  Cluster cluster = connect();
  const auto keys = names(600);
  fill(cluster, keys);
  servers_[2]->process().signal(SIGSTOP);
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = key});
  std::size_t others = 0;
  steady_clock::time_point others_done;
  const auto before = steady_clock::now();
  cluster.multi_put_each(items,
                         [&](std::size_t i, const Result<std::uint64_t>& put) {
                           if (cluster.map().shard_of(keys[i]) == 2) {
                             EXPECT_FALSE(put);
                             EXPECT_EQ(put.error().code, Code::kTimeout);
                           } else {
                             EXPECT_TRUE(put) << to_string(put.error());
                             ++others;
                             others_done = steady_clock::now();
                           }
                         },
                         {.timeout = std::chrono::seconds(10)});
  EXPECT_GT(others, 300U);
  EXPECT_LT(others_done - before, std::chrono::seconds(8));  // not at the deadline
  servers_[2]->process().signal(SIGCONT);
  expect_all(cluster, keys, std::nullopt, options().timeout);
}

TEST_F(ClusterOfThree, AScanIsInOrderOverAllServers) {
  Cluster cluster = connect();
  std::map<std::string, std::string> expected;
  Random random(3);
  std::vector<KeyValue> items;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t length = i % 500 == 7 ? 100'000 : random.below(400);
    expected[fmt::format("{:x}", random())] = std::string(length, 'v');
  }
  for (const auto& [key, value] : expected)
    items.push_back({.key = key, .value = value});
  for (const auto& put : cluster.multi_put(items))
    ASSERT_TRUE(put) << to_string(put.error());
  for (const bool reverse : {false, true}) {
    std::vector<std::pair<std::string, std::string>> all(expected.begin(), expected.end());
    if (reverse) std::ranges::reverse(all);
    Scanner scanner(cluster, {.reverse = reverse});
    std::size_t next = 0;
    for (const ScanEntry& entry : scanner) {
      ASSERT_LT(next, all.size());
      ASSERT_EQ(entry.key, all[next].first);
      ASSERT_EQ(entry.value, all[next].second);
      ++next;
    }
    ASSERT_TRUE(scanner.status()) << to_string(scanner.status().error());
    EXPECT_EQ(next, all.size());
    // Pages of a few, by token, each token with a cluster of its own; some by a client alone.
    std::string token;
    next = 0;
    for (int page = 0; page < 20; ++page) {
      const auto got =
          cluster.scan({.reverse = reverse, .keys_only = true, .limit = 7, .token = token});
      ASSERT_TRUE(got) << to_string(got.error());
      ASSERT_EQ(got->entries().size(), 7U);
      for (const ScanEntry& entry : got->entries())
        ASSERT_EQ(entry.key, all[next++].first);
      token = got->token();
      ASSERT_FALSE(token.empty());
    }
    EXPECT_EQ(cluster.scan({.reverse = !reverse, .token = token}).error().code,
              Code::kInvalidArgument);
    EXPECT_TRUE(servers_[0]->client().scan({.reverse = reverse, .token = token}));
  }
}

TEST_F(ClusterOfThree, FromTheShell) {
  std::ofstream records(scratch_.path("records.tsv"));
  for (const std::string& key : names(700))
    records << key << '\t' << key << "-value\n";
  records.close();
  EXPECT_EQ(client({"load", "--verify", scratch_.path("records.tsv")}).status, 0);
  EXPECT_EQ(client({"dump", scratch_.path("dumped.tsv")}).status, 0);
  EXPECT_EQ(client({"verify", scratch_.path("dumped.tsv")}).status, 0);
  EXPECT_EQ(client({"get", "key-5"}).output, "key-5-value");
  const std::string more = "key-0\nkey-1\nkvclient: more entries follow: continue with --token ";
  const std::string two = client({"scan", "--limit", "2", "--keys-only"}).output;
  ASSERT_TRUE(two.starts_with(more)) << two;
  const std::string token = two.substr(more.size(), two.size() - more.size() - 1);
  EXPECT_EQ(client({"scan", "--end", "", "--token", token, "--keys-only"}).output.find("key-10\n"),
            0U);
  const auto stats = nlohmann::json::parse(client({"--output", "json", "stats"}).output);
  std::uint64_t sum = 0;
  ASSERT_EQ(stats["servers"].size(), kServers);
  for (const auto& server : stats["servers"]) {
    EXPECT_GT(server["records"], 150);
    sum += server["records"].get<std::uint64_t>();
  }
  EXPECT_EQ(sum, 700U);
  EXPECT_EQ(nlohmann::json::parse(client({"--output", "json", "flush"}).output)["servers"].size(),
            kServers);
  EXPECT_EQ(client({"ping"}).status, 0);
  EXPECT_EQ(client({"incr", "visits"}).output, "1\n");

  const std::string file = scratch_.path("servers");
  std::ofstream(file) << "# the store\n"
                      << servers_[2]->address() << "\n"
                      << servers_[0]->address() << " # the first\n\n"
                      << servers_[1]->address();
  const Ended from_file = run_program({RKV_KVCLIENT, "--servers-file", file, "get", "key-5"});
  EXPECT_EQ(from_file.output, "key-5-value");
  servers_[1]->kill();
  const Ended one_gone = client({"--timeout", "1s", "--output", "json", "flush"});
  EXPECT_EQ(one_gone.status, 3) << one_gone.output;
  EXPECT_NE(one_gone.output.find("kvclient: " + servers_[1]->address()), std::string::npos)
      << one_gone.output;
}

TEST_F(ClusterOfThree, WrongListsAreToldInOneSentence) {
  const std::string a = servers_[0]->address();
  const std::string port = a.substr(a.rfind(':'));
  const std::string file = scratch_.path("wrong");
  std::ofstream(file) << a << "\nnowhere\n";
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> table = {
      {{"--servers", ""}, 2, "empty"},
      {{"--servers", a + "," + a}, 2, "two servers of the list have the address " + a},
      {{"--servers", a + ",nowhere"}, 2, "'nowhere'"},
      {{"--servers", a + ",no-such-host.invalid:7471"}, 3, "no-such-host.invalid:7471"},
      {{"--servers-file", scratch_.path("absent")}, 2, "absent"},
      {{"--servers-file", file}, 2, "line 2: 'nowhere'"},
      {{"--servers-file", scratch_.path(".")}, 2, "cannot read"},
      {{"--servers-file", "/dev/zero"}, 2, "64 KiB"},
      {{"--server", a, "--servers", a}, 2, "give one of them"},
      {{"--servers", "127.0.0.1:1,127.0.0.1:2"}, 3, "none of the 2 servers answers"}};
  for (const auto& [arguments, status, says] : table) {
    std::vector<std::string> argv = {RKV_KVCLIENT, "--timeout", "3s"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    argv.emplace_back("ping");
    const Ended ended = run_program(argv);
    SCOPED_TRACE(fmt::format("{}", fmt::join(arguments, " ")));
    EXPECT_EQ(ended.status, status) << ended.output;
    EXPECT_NE(ended.output.find(says), std::string::npos) << ended.output;
    EXPECT_EQ(std::ranges::count(ended.output, '\n'), 1) << ended.output;
  }
  // Two names of one process: seen by its epoch.
  if (test_transport() != Transport::kShm) return;
  const Ended twins = run_program({RKV_KVCLIENT, "--servers", a + ",localhost" + port, "ping"});
  EXPECT_EQ(twins.status, 2) << twins.output;
  EXPECT_NE(twins.output.find("the same kvserver"), std::string::npos) << twins.output;
}

// The possible values of a key: after a write of unknown outcome, the old or the new one.
class Model {
 public:
  using State = std::optional<std::string>;
  void wrote(const std::string& key, const std::string& value, const Status& told) {
    if (told) {
      states_[key] = {value};
    } else if (told.error().write == WriteOutcome::kMayHaveHappened) {
      if (!states_.contains(key)) states_[key] = {std::nullopt};
      states_[key].insert(value);
    }
  }
  bool allows(const std::string& key, const State& seen) const {
    const auto found = states_.find(key);
    return found == states_.end() ? !seen : found->second.contains(seen);
  }

 private:
  std::map<std::string, std::set<State>> states_;
};

// Servers are killed in the middle of calls, at an instant drawn from the seed.
TEST_F(ClusterOfThree, ResultsAreInOrderAndTrueWhileServersAreKilled) {
  const char* const given = std::getenv("RKV_CLUSTER_SEED");
  const std::uint64_t seed = given != nullptr ? std::stoull(given) : 20261122;
  SCOPED_TRACE(fmt::format("repeat with RKV_CLUSTER_SEED={}", seed));
  Random random(seed);
  Cluster cluster = connect();
  Model model;
  const auto keys = names(400);
  for (int round = 0; round < 8; ++round) {
    const std::size_t victim = random.below(kServers);
    const std::uint64_t after = random.below(keys.size() / 3);
    bool killed = false;
    std::uint64_t seen = 0;
    const auto maybe_kill = [&] {
      if (seen++ >= after && !std::exchange(killed, true)) servers_[victim]->kill();
    };
    const bool writes = round % 2 == 0;
    // The time-out is also for the servers that live, which share the processors with other tests.
    const milliseconds timeout{3000};
    std::vector<std::string> values;
    std::vector<KeyValue> items;
    for (const std::string& key : keys)
      values.push_back(fmt::format("{}={}", key, round));
    for (std::size_t i = 0; i < keys.size(); ++i)
      items.push_back({.key = keys[i], .value = values[i]});
    std::vector<int> visits(keys.size());
    const auto judge = [&](std::size_t i, bool done, Code code) {
      ++visits[i];
      if (cluster.map().shard_of(keys[i]) != victim) {
        EXPECT_TRUE(done) << keys[i] << ": " << to_string(code);
      } else if (!done) {
        EXPECT_TRUE(is_loss(code)) << keys[i] << ": " << to_string(code);
      }
      maybe_kill();
    };
    if (writes) {
      cluster.multi_put_each(items,
                             [&](std::size_t i, const Result<std::uint64_t>& put) {
                               model.wrote(keys[i], values[i],
                                           put ? Status{} : std::unexpected(put.error()));
                               judge(i, put.has_value(), put ? Code::kInternal : put.error().code);
                             },
                             {.durability = Durability::kWal, .timeout = timeout});
    } else {
      const std::vector<std::string_view> views(keys.begin(), keys.end());
      cluster.multi_get_into(
          views,
          [&](std::size_t i, const Result<ValueView>& got) {
            EXPECT_TRUE(!got || model.allows(keys[i], std::string(got->value))) << keys[i];
            const bool answered = got || got.error().code == Code::kNotFound;
            judge(i, answered, answered ? Code::kInternal : got.error().code);
          },
          timeout);
    }
    for (const int count : visits)
      ASSERT_EQ(count, 1);
    if (killed) servers_[victim]->start();
  }
  for (const std::string& key : keys) {
    const auto got = cluster.get(key);
    ASSERT_TRUE(got || got.error().code == Code::kNotFound) << to_string(got.error());
    EXPECT_TRUE(model.allows(key, got ? Model::State(got->value) : std::nullopt)) << key;
  }
}

}  // namespace
}  // namespace rkv::testing_support
