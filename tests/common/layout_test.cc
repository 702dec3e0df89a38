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

// LAYOUT-3: one 8-byte store changes the state, from live to each other state.
TEST(Record, StateIsOneXorOnTheChecksumWord) {
  const Location location = Location::of(0, 1);
  auto bytes = make_record("k", "v", RecordState::kLive, location);
  store_le(bytes.data(), load_le<std::uint64_t>(bytes.data()) ^ kSupersededMask);
  EXPECT_EQ(decode_record(bytes, kEpoch, location)->state, RecordState::kSuperseded);
}

// LAYOUT-4: every mixture of bytes of two states' checksum words, apart from the two themselves,
// fails.
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

// The short way says what the long one says, of whole records and of torn ones.
RC_GTEST_PROP(Record, ALiveOneIsDecodedAlikeBothWays, ()) {
  const auto key = *rc::gen::container<std::string>(*rc::gen::inRange<std::size_t>(1, 40),
                                                    rc::gen::arbitrary<char>());
  const bool counter = *rc::gen::inRange(0, 4) == 0;
  const auto value = *rc::gen::container<std::string>(
      counter ? kCounterBytes : *rc::gen::inRange<std::size_t>(0, 300), rc::gen::arbitrary<char>());
  const auto state =
      *rc::gen::element(RecordState::kLive, RecordState::kSuperseded, RecordState::kPrepared);
  const auto expiry = *rc::gen::element(std::uint64_t{0}, std::uint64_t{1'700'000'000'000});
  const Location location = Location::of(0, 9);
  std::vector<std::byte> bytes(2048);
  const std::size_t length = encode_record(bytes,
                                           {.version = Version::of(3, 77),
                                            .expiry_ms = expiry,
                                            .counter = counter,
                                            .key = as_bytes(key),
                                            .value = as_bytes(value)},
                                           state, kEpoch, location);
  bytes.resize(round_up(length, kUnitBytes));
  if (*rc::gen::inRange(0, 3) == 0) {
    bytes[*rc::gen::inRange<std::size_t>(0, length)] ^= std::byte{4};
  }
  const std::string asked = *rc::gen::inRange(0, 4) == 0 ? key + "x" : key;
  const auto whole = decode_record(bytes, kEpoch, location);
  const bool expected =
      whole && whole->state == RecordState::kLive && as_text(whole->fields.key) == asked;
  LiveRecord found{};
  RC_ASSERT(decode_live_record(bytes, kEpoch, location, as_bytes(asked), found) == expected);
  if (!expected) return;
  RC_ASSERT(found.counter == counter);
  RC_ASSERT(found.version == whole->fields.version && found.expiry_ms == whole->fields.expiry_ms);
  RC_ASSERT(found.value == whole->fields.value.data() &&
            found.value_bytes == whole->fields.value.size());
  RC_ASSERT(!decode_live_record(bytes, kEpoch + 1, location, as_bytes(asked), found));
  RC_ASSERT(!decode_live_record(Bytes(bytes).first(length - 1), kEpoch, location, as_bytes(asked),
                                found));
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
  for (const std::size_t most : {kMaxInlineBytes, kMaxValueBytes}) {
    const std::uint64_t digest = is_large(most) ? kRecordDigestFlag : 0;
    store_le(bytes.data() + 16, (std::uint64_t{most} << 32) | digest | 3);
    EXPECT_FALSE(decode_record(bytes, kEpoch, Location::of(0, 0)));
    EXPECT_EQ(claimed_record_bytes(bytes), record_bytes(3, most));
    EXPECT_EQ(claims_large_value(bytes), is_large(most));
    // The length alone decides which records have a digest.
    store_le(bytes.data() + 16, (std::uint64_t{most} << 32) | (digest ^ kRecordDigestFlag) | 3);
    EXPECT_FALSE(claimed_record_bytes(bytes));
  }
  store_le(bytes.data() + 16, (std::uint64_t{kMaxValueBytes + 1} << 32) | kRecordDigestFlag | 3);
  EXPECT_FALSE(claimed_record_bytes(bytes));
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
  EXPECT_LT(Version::of(1, 0xFFFFFFFF), Version::of(2, 0));
  EXPECT_EQ(Version::of(9, 5).boot(), 9U);
  EXPECT_EQ(Version::of(9, 5).sequence(), 5U);
  EXPECT_LT(Version::of(65'535, 1), Version::of(65'536, 1)) << "it has more than 16 bits";
}

TEST(Version, ALongSequenceCountsOnIntoTheBootNumber) {
  constexpr std::uint64_t kLong = (std::uint64_t{3} << 32) + 17;
  EXPECT_EQ(Version::of(9, kLong), Version::of(12, 17));
  EXPECT_TRUE(Version::of(9, kLong).is_since(9));
  EXPECT_EQ(Version::of(9, kLong).sequence_since(9), kLong);
  EXPECT_FALSE(Version::of(8, 0xFFFFFFFF).is_since(9));
  EXPECT_LT(Version::of(9, 0xFFFFFFFF), Version::of(9, 0x100000000));
}

// A record with a large value, the place 32 bytes aligned as in an extent.
std::vector<std::byte> make_large(std::string_view key, Bytes value, std::uint64_t expiry_ms,
                                  Location location) {
  RecordFields fields{.version = Version::of(1, 7),
                      .expiry_ms = expiry_ms,
                      .key = as_bytes(key),
                      .value = value,
                      .digest = value_digest(as_bytes(key), value, kEpoch)};
  std::vector<std::byte> out(record_bytes(key.size(), value.size(), expiry_ms != 0));
  EXPECT_EQ(encode_record(out, fields, RecordState::kLive, kEpoch, location), out.size());
  return out;
}

