// Large values: the head proved first, the value READ on its own.
#include "tests/client/get/get_fixture.h"

namespace rkv::client {
namespace {

class GetLarge : public GetTest {
 protected:
  static std::string value_of(char letter, std::size_t length = kMaxInlineBytes + 100) {
    return std::string(length, letter);
  }
  Slot store_large(std::string_view value) {
    const Slot slot = server_.store(kKey, value);
    server_.add(kKey, slot);
    return slot;
  }
};

TEST_F(GetLarge, HomeHeadAndValueThenHeadAndValue) {
  const std::string value = value_of('v');
  store_large(value);
  expect_value(kKey, value, 3);
  expect_value(kKey, value, 2);
  EXPECT_EQ(machine_.value().data(), value_.data()) << "where the caller wanted it";
}

TEST_F(GetLarge, TheValueIsReadWithTheKeyOfItsBuffer) {
  store_large(value_of('v'));
  ASSERT_EQ(get(kKey), Next::kFound);
  bool seen = false;
  before_every_ = [&] {
    for (const ReadRequest& read : machine_.reads())
      seen = seen || (read.local_key == 4711U && read.to.data() == value_.data());
  };
  ASSERT_EQ(get(kKey), Next::kFound);
  EXPECT_TRUE(seen);
}

TEST_F(GetLarge, AValueTornBetweenHeadAndValueIsReadAgainIntoTheSameBuffer) {
  const std::string value = value_of('v');
  const Slot slot = store_large(value);
  std::byte& last = server_.record_bytes_at(slot)[record_bytes(7, value.size()) - 1];
  before_read(3, [&] { last ^= std::byte{1}; });
  before_read(4, [&] { last ^= std::byte{1}; });
  expect_value(kKey, value, 6);
  EXPECT_EQ(machine_.counts().tears, 1U);
}

TEST_F(GetLarge, AHeadThatDoesNotVerifyIsNotFollowed) {
  const Slot slot = store_large(value_of('v'));
  server_.tear_record(slot);
  expect_two_sided(kKey, GetMachine::Reason::kContention);
  EXPECT_TRUE(value_.empty()) << "no buffer was asked for";
}

TEST_F(GetLarge, ReplacedAfterTheHeadWasReadItIsStillTheHeadsValue) {
  const std::string value = value_of('v');
  const Slot slot = store_large(value);
  before_read(3, [&] {
    server_.set_state(slot, RecordState::kLive, RecordState::kSuperseded);
    const Slot next = server_.store(kKey, value_of('w'));
    server_.clear_slots(home_of_key);
    server_.add(kKey, next);
  });
  expect_value(kKey, value, 3);
  // The cache leads there still, and gives no licence.
  expect_value(kKey, value_of('w'), 4);
}

TEST_F(GetLarge, TheBlocksNextTenantIsNotReturned) {
  const Slot slot = store_large(value_of('v'));
  before_read(3, [&] { server_.write(slot, kKey, value_of('x'), RecordState::kPrepared); });
  before_read(4, [&] { server_.set_state(slot, RecordState::kPrepared, RecordState::kLive); });
  expect_value(kKey, value_of('x'), 6);
}

TEST_F(GetLarge, AnotherKeyIsAnotherKey) {
  const Slot slot = server_.store("owner", value_of('v'));
  server_.add(kKey,
              Slot::of(ScriptedMemory::hash(kKey).fingerprint(), slot.units(), slot.location()));
  expect_missing(kKey, 3);  // home, head, home again: the value is never READ
}

TEST_F(GetLarge, AnotherLengthOnTheSecondTryTakesAnotherBuffer) {
  const Slot slot = store_large(value_of('v'));
  before_read(3, [&] {
    server_.write(slot, kKey, value_of('x', kMaxInlineBytes + 60), RecordState::kLive);
  });
  expect_value(kKey, value_of('x', kMaxInlineBytes + 60), 6);
}

TEST_F(GetLarge, APlaceThatTheServerNamed) {
  const std::string value = value_of('v');
  const Slot slot = server_.store(kKey, value);  // in no group: stashed
  const Version version = Version::of(1, server_.sequence);
  ASSERT_EQ(get_at(kKey, slot, version), Next::kFound);
  EXPECT_EQ(as_text(machine_.value()), value);
  EXPECT_EQ(machine_.counts().reads, 2U);
  // Replaced since it was named: it was the key's value within this GET.
  server_.set_state(slot, RecordState::kLive, RecordState::kSuperseded);
  ASSERT_EQ(get_at(kKey, slot, version), Next::kFound);
  // But not if it is a version that the server did not name.
  EXPECT_EQ(get_at(kKey, slot, Version::of(1, 999)), Next::kTwoSided);
  server_.tear_record(slot);
  EXPECT_EQ(get_at(kKey, slot, version), Next::kTwoSided);
}

TEST_F(GetLarge, APlaceThatTheServerNamedWithAnotherKeyIsAskedForAgain) {
  const Slot slot = server_.store("owner", value_of('v'));
  EXPECT_EQ(get_at(kKey, slot, Version::of(1, server_.sequence)), Next::kTwoSided);
}

}  // namespace
}  // namespace rkv::client
