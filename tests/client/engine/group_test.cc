// A client of a server in a replicated group: what it believes, what it waits for, and where it
// goes when it does not.
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "client/engine/group_watch.h"
#include "rkv/cluster.h"
#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

constexpr Nanos kMs = kNanosPerMs;

class GroupTest : public ClientTest, public ::testing::WithParamInterface<bool> {
 protected:
  GroupTest() {
    server_.in_group = true;
    server_.reads_at_once = GetParam();
    options_.server = "a:1,b:2";
    server_.answer = [this](const Request& request) { return answer(request); };
  }
  // The server's answers: it does not have the `missing` keys.
  std::optional<Response> answer(const Request& request) const {
    if (request.opcode != Opcode::kGet) return Response{.version = Version::of(1, 7)};
    Response missing;
    missing.code = static_cast<std::uint8_t>(Code::kNotFound);
    return missing;
  }
  int gets_asked() const {
    return static_cast<int>(std::ranges::count_if(
        server_.log, [](const std::string& entry) { return entry.starts_with("get "); }));
  }
  // The server at this address alone proves to be the primary.
  void only_believable(const std::string& address) {
    server_.before_connect = [this] { changes_ = true; };
    server_.before_read = [this, address] { server_.ticks = server_.called.back() == address; };
  }
  bool changes_ = false;
};

INSTANTIATE_TEST_SUITE_P(Reads, GroupTest, ::testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "AtOnce" : "Posted");
});

TEST_P(GroupTest, InSteadyStateAGetIsItsReadsAlone) {
  store("key", "value");
  ASSERT_EQ(client().get("key")->value, "value");
  const std::uint64_t reads = client().stats().rdma_reads;
  const int group_reads = server_.group_reads;
  const int pings = server_.pings;
  constexpr int kGets = 10'000;
  for (int i = 0; i < kGets; ++i) {
    server_.clock.advance(kMs);
    ASSERT_TRUE(client().get("key")) << i;
  }
  EXPECT_EQ(client().stats().rdma_reads - reads, kGets) << "one READ each";
  // 10 seconds: the tick is READ five times a second at most, and there is a ping every 2 s.
  EXPECT_LE(server_.group_reads - group_reads, 50);
  EXPECT_GE(server_.group_reads - group_reads, 40);
  EXPECT_LE(server_.pings - pings, 5);
  EXPECT_GE(server_.pings - pings, 4);
  EXPECT_EQ(gets_asked(), 0);
}

TEST_P(GroupTest, AMissIsAnsweredByTheServer) {
  const auto got = client().get("key");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kNotFound);
  EXPECT_EQ(gets_asked(), 1);
  const std::vector<std::string_view> keys = {"one", "two"};
  for (const auto& each : client().multi_get(keys))
    EXPECT_EQ(each.error().code, Code::kNotFound);
  EXPECT_EQ(gets_asked(), 3);
}

TEST_P(GroupTest, AValueIsShownWhenItIsReplicated) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  server_.memory->replicated = Version::of(1, 1);
  store("next", "value");  // version 2
  int looks = 0;
  server_.before_read = [&] {
    if (server_.memory->replicated < Version::of(1, 2) && ++looks == 12)
      server_.memory->replicated = Version::of(1, 2);
  };
  client_.reset();  // a new connection knows the lower mark only
  ASSERT_TRUE(client().get("key"));
  looks = 0;
  const auto got = client().get("next");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "value");
  EXPECT_EQ(looks, 12) << "it was shown before the mark had passed it";
}

TEST_P(GroupTest, AValueThatIsNeverReplicatedIsNotShown) {
  store("key", "value");
  server_.memory->replicated = Version{};
  const auto got = client().get("key");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kTimeout);
  const std::vector<std::string_view> keys = {"key", "key"};
  for (const auto& each : client().multi_get(keys))
    EXPECT_EQ(each.error().code, Code::kTimeout);
  EXPECT_EQ(server_.connects, 1) << "the server is the primary";
}

