// The lanes of links: what a primary offers and sends by them, what a backup makes of an offer, and
// that both go on over TCP without one.
#include <gmock/gmock.h>

#include <utility>

#include "server/group/replica/backup_links.h"
#include "server/group/replica/primary_link.h"
#include "tests/server/group/lane/lane_rig.h"
#include "tests/server/group/replica/links_rig.h"

namespace rkv::server::test {
namespace {

using ::testing::IsEmpty;

// The first message of what has arrived by a lane.
template <class Message>
std::optional<Message> first_message(const std::vector<std::byte>& bytes) {
  const auto length = replication_message_bytes(bytes);
  if (!length || *length > bytes.size()) return std::nullopt;
  const auto decoded = decode_replication(Bytes(bytes).first(*length));
  const Message* const message = decoded ? std::get_if<Message>(&*decoded) : nullptr;
  return message != nullptr ? std::optional(*message) : std::nullopt;
}

struct WithLaneTransports {
  LaneTransportPair transports_;
};

// The test is the backup.
class LanesOfAPrimary : protected WithLaneTransports, public LinksRig {
 protected:
  LanesOfAPrimary() : LinksRig("a", LaneTransportPair::as_lanes(*transports_.primary)) {}
  void SetUp() override {
    auto engine = StorageEngine::open(directory_.path());
    ASSERT_TRUE(engine);
    engine_ = std::move(*engine);
    links_.emplace(around_, *engine_,
                   BackupLinks::Outside{.has_ended = [] { return false; },
                                        .happened = [this](auto) { ++events_; },
                                        .copied = [](const auto&, const auto&) {}});
    read(*joined(*founded(kLinksGroup, me_, 1), b_));
    ASSERT_NE(membership_.primary(), nullptr);
  }
  void TearDown() override { links_.reset(); }
  void connect_and_greet() {
    make_pair();
    links_->accept(std::move(called_->connection));
    caller_->start();
    const int before = events_;
    caller_->connection->send(
        encoded(Hello{.replica = b_, .group = kLinksGroup, .term = 1, .start = {}, .history = {}}));
    ASSERT_TRUE(run_until([&] { return events_ != before; }));
  }
  LaneOffer take_offer() {
    EXPECT_TRUE(run_until([&] {
      links_->step();
      return !caller_->got.empty();
    }));
    return take<LaneOffer>(*caller_);
  }
  bool is_offered_nothing() {
    for (int i = 0; i < 50; ++i) {
      links_->step();
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(1));
    }
    return std::ranges::none_of(caller_->got, [](const auto& message) {
      const auto decoded = decode_replication(message);
      return decoded && std::holds_alternative<LaneOffer>(*decoded);
    });
  }
  void make_lane(const LaneOffer& offer) {
    std::optional<Result<std::unique_ptr<ReplicaLane>>> made;
    calls_.call(lanes_host(), offer, [&](auto result) { made.emplace(std::move(result)); });
    ASSERT_TRUE(run_until([&] { return made.has_value(); }));
    ASSERT_TRUE(*made) << to_string(made->error());
    lane_.emplace(std::move(**made));
    caller_->connection->send(encoded(LaneSwitch{}));
    lane_->start();
    lane_->lane->receive();
  }
  void answer(std::uint64_t number) {
    (void)lane_->lane->send(encode(Answer{.number = number, .last = {}}));
    lane_->lane->flush();
  }
  // The primary's next message by the lane. Until the primary has got the lane, its messages go
  // over TCP, and the next one is due when the last is answered: a clock that went on without an
  // answer would make this backup a silent one.
  Entries entries_by_lane() {
    bool is_due = true;
    std::optional<int> events_before_answer;
    EXPECT_TRUE(run_until([&] {
      if (std::exchange(is_due, false)) clock_.advance(kNanosPerSecond / 5);
      links_->send();
      if (!caller_->got.empty()) {
        events_before_answer = events_;
        answer(take<Entries>(*caller_).number);
      }
      if (events_before_answer && events_ != *events_before_answer) {
        events_before_answer.reset();
        is_due = true;
      }
      return !lane_->got.empty();
    }));
    const auto entries = first_message<Entries>(lane_->got);
    EXPECT_TRUE(entries) << "another message came";
    return entries.value_or(Entries{});
  }

  // The backup answers the primary's next message, by whatever way both take.
  void exchange(std::uint64_t* answered) {
    clock_.advance(kNanosPerSecond / 5);
    links_->send();
    ASSERT_TRUE(run_until([&] { return !caller_->got.empty(); }));
    const std::uint64_t number = take<Entries>(*caller_).number;
    EXPECT_EQ(number, ++*answered);
    const int before = events_;
    caller_->connection->send(encoded(Answer{.number = number, .last = {}}));
    ASSERT_TRUE(run_until([&] { return events_ != before; }));
  }

