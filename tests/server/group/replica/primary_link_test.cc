// A backup's connection to a primary that speaks, says nothing, lies, is replaced or has no log for
// it. The test is the primary.
#include "server/group/replica/primary_link.h"

#include <gmock/gmock.h>

#include "tests/server/group/replica/links_rig.h"

namespace rkv::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class LinkToThePrimary : public LinksRig {
 protected:
  LinkToThePrimary() : LinksRig("b") {}
  void SetUp() override {
    listen(a_secret());
    first_ = *joined(*founded(kLinksGroup, listening("a", 1), 1), me_);
    read(first_);
    ASSERT_EQ(membership_.role(), Membership::Role::kFollowing);
  }
  // Waits for the replica's connection: called_.
  void connect() {
    link_.step(true);
    ASSERT_TRUE(run_until([&] { return !taken_.empty(); }));
    called_.emplace(std::move(taken_.front()));
    taken_.clear();
    called_->start();
  }
  void connect_and_greet() {
    ASSERT_NO_FATAL_FAILURE(connect());
    EXPECT_EQ(take<Hello>(*called_).replica.epoch, me_.epoch);
    EXPECT_TRUE(link_.is_connected());
  }
  void expect_dropped() {
    ASSERT_TRUE(run_until([&] { return !link_.is_connected(); }));
    ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
  }

  GroupConfiguration first_;
  bool has_ended_ = false;
  std::vector<Wanted> received_;
  std::vector<std::string> copied_;
  PrimaryLink link_{around_,
                    {.has_ended = [this] { return has_ended_; },
                     .received = [this](const Wanted& wanted) { received_.push_back(wanted); },
                     .copied = [this](const auto& problem) { copied_.push_back(problem); }}};
};

TEST_F(LinkToThePrimary, SaysHelloAndAnswersWhatComes) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const Wanted wanted{.wal = 5, .sync = 4};
  called_->connection->send(
      encoded(Entries{.term = 1, .number = 1, .previous = {}, .marks = {}, .wanted = wanted}));
  ASSERT_TRUE(run_until([&] { return !received_.empty(); }));
  EXPECT_THAT(received_, ElementsAre(wanted));
  link_.step(true);
  EXPECT_EQ(take<Answer>(*called_).number, 1U);
}

// A backup that answers each message of a backlog never catches up with a busy primary.
TEST_F(LinkToThePrimary, SaysOnceWhatABacklogWants) {
  constexpr std::uint64_t kMessages = 500;
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  std::vector<ReplicaConnection::SharedBytes> backlog;
  for (std::uint64_t number = 1; number <= kMessages; ++number) {
    backlog.push_back(encoded(Entries{.term = 1,
                                      .number = number,
                                      .previous = {},
                                      .marks = {},
                                      .wanted = {.wal = number, .sync = 0}}));
  }
  called_->connection->send(backlog);
  ASSERT_TRUE(run_until([&] { return !received_.empty() && received_.back().wal == kMessages; }));
  EXPECT_LT(received_.size(), kMessages / 10);
  link_.step(true);
  EXPECT_EQ(take<Answer>(*called_).number, kMessages);
}

TEST_F(LinkToThePrimary, ConnectsOnlyIfItMay) {
  link_.step(false);
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  link_.drop("the test wants it");
  clock_.advance(kNanosPerSecond);
  link_.step(false);
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
}

// It is left out, or takes over, if the primary does not hear it for the failure time.
TEST_F(LinkToThePrimary, DoesNotPauseForLongInSync) {
  for (int round = 0; round < 6; ++round) {
    ASSERT_NO_FATAL_FAILURE(connect_and_greet());
    link_.drop("the test wants it");
    clock_.advance(CallPauses::kFirst);
  }
}