TEST_P(GroupTest, ValuesOfManyAwaitTheMarkTogether) {
  server_.memory->replicated = Version::of(1, 2);
  std::vector<std::string> keys;
  for (int i = 0; i < 6; ++i) {
    keys.push_back("key" + std::to_string(i));
    store(keys.back(), "value");
  }
  int looks = 0;
  server_.before_read = [&] {
    if (++looks == 30) server_.memory->replicated = Version::of(1, 6);
  };
  const std::vector<std::string_view> wanted(keys.begin(), keys.end());
  for (const auto& each : client().multi_get(wanted))
    EXPECT_TRUE(each);
  EXPECT_GE(looks, 30);
}

// A deposed primary: its memory answers, its tick stands still.
TEST_P(GroupTest, AServerWhoseTickStandsStillIsLeft) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  EXPECT_EQ(server_.called.back(), "a:1");
  only_believable("b:2");
  server_.clock.advance(100 * kMs);
  EXPECT_TRUE(client().get("key")) << "it was the primary when this call began";
  EXPECT_EQ(server_.called.back(), "a:1");
  server_.clock.advance(200 * kMs);
  const auto got = client().get("key", {.timeout = std::chrono::milliseconds(5000)});
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(server_.called.back(), "b:2");
}

TEST_P(GroupTest, NothingOfAServerThatIsNotBelievedIsShown) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  server_.ticks = false;
  server_.memory->set_group_line(0);
  server_.clock.advance(300 * kMs);
  const int writes = server_.requests - server_.pings;
  const Nanos before = server_.clock.now();
  EXPECT_FALSE(client().get("key"));
  const std::vector<std::string_view> keys = {"key", "other"};
  for (const auto& each : client().multi_get(keys))
    EXPECT_FALSE(each);
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_FALSE(client().remove("key"));
  EXPECT_FALSE(client().incr("key"));
  EXPECT_EQ(server_.requests - server_.pings, writes) << "no write was sent";
  EXPECT_LE(server_.clock.now() - before, 5 * 1100 * kMs) << "ENG-3";
}

// Each is the first operation after the tick has stopped: nothing else has noticed it.
TEST_P(GroupTest, EveryOperationIsCovered) {
  store("key", "value");
  const std::vector<std::string_view> keys = {"key", "key"};
  const std::vector<KeyValue> items = {{.key = "key", .value = "v"}};
  std::array<std::byte, 64> room{};
  const std::vector<std::function<bool()>> operations = {
      [&] { return client().get("key").has_value(); },
      [&] { return client().get_into("key", room).has_value(); },
      [&] { return client().multi_get(keys).front().has_value(); },
      [&] { return client().put("key", "v").has_value(); },
      [&] { return client().remove("key").has_value(); },
      [&] { return client().multi_put(items).front().has_value(); },
      [&] { return client().put_if_absent("key", "v").has_value(); },
      [&] { return client().flush().has_value(); },
  };
  for (std::size_t i = 0; i < operations.size(); ++i) {
    client_.reset();
    server_.ticks = true;
    ASSERT_TRUE(client().get("key")) << i;
    EXPECT_TRUE(operations[i]()) << i;
    server_.ticks = false;
    server_.clock.advance(300 * kMs);
    const int others = server_.requests - server_.pings;
    EXPECT_FALSE(operations[i]()) << i;
    EXPECT_EQ(server_.requests - server_.pings, others) << i;
  }
}

TEST_P(GroupTest, AServerThatAnswersNoPingIsLeft) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  server_.before_connect = [this] { server_.answers_pings = true; };
  server_.answers_pings = false;
  server_.clock.advance(2100 * kMs);
  const Nanos before = server_.clock.now();
  EXPECT_TRUE(client().get("key")) << "what is known of its clock is worth 12 s";
  EXPECT_EQ(server_.clock.now(), before) << "the call waited for the ping";
  EXPECT_EQ(server_.called.back(), "a:1");
  server_.clock.advance(70'000 * kMs);  // by now it may have drifted by more than a second
  const auto got = client().get("key", {.timeout = std::chrono::milliseconds(5000)});
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(server_.called.back(), "b:2");
}

TEST_P(GroupTest, AConnectionThatIsLostIsMadeAgainToTheSameServerFirst) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  server_.die_at_read = 1;
  ASSERT_TRUE(client().get("key"));
  EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "a:1"}));
}

