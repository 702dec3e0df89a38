// GetMachine with a cache of slots: one READ without a group, and never more than a candidate.
#include <gtest/gtest.h>

#include "tests/client/get/get_fixture.h"

namespace rkv::client {
namespace {

class GetBySlotTest : public GetTest {
 protected:
  GetBySlotTest() { slots_ = SlotCache(1 << 12); }
  static KeyHash hash() { return ScriptedMemory::hash(kKey); }
};

TEST_F(GetBySlotTest, AKeyReadOnceIsOneReadWithoutItsGroup) {
  server_.add(kKey, server_.store(kKey, "value"));
  expect_value(kKey, "value", 2);
  EXPECT_FALSE(machine_.used_cache());
  cache_.clear();
  expect_value(kKey, "value", 1);
  EXPECT_TRUE(machine_.used_cache());
  EXPECT_EQ(cache_.find(home_of_key), nullptr) << "nobody has read the group";
}

TEST_F(GetBySlotTest, AKeyFoundThroughACachedGroupIsThere) {
  const Slot slot = server_.store(kKey, "value");
  server_.add(kKey, slot);
  cache_.put(home_of_key, server_.group(home_of_key));
  expect_value(kKey, "value", 1);
  EXPECT_EQ(slots_.find(hash()), slot);
}

TEST_F(GetBySlotTest, LargeAndLongRecordsToo) {
  const std::string value(kMaxInlineBytes, 'l');
  server_.add(kKey, server_.store(kKey, value));
  expect_value(kKey, value, 3);
  cache_.clear();
  expect_value(kKey, value, 2);
}

// As many READs as a stale group costs: the cached group is not tried as well.
TEST_F(GetBySlotTest, AStaleSlotGoesToTheIndex) {
  const Slot old = server_.store(kKey, "old");
  server_.add(kKey, old);
  expect_value(kKey, "old", 2);
  move(kKey, old, "new");
  expect_value(kKey, "new", 3);
  expect_value(kKey, "new", 1);
}

TEST_F(GetBySlotTest, SupersededIsNeverAnAnswer) {
  const Slot old = server_.store(kKey, "old");
  server_.add(kKey, old);
  expect_value(kKey, "old", 2);
  server_.set_state(old, RecordState::kLive, RecordState::kSuperseded);
  server_.clear_slots(home_of_key);
  expect_missing(kKey, 2);
  EXPECT_TRUE(slots_.find(hash()).empty());
}

TEST_F(GetBySlotTest, AnotherKeysRecordIsNoMiss) {
  const Slot old = server_.store(kKey, "old");
  server_.add(kKey, old);
  expect_value(kKey, "old", 2);
  server_.write(old, "someone", "else", RecordState::kLive);
  server_.clear_slots(home_of_key);
  server_.add(kKey, server_.store(kKey, "elsewhere"));
  expect_value(kKey, "elsewhere", 3);
}

TEST_F(GetBySlotTest, ATornRecordGoesToTheIndex) {
  const Slot slot = server_.store(kKey, "value");
  server_.add(kKey, slot);
  expect_value(kKey, "value", 2);
  server_.record_bytes_at(slot)[26] ^= std::byte{1};
  before_read(2, [&] { server_.record_bytes_at(slot)[26] ^= std::byte{1}; });
  expect_value(kKey, "value", 3);
  EXPECT_EQ(machine_.counts().tears, 1U);
}

TEST_F(GetBySlotTest, ASlotThatLeadsNowhereIsNotRead) {
  server_.add(kKey, server_.store(kKey, "value"));
  const auto fingerprint = hash().fingerprint();
  slots_.put(hash(), Slot::of(fingerprint, 3, Location::of(kMaxExtents - 1, 0)));
  expect_value(kKey, "value", 2);
  slots_.put(hash(),
             Slot::of(fingerprint, 3,
                      Location::of(ScriptedMemory::kDataExtent, ScriptedMemory::kDataUnits)));
  expect_value(kKey, "value", 2);
}

}  // namespace
}  // namespace rkv::client
