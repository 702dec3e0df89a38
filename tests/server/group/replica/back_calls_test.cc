// Backups that can be called, refuse, have another secret, never answer, or are the primary itself.
#include "server/group/replica/back_calls.h"

#include <gmock/gmock.h>

#include "common/log.h"
#include "tests/server/group/replica/links_rig.h"

namespace rkv::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::uint64_t kPeer = 7;

class CallsToBackups : public LinksRig {
 protected:
  CallsToBackups() : LinksRig("a") {}
  void SetUp() override {
    set_event_sink([this](const LogEvent& event) {
      if (event.name.starts_with("backup_")) said_.emplace_back(event.name);
    });
  }
  void TearDown() override { set_event_sink({}); }
  // The backup whose port for replicas is this one.
  static Replica backup(std::uint16_t port) {
    return {.name = "b", .address = "127.0.0.1:" + std::to_string(port - 1), .epoch = 2};
  }
  std::uint16_t free_port() {
    listen(secret_);
    const std::uint16_t port = listener_->port();
    listener_.reset();
    return port;
  }
  // Repeats calls until something is known.
  void await_news() {
    known_.clear();
    ASSERT_TRUE(run_until([&] {
      clock_.advance(CallPauses::kLongest);
      calls_.step();
      return !known_.empty();
    }));
  }
  void expect_unreachable(const Replica& replica) {
    calls_.begin(kPeer, replica);
    ASSERT_NO_FATAL_FAILURE(await_news());
    EXPECT_THAT(known_, ElementsAre(Pair(kPeer, false)));
    EXPECT_THAT(said_, ElementsAre("backup_not_reachable"));
  }

  std::vector<std::pair<std::uint64_t, bool>> known_;
  std::vector<std::string> said_;
  BackCalls calls_{around_, [this](std::uint64_t peer, bool is_reachable) {
                     known_.emplace_back(peer, is_reachable);
                   }};
};

TEST_F(CallsToBackups, OneThatAnswersIsReachableAndIsCalledOnce) {
  listen(secret_);
  calls_.begin(kPeer, listening("b", 2));
  EXPECT_THAT(known_, IsEmpty()) << "not from within the call";
  ASSERT_TRUE(run_until([&] { return !known_.empty() && !taken_.empty(); }));
  EXPECT_THAT(known_, ElementsAre(Pair(kPeer, true)));
  called_.emplace(std::move(taken_.back()));
  called_->start();
  ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); })) << "the call ends";
  EXPECT_THAT(called_->got, IsEmpty());
  clock_.advance(CallPauses::kLongest);
  calls_.step();
  io_.restart();
  io_.poll();
  EXPECT_EQ(known_.size(), 1U);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(CallsToBackups, OneThatRefusesIsCalledUntilItIsReachable) {
  const std::uint16_t port = free_port();
  ASSERT_NO_FATAL_FAILURE(expect_unreachable(backup(port)));
  for (int turns = 0; turns != 10; ++turns) {
    clock_.advance(CallPauses::kLongest);
    calls_.step();
    io_.restart();
    io_.run_one_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(known_.size(), 1U) << "it is said once";
  calls_.forget(kPeer);
  calls_.begin(kPeer + 1, backup(port));  // it has connected again
  ASSERT_NO_FATAL_FAILURE(await_news());
  EXPECT_THAT(known_, ElementsAre(Pair(kPeer + 1, false)));
  EXPECT_EQ(said_.size(), 1U) << "the log says it once";
  std::string problem;
  const auto opened = ReplicaListener::listen(
      io_, "127.0.0.1:" + std::to_string(port), secret_,
      {.on_connection = [](std::unique_ptr<ReplicaConnection>) {}}, &problem);
  ASSERT_TRUE(opened) << problem;
  ASSERT_NO_FATAL_FAILURE(await_news());
  EXPECT_THAT(known_, ElementsAre(Pair(kPeer + 1, true)));
  EXPECT_THAT(said_, ElementsAre("backup_not_reachable", "backup_reachable"));
}

TEST_F(CallsToBackups, AStrangerAtItsPortIsNotTheBackup) {
  listen(another_secret());
  EXPECT_NO_FATAL_FAILURE(expect_unreachable(listening("b", 2)));
}

TEST_F(CallsToBackups, OneThatNeverAnswersIsUnreachable) {
  asio::ip::tcp::acceptor silent(io_, {asio::ip::address_v4::loopback(), 0});
  EXPECT_NO_FATAL_FAILURE(expect_unreachable(backup(silent.local_endpoint().port())));
}

TEST_F(CallsToBackups, AnAddressOfThePrimaryIsNotTheBackups) {
  listen(secret_);
  const Replica me = listening("a", 1);
  BackCalls calls(
      {io_, clock_, membership_, me, directory_.path(), secret_},
      [this](std::uint64_t peer, bool is_reachable) { known_.emplace_back(peer, is_reachable); });
  calls.begin(kPeer, listening("b", 2));
  ASSERT_TRUE(run_until([&] {
    clock_.advance(CallPauses::kLongest);
    calls.step();
    return !known_.empty();
  }));
  EXPECT_THAT(known_, ElementsAre(Pair(kPeer, false)));
}

TEST_F(CallsToBackups, NothingIsSaidOfOneThatHasLeft) {
  listen(secret_);
  calls_.begin(kPeer, listening("b", 2));
  calls_.forget(kPeer);
  calls_.begin(kPeer + 1, listening("b", 2));
  ASSERT_TRUE(run_until([&] { return !known_.empty(); }));
  EXPECT_THAT(known_, ElementsAre(Pair(kPeer + 1, true)));
}

}  // namespace
}  // namespace rkv::server::test