TEST(LargeRecord, HeadAndValueAreProvedEachOnItsOwn) {
  const std::vector<std::byte> value(kMaxInlineBytes + 1, std::byte{'v'});
  const Location place = Location::of(3, 77);
  for (const std::uint64_t expiry : {0ULL, 1234567ULL}) {
    for (const std::size_t key_bytes : {1U, 7U, 8U, 1024U}) {
      const std::string key(key_bytes, 'k');
      const auto record = make_large(key, value, expiry, place);
      const auto head = decode_large_head(Bytes(record).first(kMaxLargeHeadBytes), kEpoch, place);
      ASSERT_TRUE(head);
      EXPECT_EQ(as_text(head->fields.key), key);
      EXPECT_EQ(head->fields.expiry_ms, expiry);
      EXPECT_EQ(head->fields.version, Version::of(1, 7));
      EXPECT_EQ(head->state, RecordState::kLive);
      EXPECT_EQ(head->value_offset % 8, 0U);
      EXPECT_EQ(head->value_offset + head->value_bytes, record.size());
      EXPECT_EQ(head->fields.digest,
                value_digest(as_bytes(key), Bytes(record).subspan(head->value_offset), kEpoch));
      EXPECT_FALSE(decode_large_head(Bytes(record).first(head->value_offset - 1), kEpoch, place));
      EXPECT_FALSE(decode_large_head(record, kEpoch, Location::of(3, 78)));
      EXPECT_FALSE(decode_large_head(record, kEpoch + 1, place));
      const auto whole = decode_record(record, kEpoch, place);
      ASSERT_TRUE(whole);
      EXPECT_EQ(whole->fields.value.size(), value.size());
    }
  }
}

TEST(LargeRecord, AnyByteThatChangesIsNoticed) {
  const std::vector<std::byte> value(kMaxInlineBytes + 1, std::byte{'v'});
  const Location place = Location::of(0, 0);
  const auto good = make_large("key", value, 0, place);
  const std::size_t head = record_head_bytes(3, value.size(), false);
  for (std::size_t at = 0; at < good.size(); at += at < head + 16 ? 1 : 4099) {
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    EXPECT_FALSE(decode_record(bad, kEpoch, place)) << at;
    EXPECT_EQ(decode_large_head(bad, kEpoch, place).has_value(), at >= head) << at;
  }
}

TEST(LargeRecord, TheDigestIsTheSameInPieces) {
  std::vector<std::byte> value(300'001);
  for (std::size_t i = 0; i < value.size(); ++i)
    value[i] = static_cast<std::byte>(i * 31);
  Xxh3Stream stream(value_digest_seed(as_bytes("key"), kEpoch));
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t length = std::min<std::size_t>(1 + at / 3, value.size() - at);
    stream.update(Bytes(value).subspan(at, length));
    at += length;
  }
  EXPECT_EQ(stream.digest(), value_digest(as_bytes("key"), value, kEpoch));
}

// Both ends of the range, and words that are not numbers: never used, sealed, sealed and added to.
TEST(Cell, TellsNumbersFromSealedWords) {
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1},
                                    kMaxCellNumber, -kMaxCellNumber, kCellEndNumber}) {
    EXPECT_EQ(cell_number(cell_word(number)), number);
    EXPECT_FALSE(cell_number(cell_word(number) + kCellSeal));
    EXPECT_FALSE(cell_number(cell_word(number) + kCellSeal + 100 * kMaxCellSummand));
    EXPECT_FALSE(cell_number(cell_word(number) + kCellSeal - 100 * kMaxCellSummand));
  }
  EXPECT_FALSE(cell_number(0));
  EXPECT_FALSE(cell_number(cell_word(kMaxCellNumber + 1)));
  EXPECT_FALSE(cell_number(cell_word(-kMaxCellNumber - 1)));
}

TEST(Cell, ARecordSaysThatItsNumberIsInOne) {
  std::array<std::byte, kCellCounterBytes> value{};
  std::array<std::byte, 64> bytes{};
  const Location location = Location::of(2, 3);
  const RecordFields fields{.counter = true, .in_cell = true, .key = as_bytes("n"), .value = value};
  const std::size_t length = encode_record(bytes, fields, RecordState::kLive, 99, location);
  const auto record = decode_record(Bytes(bytes).first(length), 99, location);
  ASSERT_TRUE(record);
  EXPECT_TRUE(record->fields.counter && record->fields.in_cell);
  EXPECT_EQ(record->fields.value.size(), kCellCounterBytes);
  // A plain value, or a number without a cell, is never taken for one.
  RecordFields wrong = fields;
  wrong.counter = false;
  const std::size_t plain = encode_record(bytes, wrong, RecordState::kLive, 99, location);
  EXPECT_FALSE(decode_record(Bytes(bytes).first(plain), 99, location));
  wrong = fields;
  wrong.value = Bytes(value).first(kCounterBytes);
  const std::size_t shorter = encode_record(bytes, wrong, RecordState::kLive, 99, location);
  EXPECT_FALSE(decode_record(Bytes(bytes).first(shorter), 99, location));
}

}  // namespace
}  // namespace rkv
