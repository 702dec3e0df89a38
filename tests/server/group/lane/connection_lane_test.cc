// A connection that changes to a lane, and back: REPCON-1, REPCON-2, REPCON-4 and REPCON-5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/random.h"
#include "tests/server/group/lane/lane_rig.h"

namespace rkv::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Change = ReplicaConnection::Change;

class ConnectionWithLane : public Connections {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(make_pair());
    caller_->start();
    called_->start();
  }
  // Makes the ends of a lane, for called_ (a primary's) and for caller_.
  void make_lane() {
    std::optional<LaneOffer> offer;
    ASSERT_TRUE(run_until([&] { return (offer = lanes_.offer(1)).has_value(); }));
    std::optional<Result<std::unique_ptr<ReplicaLane>>> made;
    calls_.call(lanes_host(), *offer, [&](auto result) { made.emplace(std::move(result)); });
    ASSERT_TRUE(run_until([&] { return made.has_value() && !given_.empty(); }));
    ASSERT_TRUE(*made) << to_string(made->error());
    for_caller_ = std::move(**made);
    for_called_ = std::move(given_.front());
    given_.clear();
  }
  static ReplicaConnection::SharedBytes a_switch() {
    return std::make_shared<const std::vector<std::byte>>(encode(LaneSwitch{}));
  }
  static ReplicaConnection::SharedBytes an_end_of_lane(std::uint64_t messages) {
    return std::make_shared<const std::vector<std::byte>>(
        encode(server::LaneEnd{.messages = messages}));
  }
  void expect_end(End& end, const char* why) {
    ASSERT_TRUE(run_until([&] { return !end.ends.empty(); }));
    io_.restart();
    io_.poll();
    EXPECT_THAT(end.ends, ElementsAre(HasSubstr(why)));
  }

  const LaneTransportPair transports_;
  std::vector<std::unique_ptr<ReplicaLane>> given_;
  LaneListener lanes_{io_, LaneTransportPair::as_lanes(*transports_.primary), lanes_host(),
                      [this](std::uint64_t, std::unique_ptr<ReplicaLane> lane) {
                        given_.push_back(std::move(lane));
                      }};
  LaneCaller calls_{io_, LaneTransportPair::as_lanes(*transports_.backup)};
  std::unique_ptr<ReplicaLane> for_caller_;
  std::unique_ptr<ReplicaLane> for_called_;
};

// The ends change at different messages, and the one that changes first has much on its way over
// TCP.
TEST_F(ConnectionWithLane, MessagesArriveWholeAndInOrderAcrossTheChange) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  std::vector<ReplicaConnection::SharedBytes> sent;
  Random random(test_seed());
  for (std::uint64_t i = 1; i <= 3000; ++i)
    sent.push_back(a_message(i, i % 100 == 0 ? 500'000 : random.below(300)));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (i == 1000) called_->connection->use(std::move(for_called_), Change::kNow);
    called_->connection->send(sent[i]);
    caller_->connection->send(sent[i]);
    if (i % 50 == 0) io_.poll();
    if (i == 2000) caller_->connection->use(std::move(for_caller_), Change::kNow);
  }
  ASSERT_TRUE(run_until(
      [&] { return caller_->got.size() == sent.size() && called_->got.size() == sent.size(); }));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    ASSERT_EQ(*sent[i], caller_->got[i]) << i;
    ASSERT_EQ(*sent[i], called_->got[i]) << i;
  }
  ASSERT_TRUE(run_until([&] { return caller_->connection->queued_bytes() == 0; }));
  EXPECT_TRUE(caller_->ends.empty() && called_->ends.empty());
}

TEST_F(ConnectionWithLane, WhatTheLaneDoesNotTakeIsQueuedAndOnSentComes) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  std::size_t falls = 0;
  called_->connection->hand_over(
      {.on_message = [](auto) {}, .on_end = [](auto) {}, .on_sent = [&] { ++falls; }});
  called_->connection->use(std::move(for_called_), Change::kNow);
  ASSERT_TRUE(run_until([&] { return called_->connection->queued_bytes() == 0; }));
  falls = 0;
  const auto message = a_message(1, kMaxBlockBytes / 4);
  called_->connection->send(message);
  called_->connection->send(message);
  EXPECT_EQ(called_->connection->queued_bytes(), 2 * message->size());
  EXPECT_EQ(falls, 0U) << "called from within send()";
  caller_->connection->use(std::move(for_caller_), Change::kNow);
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == 2; }));
  ASSERT_TRUE(run_until([&] { return called_->connection->queued_bytes() == 0; }));
  EXPECT_EQ(falls, 2U);
  EXPECT_EQ(caller_->got[1], *message);
}

