// RemoteMap: what it accepts, and that no bytes of a server lead to an address outside of what the
// server granted.
#include "client/get/remote_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "common/random.h"
#include "tests/client/get/scripted_memory.h"

namespace rkv::client {
namespace {

using testing::ScriptedMemory;

Bytes root_of(const ScriptedMemory& server) {
  return std::as_bytes(std::span(server.root));
}

template <class Line>
void put_line(ScriptedMemory& server, Line line, std::size_t offset) {
  seal_line(line, server.epoch, offset);
  std::memcpy(std::as_writable_bytes(std::span(server.root)).data() + offset, &line, sizeof line);
}

TEST(RemoteMap, LoadsAndLooksUp) {
  ScriptedMemory server;
  const RemoteMap map = server.load_map();
  EXPECT_TRUE(map.ready());
  EXPECT_EQ(map.epoch(), server.epoch);
  const KeyHash hash = map.hash(as_bytes("a key"));
  EXPECT_EQ(hash.bits(), ScriptedMemory::hash("a key").bits());
  ASSERT_TRUE(map.home(hash));
  EXPECT_EQ(*map.home(hash), ScriptedMemory::home("a key"));
  const Lookup group = map.group(*map.home(hash));
  ASSERT_EQ(group.kind, Lookup::Kind::kOk);
  EXPECT_EQ(group.range.remote_key, ScriptedMemory::kIndexKey);
  EXPECT_EQ(group.range.address,
            reinterpret_cast<std::uint64_t>(&server.group(ScriptedMemory::home("a key"))));
}

TEST(RemoteMap, HintsAreThoseOfTheLastAccept) {
  ScriptedMemory server;
  RemoteMap map = server.load_map();
  const KeyHash hash = map.hash(as_bytes("a key"));
  map.set_hints({.address = 64, .remote_key = 7, .length = kHintWords * 8});
  ASSERT_TRUE(map.hint(hash));
  EXPECT_EQ(map.hint(hash)->remote_key, 7U);
  map.set_hints({});
  EXPECT_FALSE(map.hint(hash));
  EXPECT_TRUE(map.ready());
}

TEST(RemoteMap, LookupsAreBounded) {
  ScriptedMemory server;
  const RemoteMap map = server.load_map();
  constexpr std::uint32_t kUnits = ScriptedMemory::kDataUnits;
  using Kind = Lookup::Kind;
  EXPECT_EQ(map.record(Location::of(1, kUnits - 1), 32).kind, Kind::kOk);
  EXPECT_EQ(map.record(Location::of(1, kUnits - 1), 33).kind, Kind::kOutOfBounds);
  EXPECT_EQ(map.record(Location::of(1, kUnits), 1).kind, Kind::kOutOfBounds);
  EXPECT_EQ(map.record(Location::of(0, 0), 32).kind, Kind::kOutOfBounds) << "an index extent";
  EXPECT_EQ(map.group({.extent = 1, .number = 0}).kind, Kind::kOutOfBounds) << "a data extent";
  EXPECT_EQ(map.group({.extent = 0, .number = 16}).kind, Kind::kOutOfBounds);
  EXPECT_EQ(map.group({.extent = 0, .number = 0xFFFFFFFF}).kind, Kind::kOutOfBounds);
  EXPECT_EQ(map.group({.extent = 5, .number = 0}).kind, Kind::kUnknownExtent);
  EXPECT_EQ(map.group({.extent = kMaxExtents, .number = 0}).kind, Kind::kOutOfBounds);
  EXPECT_TRUE(map.root(kRootPageBytes, 8));
  EXPECT_FALSE(map.root(root_of(server).size() - 7, 8));
  EXPECT_FALSE(map.root(SIZE_MAX, 8));
  EXPECT_TRUE(map.directory_entry(3));
  EXPECT_FALSE(map.directory_entry(4));
}

TEST(RemoteMap, TornLinesAreToBeReadAgain) {
  ScriptedMemory server;
  RemoteMap map;
  for (const std::size_t offset : {kIdentityOffset, kDirectoryLineOffset, kExtentTableOffset}) {
    // A reserved word; of an entry of the table the length.
    const std::size_t word = offset / 8 + (offset == kExtentTableOffset ? 1 : 6);
    server.root[word] ^= 1;
    const Status loaded = server.load_into(map);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, Code::kBusy);
    EXPECT_FALSE(map.ready());
    server.root[word] ^= 1;
  }
  EXPECT_TRUE(server.load_into(map));
}

TEST(RemoteMap, AnExtentThatIsKnownStaysWhereItWas) {
  ScriptedMemory server;
  RemoteMap map = server.load_map();
  const Location last = Location::of(1, ScriptedMemory::kDataUnits - 1);
  const Bytes entry = root_of(server).subspan(kExtentTableOffset + kExtentEntryBytes);
  const RemoteRange before = map.record(last, 32).range;
  EXPECT_TRUE(map.apply_extents(1, entry.first(kExtentEntryBytes))) << "the same again";
  ExtentEntry shorter;
  std::memcpy(&shorter, entry.data(), sizeof shorter);
  --shorter.units;
  put_line(server, shorter, kExtentTableOffset + kExtentEntryBytes);
  const Status moved = map.apply_extents(1, entry.first(kExtentEntryBytes));
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().code, Code::kCorrupt);
  ASSERT_EQ(map.record(last, 32).kind, Lookup::Kind::kOk);
  EXPECT_EQ(map.record(last, 32).range.address, before.address);
}

