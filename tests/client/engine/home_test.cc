// A client stays with the store that it was connected to first (HOME-1).
#include <string>
#include <vector>

#include "rkv/cluster.h"
#include "rkv/shared_client.h"
#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

struct StoreKind {
  bool in_group = false;
  std::uint32_t number = 0;
};

class HomeTest : public ClientTest {
 protected:
  HomeTest() {
    server_.answer = [](const Request&) { return Response{.version = Version::of(1, 7)}; };
  }
  // From the next connection on.
  void becomes(const StoreKind& store) {
    server_.memory = std::make_unique<ScriptedMemory>(++epoch_);
    server_.in_group = store.in_group;
    server_.store = store.number;
  }
  void lose_connection() { server_.die_at_send = 1; }
  // Moves a client of the first server to the second, and returns its result there.
  Result<std::uint64_t> move(const StoreKind& from, const StoreKind& to) {
    client_.reset();
    becomes(from);
    RKV_CHECK(client().put("key", "value"), "the first server serves");
    server_.before_connect = [this, to] {
      becomes(to);
      server_.before_connect = nullptr;
    };
    lose_connection();
    (void)client().put("key", "value");  // may be in doubt
    server_.requests = server_.pings = 0;
    return client().put("other", "value");
  }
  std::uint64_t epoch_ = ScriptedMemory::kEpoch;
};

TEST_F(HomeTest, AnotherStoreIsRefusedAndNothingIsAskedOfIt) {
  constexpr StoreKind kGroup{.in_group = true, .number = 7};
  constexpr StoreKind kOtherGroup{.in_group = true, .number = 8};
  constexpr StoreKind kDirectory{.number = 7};
  constexpr StoreKind kOtherDirectory{.number = 9};
  constexpr StoreKind kMemory{};
  const struct {
    StoreKind from, to;
    const char* says;
  } cases[] = {
      {kGroup, kOtherGroup, "of another replicated group"},
      {kGroup, kDirectory, "of no replicated group"},
      {kGroup, kMemory, "of no replicated group"},
      {kDirectory, kGroup, "of a replicated group, unlike"},
      {kMemory, kGroup, "of a replicated group, unlike"},
      {kDirectory, kOtherDirectory, "its data directory is another one"},
      {kDirectory, kMemory, "in memory only, unlike"},
  };
  for (const auto& each : cases) {
    const auto put = move(each.from, each.to);
    ASSERT_FALSE(put) << each.says;
    EXPECT_EQ(put.error().code, Code::kRejected) << each.says;
    EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
    EXPECT_EQ(server_.requests, 0) << each.says;
    EXPECT_NE(client().last_refusal().find(each.says), std::string::npos)
        << client().last_refusal();
    EXPECT_NE(client().last_refusal().find(options_.server), std::string::npos)
        << client().last_refusal();
    client_.reset();
    EXPECT_TRUE(client().put("key", "value")) << "a new client may use it";
  }
}

TEST_F(HomeTest, TheSameStoreIsUsedAgainAndWhatWasNeverKeptMayChange) {
  constexpr StoreKind kGroup{.in_group = true, .number = 7};
  constexpr StoreKind kDirectory{.number = 7};
  constexpr StoreKind kMemory{};
  EXPECT_TRUE(move(kGroup, kGroup));
  EXPECT_TRUE(move(kDirectory, kDirectory)) << "it was started again";
  EXPECT_TRUE(move(kMemory, kMemory)) << "it starts empty by design";
  EXPECT_TRUE(move(kMemory, kDirectory)) << "it has a directory now";
}

// Two groups in one list.
class TwoGroups : public HomeTest {
 protected:
  TwoGroups() {
    options_.server = "n1:1,m1:2";
    server_.refuse = [this](const std::string& address) -> std::optional<ConnectReject> {
      if (address == "n1:1" && is_dead_)
        return ConnectReject{.code = Code::kNotPrimary, .text = "a backup"};
      server_.in_group = true;
      server_.store = address.starts_with('n') ? 7 : 8;
      return std::nullopt;
    };
  }
  bool is_dead_ = false;
};

TEST_F(TwoGroups, TheOtherOneIsRefusedWithASentence) {
  ASSERT_TRUE(client().put("key", "value"));
  is_dead_ = true;
  lose_connection();
  (void)client().put("key", "value");
  server_.requests = server_.pings = 0;
  const Nanos before = server_.clock.now();
  const auto put = client().put("other", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kNotPrimary) << "another member may take over";
  EXPECT_EQ(server_.requests, 0);
  EXPECT_LE(server_.clock.now() - before, 1000 * kNanosPerMs);
  EXPECT_NE(client().last_refusal().find("m1:2: it is of another replicated group than"),
            std::string::npos)
      << client().last_refusal();
  EXPECT_NE(client().last_refusal().find("(n1:1)"), std::string::npos) << client().last_refusal();
  const auto got = client().get("key");
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().code, Code::kNotFound);
}

TEST_F(TwoGroups, AWrongMemberDoesNotEndTheServiceOfTheRightOnes) {
  options_.server = "n1:1,m1:2,n2:3";
  server_.remembers = true;
  ASSERT_TRUE(client().put("key", "value"));
  is_dead_ = true;
  lose_connection();
  EXPECT_TRUE(client().put("key", "value")) << client().last_refusal();
  EXPECT_EQ(server_.called, (std::vector<std::string>{"n1:1", "n1:1", "m1:2", "n2:3"}));
  is_dead_ = false;
  lose_connection();
  EXPECT_TRUE(client().put("key", "value"));
}

TEST_F(TwoGroups, ARedirectionLeadsNowhereElse) {
  options_.server = "n1:1";
  ASSERT_TRUE(client().put("key", "value"));
  const auto serves = server_.refuse;
  server_.refuse = [serves](const std::string& address) -> std::optional<ConnectReject> {
    if (address != "n1:1") return serves(address);
    return ConnectReject{.code = Code::kNotPrimary, .text = "a backup of", .primary = "m1:2"};
  };
  lose_connection();
  (void)client().put("key", "value");
  server_.requests = server_.pings = 0;
  EXPECT_FALSE(client().put("other", "value"));
  EXPECT_EQ(server_.requests, 0);
  EXPECT_EQ(server_.called.back(), "m1:2");
}

// Its connections are of one client.
TEST_F(TwoGroups, OfASharedClientAllConnectionsStay) {
  options_.timeout = std::chrono::milliseconds(1000);
  options_.server = "n1:1";
  const SteadyClock steady;
  auto shared = SharedClient::connect(options_, 1, std::make_shared<AnsweringTransport>(server_),
                                      &steady, nullptr);
  ASSERT_TRUE(shared) << to_string(shared.error());
  // Calls that block long have their own connection, which is made now.
  server_.refuse = [this](const std::string&) -> std::optional<ConnectReject> {
    server_.store = 8;
    return std::nullopt;
  };
  server_.requests = server_.pings = 0;
  const auto flushed = shared->flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code, Code::kRejected);
  EXPECT_EQ(server_.requests, 0);
}

}  // namespace
}  // namespace rkv