TEST_F(ConnectionWithLane, ASecondLaneIsNotUsed) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  caller_->connection->use(std::move(for_caller_), Change::kNow);
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  called_->connection->send(a_message(1, 10));
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == 1; }));
}

// REPCON-5: what the lane had taken and nobody received.
TEST_F(ConnectionWithLane, WhatIsLostWithTheLaneGoesOverTcpAgain) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  std::vector<std::string> lane_ends;
  called_->connection->hand_over(
      {.on_message = [](auto) {},
       .on_end = [](auto) { FAIL(); },
       .on_lane_end = [&](std::string why) { lane_ends.push_back(std::move(why)); }});
  std::vector<ReplicaConnection::SharedBytes> sent;
  for (std::uint64_t number = 1; number <= 100; ++number) {
    sent.push_back(a_message(number, number == 50 ? 2'000'000 : 1000));
    called_->connection->send(sent.back());
  }
  ASSERT_TRUE(run_until([&] { return called_->connection->queued_bytes() < 2'100'000; }));
  EXPECT_GT(called_->connection->queued_bytes(), 0U) << "the lane has no more room";
  for_caller_.reset();
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == sent.size(); }));
  for (std::size_t i = 0; i < sent.size(); ++i)
    ASSERT_EQ(*sent[i], caller_->got[i]) << i;
  EXPECT_THAT(lane_ends, ElementsAre(HasSubstr("has ended")));
  ASSERT_TRUE(run_until([&] { return !called_->connection->has_lane(); }));
  EXPECT_TRUE(caller_->ends.empty());
  EXPECT_EQ(called_->connection->queued_bytes(), 0U);
}

// REPCON-1, REPCON-5: a connection has many lanes, and each ends at any moment: before a change, in
// the middle of a message, or when all has come.
TEST_F(ConnectionWithLane, MessagesArriveWholeAndInOrderThoughLanesBreak) {
  Random random(test_seed());
  std::vector<ReplicaConnection::SharedBytes> sent;
  const auto send_some = [&] {
    for (auto count = 1 + random.below(100); count != 0; --count) {
      sent.push_back(a_message(sent.size() + 1,
                               random.below(20) == 0 ? random.below(400'000) : random.below(300)));
      called_->connection->send(sent.back());
      caller_->connection->send(sent.back());
      if (random.below(10) == 0) io_.poll();
    }
  };
  for (int round = 0; round < (lanes_are_verbs() ? 10 : 60); ++round) {
    ASSERT_TRUE(run_until([&] {
      return !called_->connection->has_lane() && !caller_->connection->has_lane();
    })) << "the lane before";
    std::optional<LaneOffer> offer;
    ASSERT_TRUE(run_until([&] { return (offer = lanes_.offer(1)).has_value(); }));
    auto made = make_breakable_lane(io_, *transports_.backup, *offer);
    ASSERT_TRUE(made) << to_string(made.error());
    ASSERT_TRUE(run_until([&] { return !given_.empty(); }));
    if (random.below(2) == 0) send_some();
    const bool caller_is_first = random.below(2) == 0;
    if (caller_is_first) caller_->connection->use(std::move(made->lane), Change::kNow);
    if (random.below(2) == 0) send_some();
    called_->connection->use(std::move(given_.front()), Change::kAfterTheOtherEnd);
    given_.clear();
    if (random.below(2) == 0) send_some();
    if (!caller_is_first) caller_->connection->use(std::move(made->lane), Change::kNow);
    send_some();
    io_.restart();
    for (auto turns = random.below(40); turns != 0; --turns)
      io_.run_one_for(std::chrono::milliseconds(1));
    made->link->abort();
    send_some();
  }
  ASSERT_TRUE(run_until(
      [&] { return caller_->got.size() == sent.size() && called_->got.size() == sent.size(); }));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    ASSERT_EQ(*sent[i], caller_->got[i]) << i;
    ASSERT_EQ(*sent[i], called_->got[i]) << i;
  }
  EXPECT_TRUE(caller_->ends.empty() && called_->ends.empty());
}

// The test has no lane: an end that it never had changes nothing.
TEST_F(ConnectionWithLane, AnEndOfALaneThatNobodyHasIsAnswered) {
  caller_->connection->send(an_end_of_lane(0));
  caller_->connection->send(a_message(1, 10));
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 1; }));
  called_->connection->send(a_message(2, 10));
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == 1; }));
  EXPECT_FALSE(called_->connection->has_lane() || caller_->connection->has_lane());
}