  const Replica b_{.name = "b", .address = "127.0.0.1:1", .epoch = 2};
  std::unique_ptr<StorageEngine> engine_;
  int events_ = 0;
  std::optional<BackupLinks> links_;
  LaneCaller calls_{io_, LaneTransportPair::as_lanes(*transports_.backup)};
  std::optional<LaneEnd> lane_;
};

TEST_F(LanesOfAPrimary, AreOfferedOnceAndCarryTheLogAndTheAnswers) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const LaneOffer offer = take_offer();
  ASSERT_NO_FATAL_FAILURE(make_lane(offer));
  const Entries entries = entries_by_lane();
  EXPECT_EQ(entries.term, 1U);
  EXPECT_TRUE(is_offered_nothing());
  // The answer goes by the lane as well.
  const int before = events_;
  answer(entries.number);
  EXPECT_TRUE(run_until([&] { return events_ != before; }));
  EXPECT_EQ(links_->count(), 1U);
}

TEST_F(LanesOfAPrimary, AreOfferedAgainAfterASecondToABackupThatCouldNotMakeIt) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const LaneOffer first = take_offer();
  EXPECT_TRUE(is_offered_nothing());
  caller_->connection->send(encoded(NoLane{}));
  EXPECT_TRUE(is_offered_nothing());
  clock_.advance(LanePauses::kFirst);
  const LaneOffer second = take_offer();
  EXPECT_NE(first.token, second.token);
  ASSERT_NO_FATAL_FAILURE(make_lane(second));
  EXPECT_EQ(entries_by_lane().term, 1U);
}

// Another offer would end its attempt.
TEST_F(LanesOfAPrimary, AreNotOfferedToABackupThatMayBeMakingOne) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const LaneOffer first = take_offer();
  clock_.advance(LanePauses::kMadeWithin);
  EXPECT_TRUE(is_offered_nothing());
  clock_.advance(LanePauses::kFirst);
  EXPECT_NE(first.token, take_offer().token);
}

// The backup keeps its connection, and with it its place in the group.
TEST_F(LanesOfAPrimary, AreOfferedAgainWhenOneHasEnded) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  std::uint64_t answered = 0;
  for (const Nanos lasts : {kNanosPerSecond, LanePauses::kLasts}) {
    const LaneOffer offer = take_offer();
    auto made = make_breakable_lane(io_, *transports_.backup, offer);
    ASSERT_TRUE(made) << to_string(made.error());
    caller_->connection->use(std::move(made->lane), ReplicaConnection::Change::kNow);
    ASSERT_NO_FATAL_FAILURE(exchange(&answered));
    EXPECT_TRUE(is_offered_nothing());
    clock_.advance(lasts);
    made->link->abort();
    ASSERT_TRUE(run_until([&] { return !caller_->connection->has_lane(); }));
    ASSERT_NO_FATAL_FAILURE(exchange(&answered));
    EXPECT_EQ(links_->count(), 1U);
    EXPECT_THAT(caller_->ends, IsEmpty());
    if (lasts == LanePauses::kLasts) break;  // forgiven: the next offer comes at once
    EXPECT_TRUE(is_offered_nothing());
    clock_.advance(LanePauses::kFirst);
  }
  (void)take_offer();
}

// The backup's end of the lane is there, and nothing comes by it: the backup would be left out
// after the failure time.
TEST_F(LanesOfAPrimary, AreLeftWhenNothingComesByThem) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const LaneOffer offer = take_offer();
  const std::uint64_t received = caller_->connection->received_bytes();
  ASSERT_NO_FATAL_FAILURE(make_lane(offer));
  ASSERT_TRUE(run_until([&] { return caller_->connection->received_bytes() != received; }))
      << "the primary's LaneSwitch";
  links_->send();
  ASSERT_TRUE(run_until([&] { return !lane_->got.empty(); }));
  const ReplicationTimes times;
  clock_.advance(times.failure / 2);
  EXPECT_TRUE(is_offered_nothing());
  EXPECT_TRUE(caller_->got.empty() && lane_->ends.empty());
  clock_.advance((times.failure / 4) + 1);
  links_->step();
  EXPECT_EQ(take<Entries>(*caller_).number, 1U);
  ASSERT_TRUE(run_until([&] { return !lane_->ends.empty(); }));
  EXPECT_EQ(links_->count(), 1U);
}

TEST_F(LanesOfAPrimary, ALaneOfABackupThatIsGoneIsNotUsed) {
  ASSERT_NO_FATAL_FAILURE(connect_and_greet());
  const LaneOffer offer = take_offer();
  caller_.reset();
  ASSERT_TRUE(run_until([&] { return links_->count() == 0; }));
  std::optional<Result<std::unique_ptr<ReplicaLane>>> made;
  calls_.call(lanes_host(), offer, [&](auto result) { made.emplace(std::move(result)); });
  ASSERT_TRUE(run_until([&] { return made.has_value(); }));
  EXPECT_FALSE(*made) << "the offer has ended with the connection";
}

