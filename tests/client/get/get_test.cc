// GetMachine: hits, the cache, what is torn, what leads nowhere.
#include <gtest/gtest.h>

#include "tests/client/get/get_fixture.h"

namespace rkv::client {
namespace {

// ------------------------------------------------------------------------- hits, cold and warm

TEST_F(GetTest, ColdHitTakesTwoReadsAndWarmHitOne) {
  server_.add(kKey, server_.store(kKey, "value"));
  expect_value(kKey, "value", 2);
  EXPECT_FALSE(machine_.used_cache());
  expect_value(kKey, "value", 1);
  EXPECT_TRUE(machine_.used_cache());
  EXPECT_EQ(machine_.version(), Version::of(1, 1));
  EXPECT_EQ(machine_.counts().tears, 0U);
}

TEST_F(GetTest, EmptyValueIsAValue) {
  server_.add(kKey, server_.store(kKey, ""));
  expect_value(kKey, "", 2);
}

TEST_F(GetTest, GroupReadForOneKeyWarmsItsOthers) {
  std::string other = "other 0";
  for (int i = 0; ScriptedMemory::home(other) != home_of_key; ++i)
    other = "other " + std::to_string(i);
  server_.add(kKey, server_.store(kKey, "value"));
  server_.add(other, server_.store(other, "value of the other"));
  expect_value(kKey, "value", 2);
  expect_value(other, "value of the other", 1);
}

TEST_F(GetTest, RecordLongerThanTheSmallBufferAsksForALargeOne) {
  const std::string value(100'000, 'v');
  server_.add(kKey, server_.store(kKey, value));
  expect_value(kKey, value, 2);
}

TEST_F(GetTest, LongRecordIsSizedByItsHeader) {
  const std::string value(kMaxInlineBytes, 'l');
  const Slot slot = server_.store(kKey, value);
  ASSERT_TRUE(slot.is_long());
  server_.add(kKey, slot);
  expect_value(kKey, value, 3);
  expect_value(kKey, value, 2);
}

TEST_F(GetTest, LongSlotOfAShortRecordIsNoAnswer) {
  const Slot slot = server_.store(kKey, "short");
  server_.add(kKey, Slot::of(slot.fingerprint(), Slot::kLongRecord, slot.location()));
  expect_two_sided(kKey, GetMachine::Reason::kContention);
}

TEST_F(GetTest, LongRecordThatClaimsToReachBeyondItsExtentIsNotRead) {
  const std::string value(kMaxInlineBytes, 'l');
  const auto units = record_units(record_bytes(7, value.size()));
  server_.next_unit = static_cast<std::uint32_t>(ScriptedMemory::kDataUnits - units);
  const Slot slot = server_.store(kKey, value);
  // The same header further back: all of it would end behind the extent.
  const Slot moved =
      Slot::of(slot.fingerprint(), Slot::kLongRecord,
               Location::of(ScriptedMemory::kDataExtent, slot.location().unit() + 100));
  std::memmove(server_.record_bytes_at(moved).data(), server_.record_bytes_at(slot).data(), 64);
  server_.add(kKey, moved);
  expect_two_sided(kKey, GetMachine::Reason::kContention);
}

// ---------------------------------------------------------------------------------- the cache

TEST_F(GetTest, StaleCacheFallsBackToTheIndex) {
  const Slot old = server_.store(kKey, "old");
  server_.add(kKey, old);
  expect_value(kKey, "old", 2);
  move(kKey, old, "new");
  expect_value(kKey, "new", 3);
  expect_value(kKey, "new", 1);
}

TEST_F(GetTest, SupersededThroughTheCacheIsNeverAnAnswer) {
  const Slot old = server_.store(kKey, "old");
  server_.add(kKey, old);
  expect_value(kKey, "old", 2);
  server_.set_state(old, RecordState::kLive, RecordState::kSuperseded);
  server_.clear_slots(home_of_key);
  expect_missing(kKey, 2);
  EXPECT_EQ(cache_.find(home_of_key)->slots[0], 0U)
      << "the group that was read again replaced the stale one";
}

TEST_F(GetTest, RecycledBlockThroughTheCacheGoesCold) {
  const Slot old = server_.store(kKey, "old");
  server_.add(kKey, old);
  expect_value(kKey, "old", 2);
  server_.write(old, "someone", "else", RecordState::kLive);
  server_.clear_slots(home_of_key);
  expect_missing(kKey, 2);
}

TEST_F(GetTest, MissIsNeverConcludedFromTheCache) {
  expect_missing(kKey, 1);
  EXPECT_NE(cache_.find(home_of_key), nullptr);
  expect_missing(kKey, 1);
  server_.add(kKey, server_.store(kKey, "born"));
  expect_value(kKey, "born", 2);
}

TEST_F(GetTest, CachedNeighbourGivesAWarmHit) {
  server_.set_flags(home_of_key, true);
  server_.add_slot(home_of_key.neighbour(), server_.store(kKey, "next door"));
  expect_value(kKey, "next door", 3);
  expect_value(kKey, "next door", 1);
  EXPECT_TRUE(machine_.used_cache());
}

TEST_F(GetTest, PatchedCacheNamesTheNewPlace) {
  server_.add(kKey, server_.store(kKey, "old"));
  expect_value(kKey, "old", 2);
  const Slot now = server_.store(kKey, "new");
  cache_.patch(home_of_key, now);
  expect_value(kKey, "new", 1);
}

// ------------------------------------------------------------------------- torn and prepared

TEST_F(GetTest, TornGroupIsReadAgain) {
  server_.add(kKey, server_.store("another", "x"));
  server_.group(home_of_key).slots.fill(0);
  server_.publish(home_of_key, server_.header(home_of_key));
  server_.tear_group(home_of_key);
  before_read(2, [&] { server_.publish(home_of_key, server_.header(home_of_key)); });
  server_.group(home_of_key).slots[29] &= ~(std::uint64_t{0xFFFF} << 48);  // no fingerprint of ours
  expect_missing(kKey, 2);
  EXPECT_EQ(machine_.counts().tears, 1U);
  EXPECT_EQ(machine_.counts().retries, 1U);
}

TEST_F(GetTest, LiveRecordCountsEvenWhenTheGroupIsTorn) {
  server_.add(kKey, server_.store(kKey, "value"));
  server_.tear_group(home_of_key);
  expect_value(kKey, "value", 2);
  EXPECT_EQ(machine_.counts().tears, 1U);
  EXPECT_EQ(cache_.find(home_of_key), nullptr) << "a group that did not verify is not cached";
}

TEST_F(GetTest, SupersededThroughATornGroupIsNoAnswer) {
  server_.add(kKey, server_.store(kKey, "old", RecordState::kSuperseded));
  server_.tear_group(home_of_key);
  before_read(3, [&] { server_.clear_slots(home_of_key); });
  expect_missing(kKey, 3);
}

TEST_F(GetTest, TornRecordIsReadAgainFromTheGroup) {
  const Slot slot = server_.store(kKey, "value");
  server_.add(kKey, slot);
  server_.tear_record(slot);
  before_read(4, [&] { server_.tear_record(slot); });  // whole again
  expect_value(kKey, "value", 4);
  EXPECT_EQ(machine_.counts().tears, 1U);
}

TEST_F(GetTest, RecordTornForEverEndsAtTheServerAfterAStatedNumberOfTries) {
  const Slot slot = server_.store(kKey, "value");
  server_.add(kKey, slot);
  server_.tear_record(slot);
  expect_two_sided(kKey, GetMachine::Reason::kContention);
  EXPECT_EQ(machine_.counts().retries, GetMachine::kMaxTries - 1);
  EXPECT_EQ(machine_.counts().reads, 2 * GetMachine::kMaxTries);
}

TEST_F(GetTest, PreparedIsReadAgain) {
  const Slot slot = server_.store(kKey, "value", RecordState::kPrepared);
  server_.add(kKey, slot);
  before_read(4, [&] { server_.set_state(slot, RecordState::kPrepared, RecordState::kLive); });
  expect_value(kKey, "value", 4);
}

TEST_F(GetTest, SupersededAfterItsGroupWasReadIsAnAnswer) {
  const Slot slot = server_.store(kKey, "current when the group was read");
  server_.add(kKey, slot);
  before_read(2, [&] {
    server_.set_state(slot, RecordState::kLive, RecordState::kSuperseded);
    server_.clear_slots(home_of_key);
  });
  expect_value(kKey, "current when the group was read", 2);
  EXPECT_EQ(machine_.state(), RecordState::kSuperseded);
}

TEST_F(GetTest, SupersededFoundInTheNeighbourIsAnAnswerToo) {
  const Slot slot = server_.store(kKey, "value");
  server_.set_flags(home_of_key, true);
  server_.add_slot(home_of_key.neighbour(), slot);
  before_read(3, [&] { server_.set_state(slot, RecordState::kLive, RecordState::kSuperseded); });
  expect_value(kKey, "value", 3);
}

// ----------------------------------------------------------------------- directory and extents

TEST_F(GetTest, StaleDirectoryEntryIsReadAgain) {
  const std::size_t index = ScriptedMemory::hash(kKey).directory_index(ScriptedMemory::kDepth);
  const std::uint64_t right = server_.directory[index];
  server_.directory[index] = server_.directory[index ^ 1];  // leads to a segment not covering
  map_ = server_.load_map();
  server_.directory[index] = right;
  server_.add(kKey, server_.store(kKey, "value"));
  expect_value(kKey, "value", 5);  // wrong group, line and entry, group, record
  expect_value(kKey, "value", 1);
}

TEST_F(GetTest, DirectoryEntryThatIsNoneIsReadAgain) {
  const std::size_t index = ScriptedMemory::hash(kKey).directory_index(ScriptedMemory::kDepth);
  const std::uint64_t right = server_.directory[index];
  server_.directory[index] ^= 1;
  map_ = server_.load_map();
  server_.directory[index] = right;
  expect_missing(kKey, 3);
}

TEST_F(GetTest, DirectoryThatStaysWrongEndsAtTheServer) {
  const std::size_t index = ScriptedMemory::hash(kKey).directory_index(ScriptedMemory::kDepth);
  for (const std::uint64_t wrong :
       {server_.directory[index] ^ 1,
        DirectoryEntry{.extent = 0, .segment = 1000, .depth = 2}.encode(server_.epoch),
        DirectoryEntry{.extent = 0, .segment = 0xFFFFFFFF, .depth = 2}.encode(server_.epoch),
        DirectoryEntry{.extent = ScriptedMemory::kDataExtent, .segment = 0, .depth = 2}.encode(
            server_.epoch),
        DirectoryEntry{.extent = 7, .segment = 0, .depth = 2}.encode(server_.epoch),
        DirectoryEntry{.extent = 0xFFFF, .segment = 0, .depth = 2}.encode(server_.epoch)}) {
    server_.directory[index] = wrong;
    map_ = server_.load_map();
    expect_two_sided(kKey, GetMachine::Reason::kContention);
  }
}

TEST_F(GetTest, DirectoryThatMovedIsLoadedAnew) {
  const std::size_t index = ScriptedMemory::hash(kKey).directory_index(ScriptedMemory::kDepth);
  const std::uint64_t right = server_.directory[index];
  server_.directory[index] ^= 1;
  map_ = server_.load_map();
  server_.directory[index] = right;
  server_.generation = 2;
  server_.write_root();
  expect_missing(kKey, 3);
  EXPECT_EQ(refreshes_, 1);
}

TEST_F(GetTest, TornDirectoryLineIsReadAgain) {
  const std::size_t index = ScriptedMemory::hash(kKey).directory_index(ScriptedMemory::kDepth);
  const std::uint64_t right = server_.directory[index];
  server_.directory[index] ^= 1;
  map_ = server_.load_map();
  server_.directory[index] = right;
  server_.root[kDirectoryLineOffset / 8] ^= 1;
  before_read(3, [&] { server_.write_root(); });
  expect_missing(kKey, 5);
  EXPECT_EQ(machine_.counts().tears, 1U);
}

TEST_F(GetTest, UnknownDataExtentAsksForTheTable) {
  server_.extent_count = 1;
  server_.write_root();
  map_ = server_.load_map();
  server_.add(kKey, server_.store(kKey, "value"));
  server_.extent_count = 2;
  server_.write_root();
  expect_value(kKey, "value", 2);
  EXPECT_EQ(refreshes_, 1);
}

TEST_F(GetTest, ExtentThatNeverComesEndsAtTheServer) {
  server_.add(kKey, Slot::of(ScriptedMemory::hash(kKey).fingerprint(), 4, Location::of(9, 1)));
  expect_two_sided(kKey, GetMachine::Reason::kContention);
  EXPECT_LE(refreshes_, static_cast<int>(GetMachine::kMaxRefreshes));
}

TEST_F(GetTest, SlotsOutOfBoundsAreNeverRead) {
  const auto fingerprint = ScriptedMemory::hash(kKey).fingerprint();
  const Slot wrong[] = {
      Slot::of(fingerprint, 2,
               Location::of(ScriptedMemory::kDataExtent, ScriptedMemory::kDataUnits - 1)),
      Slot::of(fingerprint, 1, Location::of(ScriptedMemory::kDataExtent, 0xFFFFFF)),
      Slot::of(fingerprint, 4, Location::of(ScriptedMemory::kIndexExtent, 0)),
      Slot::of(fingerprint, 4, Location::of(0xFFF, 0)),
      Slot::of(fingerprint, Slot::kLongRecord,
               Location::of(ScriptedMemory::kDataExtent, ScriptedMemory::kDataUnits - 1))};
  for (const Slot slot : wrong) {
    server_.clear_slots(home_of_key);
    server_.add(kKey, slot);
    expect_two_sided(kKey, GetMachine::Reason::kContention);
    cache_.clear();
  }
}

TEST_F(GetTest, ASlotThatSaysThatTheRecordIsOnDiskIsAskedFor) {
  server_.add(kKey, Slot::on_disk(ScriptedMemory::hash(kKey)));
  expect_two_sided(kKey, GetMachine::Reason::kOnDisk);
  // Also when the group is cached: it may have come into memory.
  server_.clear_slots(home_of_key);
  EXPECT_EQ(get(kKey), Next::kMissing);
}

TEST_F(GetTest, ASlotOfAnotherRecordOnDiskIsNone) {
  const KeyHash hash = ScriptedMemory::hash(kKey);
  const KeyHash other(hash.bits() ^ (std::uint64_t{1} << 40));
  ASSERT_EQ(other.fingerprint(), hash.fingerprint());
  server_.add(kKey, Slot::on_disk(other));
  EXPECT_EQ(get(kKey), Next::kMissing);
}

TEST_F(GetTest, NumberOfReadsIsBoundedWhateverIsThere) {
  // Every slot of both groups has our fingerprint, and nothing ever stays as it was.
  server_.set_flags(home_of_key, true);
  for (int i = 0; i < 30; ++i) {
    server_.add(kKey, foreign_slot(kKey, "owner " + std::to_string(i)));
    server_.add_slot(home_of_key.neighbour(), foreign_slot(kKey, "tenant " + std::to_string(i)));
  }
  before_every_ = [&] { server_.change(home_of_key, [](Group&, GroupHeader&) {}); };
  expect_two_sided(kKey, GetMachine::Reason::kReads);
  EXPECT_LE(machine_.counts().reads, GetMachine::kMaxReads);
}

}  // namespace
}  // namespace rkv::client
