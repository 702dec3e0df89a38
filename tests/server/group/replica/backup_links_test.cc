// A primary's connections with backups that speak, say nothing, lie or want a copy. The test is the
// backup.
#include "server/group/replica/backup_links.h"

#include <gmock/gmock.h>

#include "tests/server/group/replica/links_rig.h"

namespace rkv::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Event = BackupLinks::Event;

class LinksToBackups : public LinksRig {
 protected:
  LinksToBackups() : LinksRig("a") {}
  void SetUp() override {
    auto engine = StorageEngine::open(directory_.path());
    ASSERT_TRUE(engine);
    engine_ = std::move(*engine);
    links_.emplace(
        around_, *engine_,
        BackupLinks::Outside{
            .has_ended = [this] { return has_ended_; },
            .happened = [this](Event event) { events_.push_back(event); },
            .copied = [this](const auto& name,
                             const auto& problem) { copied_.emplace_back(name, problem); }});
    first_ = *joined(*founded(kLinksGroup, me_, 1), b_);
  }
  void TearDown() override { links_.reset(); }
  // This replica is the primary, and b a backup in sync.
  void lead() {
    read(first_);
    ASSERT_NE(membership_.primary(), nullptr);
  }
  // A connection of a backup: caller_.
  void connect() {
    make_pair();
    links_->accept(std::move(called_->connection));
    caller_->start();
  }
  template <class Message>
  void send(const Message& message) {
    caller_->connection->send(encoded(message));
  }
  Hello hello(std::uint64_t group = kLinksGroup) const {
    return {.replica = b_, .group = group, .term = 1, .start = {}, .history = {}};
  }
  void connect_and_greet() {
    ASSERT_NO_FATAL_FAILURE(connect());
    send(hello());
    ASSERT_TRUE(run_until([&] { return !events_.empty(); }));
    EXPECT_THAT(std::exchange(events_, {}), ElementsAre(Event::kOther));
    links_->send();
  }
  void expect_dropped() {
    ASSERT_TRUE(run_until([&] { return !caller_->ends.empty(); }));
    EXPECT_EQ(links_->count(), 0U);
    EXPECT_THAT(events_, IsEmpty());
  }

  const Replica b_{.name = "b", .address = "127.0.0.1:1", .epoch = 2};
  GroupConfiguration first_;
  std::unique_ptr<StorageEngine> engine_;
  bool has_ended_ = false;
  std::vector<Event> events_;
  std::vector<std::pair<std::string, std::string>> copied_;
  std::optional<BackupLinks> links_;
};

TEST_F(LinksToBackups, ABackupGetsWhatThePrimaryHasAndIsHeard) {
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const auto entries = take<Entries>(*caller_);
  EXPECT_EQ(entries.term, 1U);
  send(Answer{.number = entries.number, .last = {}});
  ASSERT_TRUE(run_until([&] { return !events_.empty(); }));
  EXPECT_THAT(events_, ElementsAre(Event::kAnswer));
  links_->tell(1, HandOver{.term = 1});
  EXPECT_EQ(take<HandOver>(*caller_).term, 1U);
  links_->tell(99, HandOver{.term = 1});  // nobody
}

TEST_F(LinksToBackups, ABackupThatCannotBeReachedIsReportedToThePrimary) {
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const auto is_unreachable = [&] { return membership_.primary()->others().at(0).is_unreachable; };
  EXPECT_FALSE(is_unreachable());
  ASSERT_TRUE(run_until([&] {
    clock_.advance(kNanosPerMs);
    links_->step();
    return is_unreachable();
  }));
  EXPECT_THAT(events_, ElementsAre(Event::kOther));
}

// As the primary calls this replica (back_calls.h).
TEST_F(LinksToBackups, ACallThatEndsWithoutAWordIsNotWorthALine) {
  std::vector<std::string> said;
  set_event_sink([&said](const LogEvent& event) { said.emplace_back(event.name); });
  ASSERT_NO_FATAL_FAILURE(connect());
  caller_->connection.reset();
  EXPECT_TRUE(run_until([&] { return links_->count() == 0; }));
  set_event_sink({});
  EXPECT_THAT(said, IsEmpty());
}