TEST(RemoteMap, AnotherEpochDoesNotVerify) {
  ScriptedMemory server;
  RemoteMap map;
  map.begin(server.epoch + 1, server.window());
  EXPECT_FALSE(map.apply_identity(root_of(server)));
  EXPECT_FALSE(map.apply_directory_line(root_of(server)));
}

TEST(RemoteMap, AnotherLayoutIsAVersionMismatch) {
  ScriptedMemory server;
  put_line(server, IdentityLine{.layout_version = kLayoutVersion + 1, .epoch = server.epoch},
           kIdentityOffset);
  RemoteMap map;
  const Status loaded = server.load_into(map);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kVersionMismatch);
}

TEST(RemoteMap, NonsenseWithAValidChecksumIsRefused) {
  ScriptedMemory server;
  RemoteMap map;
  const auto refused = [&](auto edit, Code code) {
    DirectoryLine line = server.directory_line();
    edit(line);
    put_line(server, line, kDirectoryLineOffset);
    const Status loaded = server.load_into(map);
    return !loaded && loaded.error().code == code;
  };
  EXPECT_TRUE(refused([](auto& line) { line.groups_per_segment = 3; }, Code::kCorrupt));
  EXPECT_TRUE(refused([](auto& line) { line.groups_per_segment = 0; }, Code::kCorrupt));
  EXPECT_TRUE(refused([](auto& line) { line.groups_per_segment = 8192; }, Code::kCorrupt));
  EXPECT_TRUE(refused([](auto& line) { line.global_depth = 28; }, Code::kCorrupt));
  EXPECT_TRUE(refused([](auto& line) { line.global_depth = 26; }, Code::kUnsupported));
  EXPECT_TRUE(refused([](auto& line) { line.hash_algorithm = 2; }, Code::kUnsupported));
  EXPECT_TRUE(refused([](auto& line) { line.address = 0; }, Code::kCorrupt));
  EXPECT_TRUE(refused([](auto& line) { line.address = UINT64_MAX - 7; }, Code::kCorrupt));

  server.write_root();
  server.extent_count = ScriptedMemory::kMaxRootExtents + 1;
  put_line(server, IdentityLine{.extent_count = server.extent_count, .epoch = server.epoch},
           kIdentityOffset);
  map.begin(server.epoch, server.window());
  EXPECT_FALSE(map.apply_identity(root_of(server))) << "more extents than the region has room for";
}