// LINK-4: what the server refuses because it hands over is done by the next one.
TEST_P(GroupTest, AServerThatHandsOverIsLeftAndNothingIsInDoubt) {
  store("key", "value");
  server_.answer = [this](const Request& request) -> std::optional<Response> {
    if (server_.called.back() == "b:2") return answer(request);
    Response leaves;
    leaves.code = static_cast<std::uint8_t>(Code::kNotPrimary);
    return leaves;
  };
  server_.before_connect = [this] {
    const bool is_next = server_.connects != 0;
    server_.refuse = [is_next](const std::string& address) -> std::optional<ConnectReject> {
      if (!is_next || address == "b:2") return std::nullopt;
      return ConnectReject{.code = Code::kNotPrimary, .text = "a backup of", .primary = "b:2"};
    };
  };
  ASSERT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(client().stats().outcomes_asked, 0U);
  EXPECT_LT(server_.clock.now(), 20 * kMs);
}

TEST_P(GroupTest, ManyAtOnceGoOnWithTheNextServer) {
  int answers = 0;
  server_.answer = [this, &answers](const Request& request) -> std::optional<Response> {
    if (server_.called.back() == "b:2" || ++answers <= 5) return answer(request);
    Response leaves;
    leaves.code = static_cast<std::uint8_t>(Code::kNotPrimary);
    return leaves;
  };
  server_.before_connect = [this] {
    const bool is_next = server_.connects != 0;
    server_.refuse = [is_next](const std::string& address) -> std::optional<ConnectReject> {
      if (!is_next || address == "b:2") return std::nullopt;
      return ConnectReject{.code = Code::kNotPrimary, .text = "a backup of", .primary = "b:2"};
    };
  };
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i)
    keys.push_back("key" + std::to_string(i));
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = "value"});
  for (const auto& put : client().multi_put(items))
    EXPECT_TRUE(put) << to_string(put.error());
  EXPECT_EQ(server_.called.back(), "b:2");
  EXPECT_EQ(client().stats().outcomes_asked, 0U);
}

// It does not wait for a tick that will not come.
TEST_P(GroupTest, AServerThatHasGivenUpIsLeftAtOnce) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  server_.clock.advance(300 * kMs);  // the tick is too old
  server_.ticks = false;
  server_.memory->set_group_line(static_cast<Nanos>(kGivenUpTick));
  server_.before_connect = [this] { server_.ticks = true; };
  const Nanos before = server_.clock.now();
  ASSERT_TRUE(client().get("key"));
  EXPECT_LT(server_.clock.now() - before, 50 * kMs);
  EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "b:2"}));
}

TEST_P(GroupTest, TheClientFollowsThePrimary) {
  store("key", "value");
  server_.refuse = [](const std::string& address) -> std::optional<ConnectReject> {
    if (address == "x:9") return std::nullopt;
    return ConnectReject{.code = Code::kNotPrimary, .text = "a backup of", .primary = "x:9"};
  };
  ASSERT_TRUE(client().get("key"));
  EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "x:9"}));
}

TEST_P(GroupTest, AServerThatKnowsNoPrimaryOrRefusesIsPassedOver) {
  store("key", "value");
  options_.server = "a:1,b:2,c:3,d:4";
  server_.refuse = [](const std::string& address) -> std::optional<ConnectReject> {
    if (address == "a:1") return ConnectReject{.code = Code::kNotPrimary, .text = "a backup"};
    if (address == "b:2") return ConnectReject{.code = Code::kVersionMismatch, .text = "too new"};
    if (address == "c:3") return ConnectReject{.code = Code::kBusy, .text = "full"};
    return std::nullopt;
  };
  ASSERT_TRUE(client().get("key"));
  EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "b:2", "c:3", "d:4"}));
  EXPECT_LE(server_.clock.now(), kMs) << "there was no wait in between";
}

TEST_P(GroupTest, ServersThatDirectToEachOtherEndByTheDeadline) {
  server_.refuse = [](const std::string& address) -> std::optional<ConnectReject> {
    return ConnectReject{.code = Code::kNotPrimary,
                         .text = "a backup of",
                         .primary = address == "a:1" ? "b:2" : "a:1"};
  };
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kNotPrimary);
  EXPECT_LE(server_.called.size(), 80U);
  EXPECT_GE(server_.called.size(), 10U) << "the next primary would not be found soon";
  EXPECT_EQ(refusal_, "a:1: a backup of b:2; b:2: a backup of a:1");
}