// The test is the primary.
class LaneOfABackup : private WithLaneTransports, public LinksRig {
 protected:
  LaneOfABackup() : LinksRig("b", LaneTransportPair::as_lanes(*transports_.backup)) {}
  void SetUp() override {
    listen(a_secret());
    read(*joined(*founded(kLinksGroup, listening("a", 1), 1), me_));
    ASSERT_EQ(membership_.role(), Membership::Role::kFollowing);
    link_.step(true);
    ASSERT_TRUE(run_until([&] { return !taken_.empty(); }));
    called_.emplace(std::move(taken_.front()));
    taken_.clear();
    called_->start();
    (void)take<Hello>(*called_);
  }
  LaneOffer an_offer() {
    std::optional<LaneOffer> offer;
    EXPECT_TRUE(run_until([&] { return (offer = lanes_.offer(1)).has_value(); }));
    return offer.value_or(LaneOffer{});
  }
  // The answer to a message that went over TCP.
  void ask(std::uint64_t number) {
    called_->connection->send(
        encoded(Entries{.term = 1, .number = number, .previous = {}, .marks = {}}));
    const std::size_t before = received_;
    ASSERT_TRUE(run_until([&] { return received_ != before; }));
    link_.step(true);
  }

  std::size_t received_ = 0;
  PrimaryLink link_{around_,
                    {.has_ended = [] { return false; },
                     .received = [this](const Wanted&) { ++received_; },
                     .copied = [](const auto&) {}}};
  std::unique_ptr<ReplicaLane> given_;
  LaneListener lanes_{
      io_, LaneTransportPair::as_lanes(*transports_.primary), lanes_host(),
      [this](std::uint64_t, std::unique_ptr<ReplicaLane> lane) { given_ = std::move(lane); }};
};

TEST_F(LaneOfABackup, IsMadeOfAnOfferAndCarriesTheAnswers) {
  called_->connection->send(encoded(an_offer()));
  ASSERT_TRUE(run_until([&] { return given_ != nullptr; }));
  LaneEnd lane(std::move(given_));
  lane.start();
  lane.lane->receive();
  for (std::uint64_t number = 1; lane.got.empty() && number < 1000; ++number) {
    ASSERT_NO_FATAL_FAILURE(ask(number));
    io_.restart();
    io_.poll();
  }
  ASSERT_TRUE(run_until([&] { return !lane.got.empty(); }));
  EXPECT_TRUE(first_message<Answer>(lane.got));
  EXPECT_TRUE(called_->ends.empty());
}

TEST_F(LaneOfABackup, AnOfferThatLeadsNowhereIsAnsweredAndLeavesTheConnectionAsItIs) {
  LaneOffer offer = an_offer();
  offer.token[0] ^= std::byte{1};
  for (const std::uint16_t port : {offer.shm_port, std::uint16_t{1}}) {
    offer.shm_port = port;
    offer.verbs_port = lanes_are_verbs() ? port : std::uint16_t{0};
    called_->connection->send(encoded(offer));
    (void)take<NoLane>(*called_);
  }
  for (std::uint64_t number = 1; number <= 20; ++number) {
    ASSERT_NO_FATAL_FAILURE(ask(number));
    EXPECT_EQ(take<Answer>(*called_).number, number);
  }
  EXPECT_TRUE(link_.is_connected());
  EXPECT_FALSE(given_);
  EXPECT_THAT(called_->ends, IsEmpty());
}

// The primary's end takes nothing: the answers that went by the lane are lost with it.
TEST_F(LaneOfABackup, TheAnswersGoOverTcpAgainWhenItHasEnded) {
  called_->connection->send(encoded(an_offer()));
  ASSERT_TRUE(run_until([&] { return given_ != nullptr; }));
  std::uint64_t number = 0;
  std::uint64_t answered = 0;
  // Some answers go over TCP until the backup has changed.
  while (number < 500 && number - answered < 10) {
    ASSERT_NO_FATAL_FAILURE(ask(++number));
    io_.restart();
    io_.poll();
    answered += called_->got.size();
    called_->got.clear();
  }
  ASSERT_EQ(number - answered, 10U);
  given_.reset();
  while (answered < number)
    ASSERT_EQ(take<Answer>(*called_).number, ++answered);
  ASSERT_NO_FATAL_FAILURE(ask(++number));
  EXPECT_EQ(take<Answer>(*called_).number, number);
  EXPECT_TRUE(link_.is_connected());
  EXPECT_THAT(called_->ends, IsEmpty());
}

TEST_F(LaneOfABackup, EndsWithTheConnection) {
  called_->connection->send(encoded(an_offer()));
  ASSERT_TRUE(run_until([&] { return given_ != nullptr; }));
  LaneEnd lane(std::move(given_));
  lane.start();
  lane.lane->receive();
  link_.close();
  EXPECT_TRUE(run_until([&] { return !lane.ends.empty() && !called_->ends.empty(); }));
}

}  // namespace
}  // namespace rkv::server::test
