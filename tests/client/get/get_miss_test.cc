// GetMachine: when it may say that a key does not exist.
#include <gtest/gtest.h>

#include "tests/client/get/get_fixture.h"

namespace rkv::client {
namespace {

// ------------------------------------------------------------------------------------ misses

TEST_F(GetTest, EmptyHomeIsAMissInOneRead) {
  expect_missing(kKey, 1);
}

TEST_F(GetTest, OverflowMissTakesThreeReads) {
  server_.set_flags(home_of_key, true);
  expect_missing(kKey, 3);
}

TEST_F(GetTest, OverflowMissSeesAKeyThatMovedHomeMeanwhile) {
  const Slot slot = server_.store(kKey, "value");
  server_.set_flags(home_of_key, true);
  server_.add_slot(home_of_key.neighbour(), slot);
  before_read(2, [&] {  // after home was read, before the neighbour is
    server_.add(kKey, slot);
    server_.clear_slots(home_of_key.neighbour());
  });
  expect_value(kKey, "value", 5);  // home, neighbour, home again: changed; home, record
  EXPECT_EQ(machine_.counts().retries, 1U);
}

TEST_F(GetTest, OverflowMissNotesATornSecondLook) {
  server_.set_flags(home_of_key, true);
  before_read(3, [&] { server_.tear_group(home_of_key); });
  before_read(4, [&] {
    server_.group(home_of_key).slots.fill(0);
    server_.publish(home_of_key, server_.header(home_of_key));
  });
  expect_missing(kKey, 5);  // the second try takes the pair
  EXPECT_EQ(machine_.counts().tears, 1U);
}

TEST_F(GetTest, NeighbourThatDoesNotVerifyOrCoverIsNoProof) {
  server_.set_flags(home_of_key, true);
  server_.tear_group(home_of_key.neighbour());
  expect_two_sided(kKey, GetMachine::Reason::kContention);

  server_.publish(home_of_key.neighbour(), {.depth = 27, .prefix = 0x7FFFFFF});
  expect_two_sided(kKey, GetMachine::Reason::kContention);
}

TEST_F(GetTest, FalseFingerprintIsRecheckedBeforeAMiss) {
  server_.add(kKey, foreign_slot(kKey, "owner"));
  expect_missing(kKey, 3);  // home, record of the other, home again
}

TEST_F(GetTest, FalseFingerprintWithAChangedGroupIsNoMiss) {
  const Slot slot = server_.store(kKey, "first");
  server_.add(kKey, slot);
  before_read(2, [&] {
    // Between group and record: our key moves, its block goes to another key.
    server_.write(slot, "other", "key", RecordState::kLive);
    server_.clear_slots(home_of_key);
    server_.add(kKey, server_.store(kKey, "second"));
  });
  expect_value(kKey, "second", 5);
}

TEST_F(GetTest, FalseFingerprintInTheNeighbourRechecksBothGroups) {
  server_.set_flags(home_of_key, true);
  server_.add_slot(home_of_key.neighbour(), foreign_slot(kKey, "owner"));
  expect_missing(kKey, 4);  // home, neighbour, record, both again
}

TEST_F(GetTest, FalseFingerprintInANeighbourThatChangedIsNoMiss) {
  const Slot slot = server_.store(kKey, "first");
  server_.set_flags(home_of_key, true);
  server_.add_slot(home_of_key.neighbour(), slot);
  before_read(3, [&] {
    server_.write(slot, "other", "key", RecordState::kLive);
    server_.clear_slots(home_of_key.neighbour());
    server_.add_slot(home_of_key.neighbour(), server_.store(kKey, "second"));
  });
  // Home, neighbour, record, both again: changed; the pair, record.
  expect_value(kKey, "second", 6);
}

TEST_F(GetTest, RealKeyBehindAFalseFingerprintIsFound) {
  server_.add(kKey, foreign_slot(kKey, "owner"));
  server_.add(kKey, server_.store(kKey, "mine"));
  expect_value(kKey, "mine", 3);
}

TEST_F(GetTest, RealKeyBehindATornRecordOfAnotherIsFound) {
  const Slot torn = foreign_slot(kKey, "owner");
  server_.add(kKey, torn);
  server_.tear_record(torn);
  server_.add(kKey, server_.store(kKey, "mine"));
  expect_value(kKey, "mine", 3);
}

TEST_F(GetTest, ReadsMoreThanASecondApartAreNotCompared) {
  server_.set_flags(home_of_key, true);
  before_read(3, [&] { clock_.advance(GetMachine::kCompareWindow); });
  expect_missing(kKey, 5);  // the second try takes the pair
  EXPECT_EQ(machine_.counts().retries, 1U);
}

// ------------------------------------------------------- both groups in one READ, overflow known

class GetPairTest : public GetTest {
 protected:
  // The cache knows that the home group overflows.
  void SetUp() override {
    server_.set_flags(home_of_key, true);
    expect_missing(kKey, 3);
    before_.clear();
  }
  // Between its two groups the next READ of the pair sees a change: home first, or last.
  void inside_pair(bool home_first, std::function<void()> change) {
    server_.upper_first = (home_of_key.number % 2 == 1) == home_first;
    server_.inside_pair = std::move(change);
  }
};

TEST_F(GetPairTest, AMissTakesTwoReads) {
  expect_missing(kKey, 2);
}

TEST_F(GetPairTest, AGuestIsFoundWithoutAnotherReadOfAGroup) {
  server_.add_slot(home_of_key.neighbour(), server_.store(kKey, "value"));
  expect_value(kKey, "value", 2);
}

TEST_F(GetPairTest, WhereItOverflowsNoMoreOneReadIsEnough) {
  server_.set_flags(home_of_key, false);
  expect_missing(kKey, 1);
  expect_missing(kKey, 1);
}

// Neither look has it, though it was always there.
TEST_F(GetPairTest, AGuestThatComesHomeBetweenTheTwoIsFound) {
  const Slot slot = server_.store(kKey, "value");
  server_.add_slot(home_of_key.neighbour(), slot);
  inside_pair(true, [&] {
    server_.add(kKey, slot);
    server_.clear_slots(home_of_key.neighbour());
  });
  expect_value(kKey, "value", 4);  // the pair, again: home has changed; the pair, record
  EXPECT_EQ(machine_.counts().retries, 1U);
}

TEST_F(GetPairTest, AKeyThatGoesNextDoorBetweenTheTwoIsFound) {
  const Slot slot = server_.store(kKey, "value");
  server_.add(kKey, slot);
  inside_pair(false, [&] {
    server_.add_slot(home_of_key.neighbour(), slot);
    server_.clear_slots(home_of_key);
  });
  expect_value(kKey, "value", 4);  // the pair, again: the neighbour has changed; the pair, record
  EXPECT_EQ(machine_.counts().retries, 1U);
}

TEST_F(GetPairTest, OneThatChangesBetweenTheReadsIsNoProof) {
  for (const GroupPlace place : {home_of_key, home_of_key.neighbour()}) {
    before_read(2, [&] { server_.change(place, [](Group&, GroupHeader&) {}); });
    expect_missing(kKey, 4);
    EXPECT_EQ(machine_.counts().retries, 1U);
  }
}

TEST_F(GetPairTest, OneThatIsTornInEitherReadIsNoProof) {
  for (const GroupPlace place : {home_of_key, home_of_key.neighbour()}) {
    for (const int read : {1, 2}) {
      before_.clear();
      before_read(read, [&] { server_.tear_group(place); });
      before_read(read + 1, [&] { server_.publish(place, server_.header(place)); });
      expect_missing(kKey, static_cast<std::uint32_t>(read) + 2);
      EXPECT_EQ(machine_.counts().tears, 1U);
    }
  }
}

TEST_F(GetPairTest, FalseFingerprintNextDoorTakesNoMoreGroups) {
  server_.add_slot(home_of_key.neighbour(), foreign_slot(kKey, "owner"));
  expect_missing(kKey, 3);  // the pair, the other's record, the pair
}

// ----------------------------------------------------------------------------- asked of the server

TEST_F(GetTest, SpilledMissGoesToTheServer) {
  server_.set_flags(home_of_key, false, true);
  expect_two_sided(kKey, GetMachine::Reason::kSpilled);
  EXPECT_EQ(machine_.counts().reads, 1U);

  server_.set_flags(home_of_key, true, true);
  expect_two_sided(kKey, GetMachine::Reason::kSpilled);
  EXPECT_EQ(machine_.counts().reads, 2U);
}

TEST_F(GetTest, SpilledHitIsOneSided) {
  server_.add(kKey, server_.store(kKey, "value"));
  server_.set_flags(home_of_key, false, true);
  expect_value(kKey, "value", 2);
}

TEST_F(GetTest, ForwardingGroupGoesToTheServer) {
  server_.set_flags(home_of_key, false, false, true);
  expect_two_sided(kKey, GetMachine::Reason::kMap);
}

}  // namespace
}  // namespace rkv::client