TEST_F(LinkToThePrimary, PausesLongerEachTimeOutOfSync) {
  read(*left(first_, me_));
  Nanos pause = CallPauses::kFirst;
  for (int round = 0; round < 3; ++round, pause *= 2) {
    ASSERT_NO_FATAL_FAILURE(connect_and_greet());
    link_.drop("the test wants it");
    clock_.advance(pause - 1);
    link_.step(true);
    for (int turn = 0; turn < 10; ++turn) {
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(10));
    }
    EXPECT_THAT(taken_, IsEmpty()) << "it calls too early";
    clock_.advance(1);
  }
}

TEST_F(LinkToThePrimary, LeavesAPrimaryThatIsSilentAndComesBack) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  clock_.advance(5 * kNanosPerSecond);
  link_.step(true);
  EXPECT_TRUE(link_.is_connected());
  clock_.advance(1);
  link_.step(true);
  EXPECT_FALSE(link_.is_connected());
  clock_.advance(50 * kNanosPerMs);
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
}

TEST_F(LinkToThePrimary, LeavesAPrimaryThatIsReplaced) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const Replica third{.name = "c", .address = "127.0.0.1:1", .epoch = 3};
  read(*taken_over(*joined(first_, third), third, 1));
  link_.step(false);
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
}

TEST_F(LinkToThePrimary, LeavesAPrimaryThatSendsWhatNoPrimarySends) {
  const auto block = std::make_shared<std::vector<std::byte>>(64, std::byte{1});
  const std::vector<ReplicaConnection::SharedBytes> lies{
      encoded(Answer{}),
      encoded(Hello{.replica = me_, .group = kLinksGroup, .term = 1, .start = {}, .history = {}}),
      encoded(
          Entries{.term = 1,
                  .number = 1,
                  .previous = {},
                  .block = {{.previous = {}, .last = {.term = 1, .version = 3}, .bytes = block}},
                  .marks = {}}),
      encoded(HandOver{.term = 9}),
  };
  for (const auto& lie : lies) {
    clock_.advance(kNanosPerSecond);
    ASSERT_NO_FATAL_FAILURE(connect_and_greet());
    called_->connection->send(lie);
    ASSERT_NO_FATAL_FAILURE(expect_dropped());
    EXPECT_EQ(log_.last(), LogPosition{});
  }
  EXPECT_THAT(received_, IsEmpty());
}

TEST_F(LinkToThePrimary, ObeysNobodyOnceItsPartHasEnded) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  has_ended_ = true;
  called_->connection->send(encoded(Answer{}));  // else it would leave
  called_->connection->send(encoded(Entries{.term = 1, .number = 1, .previous = {}, .marks = {}}));
  called_->connection->close();
  ASSERT_TRUE(run_until([&] { return !link_.is_connected(); }));  // all before it has come
  EXPECT_THAT(received_, IsEmpty());
  EXPECT_EQ(membership_.backup().heard_at(), 0);
}

// The primary of this test breaks the copy off.
TEST_F(LinkToThePrimary, FetchesACopyWhereItIsToldTo) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  called_->connection->send(encoded(CopyNeeded{}));
  ASSERT_TRUE(run_until([&] { return link_.copy() != nullptr && !taken_.empty(); }));
  EXPECT_FALSE(link_.is_connected());
  called_.emplace(std::move(taken_.front()));
  taken_.clear();
  called_->start();
  const auto request = take<CopyRequest>(*called_);
  EXPECT_EQ(request.replica.name, me_.name);
  EXPECT_EQ(request.group, kLinksGroup);
  called_->connection->close();
  ASSERT_TRUE(run_until([&] { return !copied_.empty(); }));
  EXPECT_THAT(copied_, ElementsAre(Not(IsEmpty())));
  EXPECT_EQ(link_.copy(), nullptr);
  clock_.advance(kNanosPerSecond);
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
}

TEST_F(LinkToThePrimary, NothingComesAfterTheEnd) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  link_.end("this replica is the primary");
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
  clock_.advance(kNanosPerSecond);
  link_.step(true);  // a connection is being made
  link_.close();
  ASSERT_TRUE(run_until([&] { return !taken_.empty() || !refusals_.empty(); }));
  EXPECT_FALSE(link_.is_connected());
}

}  // namespace
}  // namespace rkv::server::test