TEST_P(GroupTest, AWriteWhoseAnswerWasLostIsNotMadeTwice) {
  ASSERT_TRUE(client().put("key", "before"));
  const int requests = server_.requests - server_.pings;
  server_.remembers = true;
  server_.dies_after = true;
  server_.die_at_send = 1;
  // Another server takes over: another epoch, which knows nothing of the write.
  server_.before_connect = [this] {
    server_.memory = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
    server_.remembers = false;
  };
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
  EXPECT_EQ(server_.requests - server_.pings, requests + 1);
  EXPECT_EQ(server_.questions.size(), 1U);
  ASSERT_TRUE(client().put("key", "value")) << "the next one is made";
}

// ASK-2.
TEST_P(GroupTest, TheNextPrimaryTellsWhatBecameOfAWrite) {
  ASSERT_TRUE(client().put("key", "before"));
  const int requests = server_.requests - server_.pings;
  server_.remembers = true;
  server_.dies_after = true;
  server_.die_at_send = 1;
  server_.before_connect = [this] {
    server_.memory = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
  };
  ASSERT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.requests - server_.pings, requests + 1);
  EXPECT_EQ(server_.questions.size(), 1U);
  EXPECT_EQ(client().stats().outcomes_recovered, 1U);
}

// A group that has replicated nothing yet: 0 would say that the write is of this very server.
TEST_P(GroupTest, TheNextPrimaryIsAskedAlsoAboutTheGroupsFirstWrites) {
  server_.memory->replicated = {};
  ASSERT_TRUE(client().put("key", "before"));
  server_.before_connect = [this] {
    server_.memory = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
  };
  server_.remembers = true;
  server_.dies_after = true;
  server_.die_at_send = 1;
  ASSERT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.questions.size(), 1U);
  EXPECT_EQ(server_.asked_since, Version{1});
  EXPECT_EQ(client().stats().outcomes_recovered, 1U);
}

TEST_P(GroupTest, AServerOfAnotherGroupIsNotAsked) {
  server_.store = 7;
  ASSERT_TRUE(client().put("key", "before"));
  server_.remembers = true;
  server_.dies_after = true;
  server_.die_at_send = 1;
  server_.before_connect = [this] {
    server_.memory = std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1);
    server_.store = 8;
  };
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
  EXPECT_TRUE(server_.questions.empty());
}

TEST_P(GroupTest, AClusterOfOneGroupFollowsItsPrimary) {
  store("key", "value");
  options_.timeout = std::chrono::milliseconds(1000);
  server_.refuse = [](const std::string& address) -> std::optional<ConnectReject> {
    if (address == "b:2") return std::nullopt;
    return ConnectReject{.code = Code::kNotPrimary, .text = "a backup"};
  };
  auto cluster = Cluster::connect(*ShardMap::parse("a:1"), options_,
                                  std::make_shared<AnsweringTransport>(server_), &server_.clock);
  ASSERT_TRUE(cluster) << to_string(cluster.error());
  EXPECT_EQ(server_.called, (std::vector<std::string>{"a:1", "b:2"}));
  const std::vector<std::string_view> keys = {"key", "key"};
  EXPECT_TRUE(cluster->multi_get(keys).front());
  server_.ticks = false;
  server_.clock.advance(300 * kMs);
  EXPECT_FALSE(cluster->multi_get(keys).front());
  // A map of several servers has its own addresses.
  server_.ticks = true;
  server_.refuse = nullptr;
  server_.called.clear();
  (void)Cluster::connect(*ShardMap::parse("x:1,y:2"), options_,
                         std::make_shared<AnsweringTransport>(server_), &server_.clock);
  EXPECT_EQ(server_.called.front(), "x:1");
}

TEST_P(GroupTest, ListsThatAreNoAddressesAreRefused) {
  for (const char* const bad : {"a:1,", "a:1,a:1", "a:1,b"}) {
    options_.server = bad;
    const auto connected = connect();
    ASSERT_FALSE(connected) << bad;
    EXPECT_EQ(connected.error().code, Code::kInvalidArgument);
  }
  EXPECT_TRUE(server_.called.empty());
}

}  // namespace
}  // namespace rkv
