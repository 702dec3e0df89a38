#include "common/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace rkv {
namespace {

constexpr std::uint64_t kEpoch = 0x1122334455667788U;

std::vector<std::byte> make_record(std::string_view key, std::string_view value, RecordState state,
                                   Location location, std::uint64_t expiry_ms = 0) {
  std::vector<std::byte> bytes(
      round_up(record_bytes(key.size(), value.size(), expiry_ms != 0), kUnitBytes));
  encode_record(bytes,
                {.version = Version::of(3, 77),
                 .expiry_ms = expiry_ms,
                 .key = as_bytes(key),
                 .value = as_bytes(value)},
                state, kEpoch, location);
  return bytes;
}

TEST(Record, RoundTripsInEveryState) {
  const Location location = Location::of(5, 1234);
  for (const auto state : {RecordState::kLive, RecordState::kSuperseded, RecordState::kPrepared}) {
    for (const std::uint64_t expiry : {std::uint64_t{0}, std::uint64_t{1'700'000'000'000}}) {
      const auto bytes = make_record("key", "value", state, location, expiry);
      const auto view = decode_record(bytes, kEpoch, location);
      ASSERT_TRUE(view);
      EXPECT_EQ(view->state, state);
      EXPECT_EQ(as_text(view->fields.key), "key");
      EXPECT_EQ(as_text(view->fields.value), "value");
      EXPECT_EQ(view->fields.version, Version::of(3, 77));
      EXPECT_EQ(view->fields.expiry_ms, expiry);
    }
  }
}

TEST(Record, ProvesEpochAndLocation) {
  const Location location = Location::of(5, 1234);
  const auto bytes = make_record("key", "value", RecordState::kLive, location);
  EXPECT_FALSE(decode_record(bytes, kEpoch + 1, location));
  EXPECT_FALSE(decode_record(bytes, kEpoch, Location::of(5, 1235)));
  EXPECT_FALSE(decode_record(bytes, kEpoch, Location::of(6, 1234)));
}

// L3: one 8-byte store changes the state, from live to each other state.
TEST(Record, StateIsOneXorOnTheChecksumWord) {
  const Location location = Location::of(0, 1);
  auto bytes = make_record("k", "v", RecordState::kLive, location);
  store_le(bytes.data(), load_le<std::uint64_t>(bytes.data()) ^ kSupersededMask);
  EXPECT_EQ(decode_record(bytes, kEpoch, location)->state, RecordState::kSuperseded);
}

// L4: every mixture of bytes of two states' checksum words, apart from the two themselves, fails.
TEST(Record, AStateWordTornAtAnyByteIsNoState) {
  const Location location = Location::of(1, 2);
  const RecordState states[] = {RecordState::kLive, RecordState::kSuperseded,
                                RecordState::kPrepared};
  for (const auto from : states) {
    for (const auto to : states) {
      if (from == to) continue;
      const auto old_bytes = make_record("key", "value", from, location);
      const auto new_bytes = make_record("key", "value", to, location);
      for (unsigned mixture = 1; mixture < 255; ++mixture) {
        auto torn = old_bytes;
        for (unsigned i = 0; i < 8; ++i) {
          if ((mixture >> i) & 1U) torn[i] = new_bytes[i];
        }
        EXPECT_FALSE(decode_record(torn, kEpoch, location)) << mixture;
      }
    }
  }
}

RC_GTEST_PROP(Record, ATearBetweenTwoValuesIsDetected, ()) {
  const auto length = *rc::gen::inRange<std::size_t>(1, 600);
  const auto byte = rc::gen::arbitrary<char>();
  const auto before = *rc::gen::container<std::string>(length, byte);
  const auto after = *rc::gen::container<std::string>(length, byte);
  const Location location = Location::of(0, 9);
  const auto a = make_record("some key", before, RecordState::kLive, location);
  const auto b = make_record("some key", after, RecordState::kLive, location);
  const auto cut = *rc::gen::inRange<std::size_t>(0, a.size());
  auto torn = a;
  std::copy(b.begin() + static_cast<std::ptrdiff_t>(cut), b.end(),
            torn.begin() + static_cast<std::ptrdiff_t>(cut));
  if (torn == a || torn == b) return;
  RC_ASSERT(!decode_record(torn, kEpoch, location));
}

RC_GTEST_PROP(Record, RandomBytesNeverVerifyAndNeverReadOutOfBounds,
              (const std::vector<std::uint8_t>& bytes)) {
  RC_ASSERT(!decode_record(std::as_bytes(std::span(bytes)), kEpoch, Location::of(0, 0)));
}

TEST(Record, LengthsAreCheckedBeforeAnythingElse) {
  auto bytes = make_record("key", "value", RecordState::kLive, Location::of(0, 0));
  store_le(bytes.data() + 16, ~std::uint64_t{0});
  EXPECT_FALSE(decode_record(bytes, kEpoch, Location::of(0, 0)));
  EXPECT_FALSE(claimed_record_bytes(bytes));
  store_le(bytes.data() + 16, (std::uint64_t{kMaxValueBytes} << 32) | 3);
  EXPECT_FALSE(decode_record(bytes, kEpoch, Location::of(0, 0)));
  EXPECT_EQ(claimed_record_bytes(bytes), record_bytes(3, kMaxValueBytes));
  EXPECT_FALSE(decode_record(Bytes(bytes).first(kRecordHeaderBytes - 1), kEpoch, {}));
}

TEST(Group, ChecksumProvesPlaceAndEpoch) {
  Group group;
  group.header = GroupHeader{.change = 7, .depth = 4, .prefix = 5U << 23}.encode();
  group.slots[3] = Slot::of(0xBEEF, 4, Location::of(2, 99)).bits;
  const GroupPlace place{.extent = 1, .number = 6};
  group.checksum = group_checksum(group, kEpoch, place);
  EXPECT_TRUE(verify_group(group, kEpoch, place));
  EXPECT_FALSE(verify_group(group, kEpoch, place.neighbour()));
  EXPECT_FALSE(verify_group(group, kEpoch ^ 1, place));
  group.slots[29] ^= 1;
  EXPECT_FALSE(verify_group(group, kEpoch, place));
}

RC_GTEST_PROP(GroupHeader, RoundTrips,
              (std::uint32_t change, std::uint32_t prefix, bool overflow, bool spilled,
               bool forward)) {
  const auto depth = *rc::gen::inRange(0U, 28U);
  const GroupHeader header{.change = change & 0xFFFFFFFU,
                           .depth = depth,
                           .prefix = prefix & 0x7FFFFFFU,
                           .overflow = overflow,
                           .spilled = spilled,
                           .forward = forward};
  const GroupHeader back = GroupHeader::decode(header.encode());
  RC_ASSERT(back.encode() == header.encode());
  RC_ASSERT(back.change == header.change && back.depth == depth && back.prefix == header.prefix);
  RC_ASSERT(back.overflow == overflow && back.spilled == spilled && back.forward == forward);
}

RC_GTEST_PROP(GroupHeader, CoversExactlyTheHashesWithItsPrefix, (std::uint64_t hash)) {
  const auto depth = *rc::gen::inRange(0U, 28U);
  const KeyHash key(hash);
  const std::uint32_t own = depth == 0 ? 0 : key.prefix() >> (27 - depth) << (27 - depth);
  GroupHeader header{.depth = depth, .prefix = own};
  RC_ASSERT(header.covers(key));
  if (depth > 0) {
    header.prefix ^= 1U << (27 - depth);
    RC_ASSERT(!header.covers(key));
  }
  header.depth = 28;  // no such depth: from a peer's bytes, never trusted
  RC_ASSERT(!header.covers(key));
}

TEST(Slot, RoundTripsItsFields) {
  const Slot slot = Slot::of(0xFFFF, 4094, Location::of(4095, 0xFFFFFF));
  EXPECT_EQ(slot.fingerprint(), 0xFFFF);
  EXPECT_EQ(slot.units(), 4094U);
  EXPECT_EQ(slot.location(), Location::of(4095, 0xFFFFFF));
  EXPECT_FALSE(slot.is_long());
  EXPECT_TRUE(Slot::of(0, 4095, {}).is_long());
  EXPECT_TRUE(Slot::of(0, 100'000, {}).is_long());
  EXPECT_TRUE(Slot{}.empty());
}

TEST(KeyHash, BitRangesAreDisjointAndCoverTheWord) {
  const KeyHash hash(0xFEDCBA9876543210U);
  const std::uint64_t joined = (std::uint64_t{hash.prefix()} << 37) |
                               (std::uint64_t{hash.group_index(4096)} << 25) |
                               (std::uint64_t{hash.stripe()} << 16) | hash.fingerprint();
  EXPECT_EQ(joined, hash.bits());
  EXPECT_EQ(hash.directory_index(0), 0U);
  EXPECT_EQ(hash.directory_index(27), hash.prefix());
}

TEST(Directory, EntryChecksItself) {
  const DirectoryEntry entry{.extent = 7, .segment = 0xDEADBEEF, .depth = 13};
  const std::uint64_t word = entry.encode(kEpoch);
  const auto back = DirectoryEntry::decode(word, kEpoch);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->extent, 7U);
  EXPECT_EQ(back->segment, 0xDEADBEEFU);
  EXPECT_EQ(back->depth, 13U);
  EXPECT_FALSE(DirectoryEntry::decode(word ^ 1, kEpoch));
}

TEST(Root, LinesProveTheirOffset) {
  std::vector<std::byte> root(kRootPageBytes);
  MarkLine line{.value = 42};
  seal_line(line, kEpoch, kWalMarkOffset);
  std::memcpy(root.data() + kWalMarkOffset, &line, sizeof line);
  std::memcpy(root.data() + kSyncMarkOffset, &line, sizeof line);
  EXPECT_EQ(open_line<MarkLine>(root, kEpoch, kWalMarkOffset)->value, 42U);
  EXPECT_FALSE(open_line<MarkLine>(root, kEpoch, kSyncMarkOffset));
  EXPECT_FALSE(open_line<MarkLine>(Bytes(root).first(200), kEpoch, kWalMarkOffset));
}

TEST(Version, OrdersByBootThenSequence) {
  EXPECT_LT(Version::of(1, 0xFFFFFFFFFFFF), Version::of(2, 0));
  EXPECT_EQ(Version::of(9, 5).boot(), 9);
  EXPECT_EQ(Version::of(9, 5).sequence(), 5U);
}

}  // namespace
}  // namespace rkv
