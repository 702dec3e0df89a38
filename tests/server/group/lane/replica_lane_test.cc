// Bytes by a lane: LANE-1 to LANE-4, over shared memory or verbs. The other end may also send bytes
// that make no sense, take nothing, or end.
#include "server/group/lane/replica_lane.h"

#include <gmock/gmock.h>

#include "common/random.h"
#include "server/group/lane/lane_request.h"
#include "tests/server/group/lane/lane_rig.h"

namespace rkv::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> random_bytes(std::size_t length, std::uint64_t seed) {
  std::vector<std::byte> bytes(length);
  Random random(seed);
  for (std::byte& each : bytes)
    each = static_cast<std::byte>(random.below(256));
  return bytes;
}

class Lane : public LaneRig {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(make_lane()); }
  // Expects the end of the primary's lane; the backup's end is unchanged.
  void expect_end(const char* why) {
    ASSERT_TRUE(run_until([&] { return !primary_->ends.empty(); }));
    io_.restart();
    io_.poll();
    EXPECT_THAT(primary_->ends, ElementsAre(HasSubstr(why)));
  }
};

// LANE-1: pieces of all lengths both ways at once, more than there are frames for.
TEST_F(Lane, BytesArriveOnceAndInOrderBothWays) {
  start();
  const auto down = random_bytes(std::size_t{20} << 20, 1);
  const auto up = random_bytes(std::size_t{5} << 20, 2);
  Random random(3);
  for (auto [end, all] : {std::pair{&*primary_, &down}, std::pair{&*backup_, &up}}) {
    for (std::size_t at = 0; at < all->size();) {
      const std::size_t length = std::min<std::size_t>(
          all->size() - at, 1 + random.below(random.below(8) == 0 ? 300'000 : 300));
      const auto from = all->begin() + static_cast<std::ptrdiff_t>(at);
      end->send({from, from + static_cast<std::ptrdiff_t>(length)});
      at += length;
    }
  }
  EXPECT_LT(primary_->sent, down.size()) << "it waits for room";
  ASSERT_TRUE(run_until(
      [&] { return backup_->got.size() >= down.size() && primary_->got.size() >= up.size(); }));
  EXPECT_TRUE(backup_->got == down);
  EXPECT_TRUE(primary_->got == up);
  EXPECT_TRUE(primary_->ends.empty() && backup_->ends.empty());
}

// Credits come back although only one end sends bytes, a frame each.
TEST_F(Lane, ManySmallFramesOneWay) {
  start();
  for (int i = 0; i < 5000; ++i)
    backup_->send({static_cast<std::byte>(i)});
  ASSERT_TRUE(run_until([&] { return primary_->got.size() == 5000; }));
  for (int i = 0; i < 5000; ++i)
    ASSERT_EQ(primary_->got[static_cast<std::size_t>(i)], static_cast<std::byte>(i)) << i;
}

// All of it is there before it is taken. The last is told of too.
TEST_F(Lane, FramesThatAreThereAreToldOfTogether) {
  constexpr std::size_t kFrames = 40;
  constexpr std::size_t kBytes = 100;
  start();
  for (std::size_t i = 0; i < kFrames; ++i)
    primary_->send(random_bytes(kBytes, i));
  ASSERT_TRUE(run_until([&] {
    return !backup_->delivered.empty() && backup_->delivered.back() == kFrames * kBytes;
  }));
  if (!lanes_are_verbs()) {
    EXPECT_LT(backup_->delivered.size(), kFrames / 4);
  }
}

// LANE-5
TEST_F(Lane, WhatTheOtherEndHasTakenIsKnownAndNotMore) {
  primary_->start();
  backup_->start();
  const auto bytes = random_bytes(3'000'000, 11);
  primary_->send(bytes);
  ASSERT_TRUE(run_until([&] { return primary_->sent != 0; }));
  EXPECT_EQ(primary_->lane->taken_bytes(), 0U) << "it is held";
  backup_->lane->receive();
  ASSERT_TRUE(run_until([&] {
    EXPECT_LE(primary_->lane->taken_bytes(), backup_->got.size());
    return backup_->got.size() == bytes.size();
  }));
  EXPECT_GE(primary_->lane->taken_bytes() + (ReplicaLane::kFrames * ReplicaLane::kFrameBytes),
            bytes.size());
}

TEST_F(Lane, WhatArrivesIsHeldUntilItIsAskedFor) {
  primary_->start();
  backup_->start();
  const auto bytes = random_bytes(3'000'000, 4);
  primary_->send(bytes);
  ASSERT_TRUE(run_until([&] { return primary_->sent != 0; }));
  for (int i = 0; i < 100; ++i) {
    io_.restart();
    io_.run_one_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(backup_->got.empty());
  EXPECT_LE(primary_->sent, ReplicaLane::kFrames * ReplicaLane::kFrameBytes) << "LANE-2";
  backup_->lane->receive();
  ASSERT_TRUE(run_until([&] { return backup_->got.size() == bytes.size(); }));
  EXPECT_TRUE(backup_->got == bytes);
}

TEST_F(Lane, AnEndThatGoesEndsTheOtherOnce) {
  start();
  primary_->send(random_bytes(2'000'000, 5));
  backup_.reset();
  ASSERT_NO_FATAL_FAILURE(expect_end("has ended"));
  EXPECT_EQ(primary_->lane->send(random_bytes(10, 6)), 0U) << "after the end nothing is taken";
}

TEST_F(Lane, ADestructionInACallbackIsSafe) {
  for (const std::string where : {"on_bytes", "on_delivered", "on_room", "on_end"}) {
    if (where != "on_bytes") {
      ASSERT_NO_FATAL_FAILURE(make_lane());
    }
    const auto here = std::make_shared<std::string>(where);  // the sanitizers see a use of it later
    bool called = false;
    const auto destroy = [&, here](const char* in) {
      if (*here != in) return;
      primary_->lane.reset();
      called = *here == in;
    };
    primary_->lane->start({.on_bytes = [destroy](Bytes) { destroy("on_bytes"); },
                           .on_delivered = [destroy] { destroy("on_delivered"); },
                           .on_end = [destroy](const std::string&) { destroy("on_end"); },
                           .on_room = [destroy] { destroy("on_room"); }});
    primary_->lane->receive();
    backup_->start();
    backup_->lane->receive();
    if (where == "on_bytes" || where == "on_delivered") backup_->send(random_bytes(100'000, 7));
    if (where == "on_room") {
      (void)primary_->lane->send(random_bytes(2'000'000, 8));
      primary_->lane->flush();
    }
    if (where == "on_end") backup_.reset();
    ASSERT_TRUE(run_until([&] { return called; })) << where;
  }
}

// LANE-4: the test is the backup, and sends any bytes.
class LyingBackup : public LaneRig {
 protected:
  void SetUp() override {
    const LaneOffer offered = offer(1);
    const auto request = lane_request(offered.token);
    auto connection = ask(offered, request, parts_);
    ASSERT_TRUE(connection) << to_string(connection.error());
    parts_.connection = std::move(*connection);
    ASSERT_TRUE(run_until([&] { return !given_.empty(); }));
    primary_.emplace(std::move(given_.front().second));
    given_.clear();
    primary_->start();
    primary_->lane->receive();
  }
  void post(std::uint32_t credits, std::uint32_t length, std::size_t bytes) {
    const MutableBytes frame = parts_.frames->bytes().first(bytes);
    if (bytes >= 4) store_le(frame.data(), credits);
    if (bytes >= 8) store_le(frame.data() + 4, length);
    const auto operation = rdma::Operation::send(frame, parts_.frames->local_key(), 0);
    const auto posted = parts_.connection->post({&operation, 1});
    ASSERT_TRUE(posted && *posted == 1);
  }
  LaneParts parts_;
};

TEST_F(LyingBackup, AFrameThatIsShorterThanItsHeadEndsTheLane) {
  post(0, 0, 7);
  ASSERT_TRUE(run_until([&] { return !primary_->ends.empty(); }));
  EXPECT_THAT(primary_->ends, ElementsAre(HasSubstr("not a frame")));
}

TEST_F(LyingBackup, ALengthThatIsNotTheMessagesEndsTheLane) {
  post(0, 100, 107);
  ASSERT_TRUE(run_until([&] { return !primary_->ends.empty(); }));
  EXPECT_THAT(primary_->ends, ElementsAre(HasSubstr("not a frame")));
  EXPECT_TRUE(primary_->got.empty());
}

TEST_F(LyingBackup, CreditsThatWereNotSpentEndTheLane) {
  primary_->send(random_bytes(10, 9));  // one
  post(2, 0, 8);
  ASSERT_TRUE(run_until([&] { return !primary_->ends.empty(); }));
  EXPECT_THAT(primary_->ends, ElementsAre(HasSubstr("not a frame")));
}

TEST_F(LyingBackup, WhatIsRightIsTaken) {
  primary_->send(random_bytes(10, 9));
  post(1, 92, 100);
  ASSERT_TRUE(run_until([&] { return primary_->got.size() == 92; }));
  EXPECT_TRUE(primary_->ends.empty());
}

// More frames than credits: the transport, or the end of the lane, bounds what they cost.
TEST_F(LyingBackup, MoreFramesThanCreditsHarmNobody) {
  for (int i = 0; i < 500 && parts_.connection; ++i) {
    const MutableBytes frame = parts_.frames->bytes().first(8);
    store_le(frame.data(), std::uint32_t{0});
    store_le(frame.data() + 4, std::uint32_t{0});
    const auto operation = rdma::Operation::send(frame, parts_.frames->local_key(), 0);
    const auto posted = parts_.connection->post({&operation, 1});
    if (!posted || *posted != 1) break;
    std::array<rdma::Completion, 32> completions;
    (void)parts_.queue->poll(completions);
  }
  io_.restart();
  io_.run_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(primary_->got.empty());
  // Another backup's lane works as before.
  ASSERT_NO_FATAL_FAILURE(make_lane(2));
  start();
  backup_->send(random_bytes(100'000, 10));
  ASSERT_TRUE(run_until([&] { return primary_->got.size() == 100'000; }));
}

// ---- who gets a lane

using Lanes = LaneRig;

TEST_F(Lanes, WhoHasNoTokenGetsNone) {
  const LaneOffer offered = offer(1);
  LaneToken wrong = offered.token;
  wrong[15] ^= std::byte{1};
  auto another_version = lane_request(offered.token);
  another_version[4] = std::byte{99};
  const auto wrong_token = lane_request(wrong);
  const auto right = lane_request(offered.token);
  const std::vector<std::vector<std::byte>> requests{
      {},
      {wrong_token.begin(), wrong_token.end()},
      {another_version.begin(), another_version.end()},
      {right.begin(), right.end() - 1},
      std::vector<std::byte>(56, std::byte{0xFF}),
  };
  for (const auto& request : requests) {
    LaneParts parts;
    EXPECT_FALSE(ask(offered, request, parts));
  }
  EXPECT_TRUE(given_.empty());
  EXPECT_TRUE(call(offered)) << "the offer still stands";
}

TEST_F(Lanes, AnOfferIsGoodOnce) {
  const LaneOffer offered = offer(1);
  EXPECT_TRUE(call(offered));
  EXPECT_FALSE(call(offered));
}

TEST_F(Lanes, ANewOfferEndsTheOneBeforeAndForgetEndsBoth) {
  const LaneOffer first = offer(1);
  const LaneOffer second = offer(1);
  EXPECT_FALSE(call(first));
  listener_->forget(1);
  EXPECT_FALSE(call(second));
  EXPECT_TRUE(call(offer(2)));
}

TEST_F(Lanes, OffersThatWaitAreBounded) {
  const LaneOffer first = offer(1);
  for (std::uint64_t peer = 2; peer <= LaneListener::kMaxOffers + 1; ++peer)
    (void)offer(peer);
  EXPECT_FALSE(call(first));
}

TEST_F(Lanes, NobodyHasATransportInCommon) {
  LaneOffer offered = offer(1);
  std::swap(offered.verbs_port, offered.shm_port);
  const auto made = call(offered);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kUnsupported);
}

TEST_F(Lanes, ACanceledCallIsNotHeardOf) {
  bool called = false;
  caller_->call(lanes_host(), offer(1), [&](const auto&) { called = true; });
  caller_->cancel();
  ASSERT_TRUE(run_until([&] { return !given_.empty(); }));
  caller_.reset();  // its thread has ended
  io_.restart();
  io_.poll();
  EXPECT_FALSE(called);
}

TEST_F(Lanes, AListenerThatEndsGivesNothingMore) {
  const LaneOffer offered = offer(1);
  listener_.reset();
  EXPECT_FALSE(call(offered));
  EXPECT_TRUE(given_.empty());
}

}  // namespace
}  // namespace rkv::server::test
