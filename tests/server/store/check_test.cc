// The findings of Store::check_at_rest(): each test makes the state that one fault of the store
// would leave.
#include <gtest/gtest.h>

#include <functional>

#include "tests/server/store/store_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

using ::testing::Test;

class CheckAtRest : public Test {
 protected:
  static constexpr int kKeys = 70;  // of one pair: some are guests, some are stashed

  CheckAtRest() {
    for (int i = 0; i < kKeys; ++i)
      EXPECT_TRUE(store_.put(as_bytes("key" + std::to_string(i)), as_bytes(std::string(40, 'v'))));
    EXPECT_EQ(store_.check_at_rest(), "");
  }
  // Changes a group, which verifies afterwards.
  void change(std::uint32_t number, const std::function<void(Group&)>& edit) {
    const GroupPlace place{.extent = index_extent(), .number = number};
    Group& group = *memory_->group(place);
    edit(group);
    group.checksum = group_checksum(group, kTestEpoch, place);
  }
  void change_header(std::uint32_t number, const std::function<void(GroupHeader&)>& edit) {
    change(number, [&](Group& group) {
      GroupHeader header = GroupHeader::decode(group.header);
      edit(header);
      group.header = header.encode();
    });
  }
  void expect_found(const std::string& what) {
    const std::string found = store_.check_at_rest();
    EXPECT_NE(found.find(what), std::string::npos) << "found: " << found;
  }
  std::uint32_t index_extent() const {
    std::uint32_t id = 0;
    while (memory_->extent(id).kind != ExtentEntry::kIndex)
      ++id;
    return id;
  }
  std::byte* record(std::uint32_t slot) {
    const Group& group = *memory_->group({.extent = index_extent(), .number = 0});
    return memory_->record(Slot{group.slots[slot]}.location());
  }

  ManualClock clock_;
  std::unique_ptr<StoreMemory> memory_ = testing::make_plain_memory(one_pair());
  std::unique_ptr<CommitLog> log_ = CommitLog::create_volatile();
  Store store_{*memory_, *log_, clock_, kTestBoot};
};

TEST_F(CheckAtRest, AnExpiryThatNobodyWouldNotice) {
  ASSERT_TRUE(store_.put(as_bytes("key3"), as_bytes(std::string(32, 'v')), {.ttl_ms = 1000}));
  EXPECT_EQ(store_.check_at_rest(), "");
  // The same record with an earlier expiry, which no write has noted.
  for (std::size_t i = 0; i < 2 * kSlotsPerGroup; ++i) {
    const GroupPlace place{.extent = index_extent(),
                           .number = static_cast<std::uint32_t>(i / kSlotsPerGroup)};
    const Slot slot{memory_->group(place)->slots[i % kSlotsPerGroup]};
    std::byte* const shared = memory_->record(slot.location());
    std::vector<std::byte> block(shared, shared + slot.units() * kUnitBytes);
    auto record = decode_record(block, kTestEpoch, slot.location());
    if (!record || record->fields.expiry_ms == 0) continue;
    record->fields.expiry_ms = 1;
    std::vector<std::byte> earlier(block.size());
    encode_record(earlier, record->fields, RecordState::kLive, kTestEpoch, slot.location());
    copy_to_shared(shared, earlier);
    expect_found("DUE-1");
    return;
  }
  FAIL() << "the key is in no group";
}

TEST_F(CheckAtRest, ARecordThatWasOverwritten) {
  record(3)[30] ^= std::byte{1};
  expect_found("a record that is not live");
}

TEST_F(CheckAtRest, TwoSlotsThatLeadToOneBlock) {
  change(0, [](Group& group) { group.slots[5] = group.slots[4]; });
  expect_found("two owners use this block");
}

TEST_F(CheckAtRest, AKeyThatHasTwoRecords) {
  ASSERT_TRUE(store_.remove(as_bytes("key0")));
  ASSERT_TRUE(store_.put(as_bytes("key0"), as_bytes(std::string(40, 'v'))));
  // A second record of a key, by a block that was released: nobody counts it.
  const Group& group = *memory_->group({.extent = index_extent(), .number = 0});
  const Slot slot{group.slots[0]};
  const Location beside = Location::of(slot.location().extent(), slot.location().unit() + 20'000);
  std::vector<std::byte> buffer(slot.units() * kUnitBytes);
  const auto view =
      decode_record({memory_->record(slot.location()), buffer.size()}, kTestEpoch, slot.location());
  ASSERT_TRUE(view);
  encode_record(buffer, view->fields, RecordState::kLive, kTestEpoch, beside);
  copy_to_shared(memory_->record(beside), buffer);
  change(0, [&](Group& changed) {
    changed.slots[1] = Slot::of(slot.fingerprint(), slot.units(), beside).bits;
  });
  expect_found("a block that is not allocated");
}

TEST_F(CheckAtRest, ASlotThatWasLost) {
  change(1, [](Group& group) { group.slots[7] = 0; });
  change_header(0, [](GroupHeader& header) { header.overflow = true; });
  EXPECT_NE(store_.check_at_rest(), "");
}

TEST_F(CheckAtRest, FlagsThatAreWrong) {
  change_header(0, [](GroupHeader& header) { header.spilled = !header.spilled; });
  expect_found("(INDEX-3)");
  change_header(0, [](GroupHeader& header) {
    header.spilled = !header.spilled;
    header.overflow = !header.overflow;
  });
  expect_found("(INDEX-2)");
}

TEST_F(CheckAtRest, AGroupThatDoesNotVerify) {
  memory_->group({.extent = index_extent(), .number = 1})->slots[2] ^= 1;
  expect_found("(INDEX-1)");
}

TEST_F(CheckAtRest, ABlockThatNobodyHas) {
  // Begun and never ended, as if a path of the store had forgotten it.
  const auto large = store_.large_records().begin(as_bytes("large"), kMaxInlineBytes + 1, {});
  ASSERT_TRUE(large);
  expect_found("used_bytes");
}

}  // namespace
}  // namespace rkv::server