TEST_F(LinksToBackups, AnswersThatComeTogetherHappenOnce) {
  constexpr std::uint64_t kAnswers = 500;
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const auto entries = take<Entries>(*caller_);
  const std::vector<ReplicaConnection::SharedBytes> backlog(
      kAnswers, encoded(Answer{.number = entries.number, .last = {}}));
  caller_->connection->send(backlog);
  send(Answer{.number = entries.number + 1, .last = {}});  // of what was not sent: it is dropped
  ASSERT_TRUE(run_until([&] { return links_->count() == 0; }));
  EXPECT_GE(events_.size(), 1U);
  EXPECT_LT(events_.size(), kAnswers / 10);
}

TEST_F(LinksToBackups, WhoSaysNothingIsDropped) {
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect());
  clock_.advance(SilentPeers::kLimit + 1);
  links_->step();
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  send(Answer{.number = take<Entries>(*caller_).number, .last = {}});
  ASSERT_TRUE(run_until([&] { return !events_.empty(); }));
  clock_.advance(SilentPeers::kLimit + 1);
  links_->step();
  EXPECT_EQ(links_->count(), 1U);
}

// Its machine may be gone: no word of TCP says so. The log would be kept for it.
TEST_F(LinksToBackups, WhoDoesNotAnswerIsDropped) {
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  clock_.advance(BackupLinks::kSilence);
  links_->step();
  EXPECT_EQ(links_->count(), 1U);
  clock_.advance(1);
  links_->step();
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
}

TEST_F(LinksToBackups, WhoSendsWhatNoBackupSendsIsDropped) {
  ASSERT_NO_FATAL_FAILURE(lead());
  const std::vector<ReplicaConnection::SharedBytes> lies{
      encoded(hello(kLinksGroup + 1)),
      encoded(HandOver{.term = 1}),
      encoded(Entries{.term = 1, .number = 1, .previous = {}, .marks = {}}),
      encoded(Answer{.number = 1, .last = {}}),  // before a hello
      encoded(CopyRequest{.replica = b_, .group = kLinksGroup + 1, .term = 1}),
  };
  for (const auto& lie : lies) {
    ASSERT_NO_FATAL_FAILURE(connect());
    caller_->connection->send(lie);
    ASSERT_NO_FATAL_FAILURE(expect_dropped());
  }
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  send(hello());
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
}

TEST_F(LinksToBackups, AReplicaThatIsNotThePrimaryServesNobody) {
  const Replica other{.name = "c", .address = "127.0.0.1:1", .epoch = 3};
  read(*joined(*founded(kLinksGroup, other, 1), me_));
  ASSERT_EQ(membership_.primary(), nullptr);
  ASSERT_NO_FATAL_FAILURE(connect());
  send(hello());
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
}

TEST_F(LinksToBackups, AReplicaThatHasEndedItsPartServesNobody) {
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect());
  has_ended_ = true;
  send(CopyRequest{.replica = b_, .group = kLinksGroup, .term = 1});
  EXPECT_NO_FATAL_FAILURE(expect_dropped());
  EXPECT_EQ(links_->copies(), nullptr);
}

TEST_F(LinksToBackups, ACopyKeepsTheLogForAWhile) {
  ASSERT_NO_FATAL_FAILURE(lead());
  ASSERT_NO_FATAL_FAILURE(connect());
  EXPECT_FALSE(links_->log_is_awaited());
  send(CopyRequest{.replica = b_, .group = kLinksGroup, .term = 1});
  ASSERT_TRUE(run_until([&] { return links_->copies() != nullptr; }));
  EXPECT_EQ(links_->count(), 0U);
  EXPECT_TRUE(links_->is_copying_to("b"));
  EXPECT_FALSE(links_->is_copying_to("c"));
  EXPECT_TRUE(links_->log_is_awaited());
  ASSERT_TRUE(run_until([&] { return !caller_->got.empty(); }));
  caller_->connection->close();
  ASSERT_TRUE(run_until([&] { return !copied_.empty(); }));
  EXPECT_EQ(copied_.front().first, "b");
  EXPECT_FALSE(links_->is_copying_to("b"));
  EXPECT_TRUE(links_->log_is_awaited());
  clock_.advance(31 * kNanosPerSecond);
  EXPECT_FALSE(links_->log_is_awaited());
}

}  // namespace
}  // namespace rkv::server::test