TEST(RemoteMap, ExtentEntriesThatLieAreNoExtents) {
  ScriptedMemory server;
  const auto data_kind = [&](ExtentEntry entry) {
    put_line(server, entry, kExtentTableOffset + kExtentEntryBytes);
    RemoteMap map;
    EXPECT_TRUE(server.load_into(map));
    return map.record(Location::of(1, 0), 32).kind;
  };
  const ExtentEntry good{
      .address = 4096, .remote_key = 9, .units = 8, .id = 1, .kind = ExtentEntry::kData};
  EXPECT_EQ(data_kind(good), Lookup::Kind::kOk);
  auto entry = good;
  entry.id = 2;
  EXPECT_EQ(data_kind(entry), Lookup::Kind::kUnknownExtent);
  entry = good;
  entry.units = kMaxExtentUnits + 1;
  EXPECT_EQ(data_kind(entry), Lookup::Kind::kUnknownExtent);
  entry = good;
  entry.address = UINT64_MAX - 63;
  EXPECT_EQ(data_kind(entry), Lookup::Kind::kUnknownExtent);
  entry = good;
  entry.kind = 7;
  EXPECT_EQ(data_kind(entry), Lookup::Kind::kUnknownExtent);
}

TEST(RemoteMap, ExtentsOnlyEverBecomeMore) {
  ScriptedMemory server;
  RemoteMap map = server.load_map();
  put_line(server, IdentityLine{.extent_count = 1, .epoch = server.epoch}, kIdentityOffset);
  EXPECT_TRUE(map.apply_identity(root_of(server)));
  EXPECT_EQ(map.extent_count(), 2U);
  EXPECT_EQ(map.record(Location::of(1, 0), 32).kind, Lookup::Kind::kOk);
}

// ------------------------------------------------------------------------------------- fuzzing

// The ranges that a server may have granted in the fuzz test: what its sealed entries say.
bool inside(const Lookup& found, std::size_t length, std::span<const ExtentEntry> granted) {
  return std::ranges::any_of(granted, [&](const ExtentEntry& entry) {
    const std::uint64_t bytes = std::uint64_t{entry.units} * kUnitBytes;
    return found.range.address >= entry.address && found.range.remote_key == entry.remote_key &&
           found.range.address - entry.address <= bytes &&
           length <= bytes - (found.range.address - entry.address);
  });
}

TEST(RemoteMapFuzz, MutatedBytesNeverLeadOutside) {
  const char* given = std::getenv("RKV_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 0) : random_from_kernel();
  SCOPED_TRACE("repeat with RKV_SEED=" + std::to_string(seed));
  std::printf("RKV_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  ScriptedMemory pristine;
  ScriptedMemory server;
  std::uint64_t loaded = 0;
  for (int i = 0; i < 100'000; ++i) {
    server.root = pristine.root;
    server.directory = pristine.directory;
    ExtentEntry granted[2];
    for (std::uint32_t id = 0; id < 2; ++id) {
      auto& entry = granted[id];
      std::memcpy(&entry, root_of(server).data() + kExtentTableOffset + id * kExtentEntryBytes,
                  sizeof entry);
      // A hostile server: any entry at all, with a right checksum.
      if (random.below(2) == 0) {
        entry.address = random() >> random.below(64);
        entry.units = static_cast<std::uint32_t>(random() >> random.below(64));
        entry.kind = static_cast<std::uint32_t>(random.below(4));
        put_line(server, entry, kExtentTableOffset + id * kExtentEntryBytes);
      }
    }
    // Bits that flipped in a line or entry: what a checksum does not catch must not matter.
    constexpr std::size_t kLines[] = {kIdentityOffset, kDirectoryLineOffset, kExtentTableOffset};
    for (std::uint64_t flips = random.below(3); flips > 0; --flips) {
      const std::size_t word = kLines[random.below(3)] / 8 + random.below(8);
      server.root[word] ^= std::uint64_t{1} << random.below(64);
    }
    for (auto& word : server.directory) {
      if (random.below(2) == 0) word = random();
    }
    RemoteMap map;
    if (!server.load_into(map)) continue;
    ++loaded;
    const KeyHash hash(random());
    if (const auto home = map.home(hash)) {
      const Lookup group = map.group(*home);
      if (group.kind == Lookup::Kind::kOk) {
        ASSERT_TRUE(inside(group, kGroupBytes, granted));
      }
    }
    const Location location{random() >> (28 + random.below(36))};
    const std::size_t length = random.below(kMaxInlineRecordBytes);
    const Lookup record = map.record(location, length);
    if (record.kind == Lookup::Kind::kOk) {
      ASSERT_TRUE(inside(record, length, granted));
    }
  }
  EXPECT_GT(loaded, 1000U);
  RecordProperty("maps_loaded", std::to_string(loaded));
}

}  // namespace
}  // namespace rkv::client