TEST_F(ConnectionWithLane, WhoHasGotMoreThanWasSentEndsTheConnection) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  called_->connection->send(a_message(1, 10));
  ASSERT_TRUE(run_until([&] { return called_->connection->queued_bytes() == 0; }));
  caller_->connection->send(an_end_of_lane(2));
  ASSERT_NO_FATAL_FAILURE(expect_end(*called_, "does not follow"));
}

TEST_F(ConnectionWithLane, AnEndOfTheLaneThatComesByItEndsTheConnection) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  for_caller_->start(
      {.on_bytes = [](Bytes) {}, .on_delivered = [] {}, .on_end = [](auto) {}, .on_room = [] {}});
  (void)for_caller_->send(*an_end_of_lane(0));
  for_caller_->flush();
  called_->connection->use(std::move(for_called_), Change::kNow);
  caller_->connection->send(a_switch());
  ASSERT_NO_FATAL_FAILURE(expect_end(*called_, "does not follow"));
}

TEST_F(ConnectionWithLane, ADestructionWhenTheLaneHasEndedIsSafe) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  const auto here = std::make_shared<bool>(true);  // the sanitizers see a use of it later
  bool called = false;
  called_->connection->hand_over({.on_message = [](auto) {},
                                  .on_end = [](auto) { FAIL(); },
                                  .on_lane_end =
                                      [&, here](auto) {
                                        called_->connection.reset();
                                        called = *here;
                                      }});
  for_caller_.reset();
  ASSERT_TRUE(run_until([&] { return called; }));
  ASSERT_TRUE(run_until([&] { return !caller_->ends.empty(); }));
}

TEST_F(ConnectionWithLane, ACloseEndsBothEndsOnce) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  caller_->connection->use(std::move(for_caller_), Change::kNow);
  caller_->connection->close();
  EXPECT_TRUE(caller_->ends.empty()) << "called from within close()";
  ASSERT_NO_FATAL_FAILURE(expect_end(*called_, "ended"));
  ASSERT_NO_FATAL_FAILURE(expect_end(*caller_, "this replica ended"));
  caller_->connection->send(a_message(1, 10));
  EXPECT_EQ(caller_->connection->queued_bytes(), 0U);
}

TEST_F(ConnectionWithLane, ADestructionInOnMessageOfTheLaneIsSafe) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kNow);
  caller_->connection->use(std::move(for_caller_), Change::kNow);
  const auto here = std::make_shared<bool>(true);  // the sanitizers see a use of it later
  bool called = false;
  caller_->connection->hand_over({.on_message =
                                      [&, here](auto) {
                                        caller_->connection.reset();
                                        called = *here;
                                      },
                                  .on_end = [](auto) { FAIL(); }});
  called_->connection->send(a_message(1, 10));
  called_->connection->send(a_message(2, 10));
  ASSERT_TRUE(run_until([&] { return called; }));
  ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
}

// As a primary and a backup do it.
TEST_F(ConnectionWithLane, WhoWaitsChangesAfterTheOtherEnd) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kAfterTheOtherEnd);
  called_->connection->send(a_message(1, 10));
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == 1; })) << "over TCP";
  caller_->connection->use(std::move(for_caller_), Change::kNow);
  caller_->connection->send(a_message(2, 10));
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 1; }));
  called_->connection->send(a_message(3, 10));
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == 2; }));
  EXPECT_TRUE(caller_->connection->has_lane() && called_->connection->has_lane());
}

// The other end has given up while it made the lane.
TEST_F(ConnectionWithLane, ALaneThatEndsBeforeAnyChangeIsForgotten) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kAfterTheOtherEnd);
  for_caller_.reset();
  ASSERT_TRUE(run_until([&] { return !called_->connection->has_lane(); }));
  called_->connection->send(a_message(1, 10));
  caller_->connection->send(a_message(2, 10));
  ASSERT_TRUE(run_until([&] { return caller_->got.size() == 1 && called_->got.size() == 1; }));
  // Another one may come.
  ASSERT_NO_FATAL_FAILURE(make_lane());
  called_->connection->use(std::move(for_called_), Change::kAfterTheOtherEnd);
  caller_->connection->use(std::move(for_caller_), Change::kNow);
  caller_->connection->send(a_message(3, 10));
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 2; }));
  EXPECT_TRUE(caller_->ends.empty() && called_->ends.empty());
}

// As over TCP, whichever end is seen first.
TEST_F(ConnectionWithLane, WhatHasArrivedBeforeTheEndIsDelivered) {
  for (int round = 0; round < 20; ++round) {
    if (round != 0) {
      ASSERT_NO_FATAL_FAILURE(SetUp());
    }
    ASSERT_NO_FATAL_FAILURE(make_lane());
    called_->connection->use(std::move(for_called_), Change::kAfterTheOtherEnd);
    caller_->connection->use(std::move(for_caller_), Change::kNow);
    caller_->connection->send(a_message(1, 10));
    ASSERT_TRUE(run_until([&] { return called_->got.size() == 1; }));
    for (std::uint64_t number = 2; number <= 5; ++number)
      caller_->connection->send(a_message(number, 1000));
    if (lanes_are_verbs()) {  // until they have arrived
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    caller_->connection->close();
    ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
    EXPECT_EQ(called_->got.size(), 5U);
  }
}

// REPCON-4
TEST_F(ConnectionWithLane, AMessageOverTcpBehindTheChangeEndsTheConnection) {
  caller_->connection->send(a_switch());
  caller_->connection->send(a_message(1, 10));
  ASSERT_NO_FATAL_FAILURE(expect_end(*called_, "does not follow"));
  EXPECT_TRUE(called_->got.empty());
}

TEST_F(ConnectionWithLane, ASecondChangeEndsTheConnection) {
  caller_->connection->send(a_switch());
  caller_->connection->send(a_switch());
  ASSERT_NO_FATAL_FAILURE(expect_end(*called_, "does not follow"));
}

// The bytes of the lane are a peer's as well.
TEST_F(ConnectionWithLane, GarbageByTheLaneEndsTheConnection) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  for_caller_->start(
      {.on_bytes = [](Bytes) {}, .on_delivered = [] {}, .on_end = [](auto) {}, .on_room = [] {}});
  (void)for_caller_->send(std::vector<std::byte>(1000, std::byte{'x'}));
  for_caller_->flush();
  called_->connection->use(std::move(for_called_), Change::kNow);
  caller_->connection->send(a_switch());
  ASSERT_NO_FATAL_FAILURE(expect_end(*called_, "not a message"));
}

// It is held, whatever it is, until the sender has said over TCP that it changes.
TEST_F(ConnectionWithLane, NothingIsTakenFromALaneBeforeTheChange) {
  ASSERT_NO_FATAL_FAILURE(make_lane());
  for_caller_->start(
      {.on_bytes = [](Bytes) {}, .on_delivered = [] {}, .on_end = [](auto) {}, .on_room = [] {}});
  (void)for_caller_->send(*a_message(2, 10));
  for_caller_->flush();
  called_->connection->use(std::move(for_called_), Change::kNow);
  caller_->connection->send(a_message(1, 10));
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 1; }));
  for (int i = 0; i < 50; ++i) {
    io_.restart();
    io_.run_one_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(called_->got.size(), 1U);
  caller_->connection->send(a_switch());
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 2; }));
  EXPECT_EQ(called_->got[1], *a_message(2, 10));
}

}  // namespace
}  // namespace rkv::server::test
