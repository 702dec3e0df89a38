#include "server/memory/memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "server/memory/memory_sizes.h"
#include "tests/server/store/store_fixture.h"

namespace rkv::server {
namespace {

TEST(StoreMemory, RefusesWhatItCannotBe) {
  const auto code = [](auto change) {
    MemoryOptions options = small_memory();
    change(options);
    const auto made = StoreMemory::create(options, testing::PlainRegion::make);
    return made ? Code{} : made.error().code;
  };
  EXPECT_EQ(code([](auto& o) { o.memory_bytes = kMinMemoryBytes - 1; }), Code::kOutOfMemory);
  EXPECT_EQ(code([](auto& o) { o.memory_bytes = std::size_t{1} << 42; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.memory_bytes = std::size_t{1} << 50; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.epoch = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.groups_per_segment = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.groups_per_segment = 48; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.groups_per_segment = 8192; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.initial_segments = 3; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.max_segments = 1024; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.initial_segments = 16, o.max_segments = 8; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.data_extent_bytes = kMaxExtentBytes + 4096; }),
            Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.data_extent_bytes = 4096; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto& o) { o.index_extent_bytes = 4096; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](auto&) {}), Code{});
}

TEST(StoreMemory, PassesTheErrorOfItsSourceOn) {
  int left = 3;
  const auto source = [&](std::size_t bytes) -> Result<std::unique_ptr<rdma::Region>> {
    if (left-- == 0) return fail(Code::kOutOfMemory, "raise the locked-memory limit");
    return testing::PlainRegion::make(bytes);
  };
  const auto made = StoreMemory::create(small_memory(), source);
  ASSERT_FALSE(made);
  EXPECT_STREQ(made.error().text, "raise the locked-memory limit");
}

TEST(StoreMemory, SizesSuitTheMemory) {
  for (std::size_t memory = kMinMemoryBytes; memory < std::size_t{1} << 40; memory += memory / 7) {
    MemoryOptions given = small_memory();
    given.memory_bytes = memory;
    const MemoryOptions sizes = with_sizes(given);
    EXPECT_TRUE(check_memory_options(sizes)) << memory;
    const std::size_t segment = 64 * kGroupBytes;
    // A new store takes a fraction of its limit; a full one has not too many extents.
    EXPECT_LE(sizes.index_extent_bytes + sizes.data_extent_bytes, memory / 2) << memory;
    EXPECT_LE(memory / sizes.data_extent_bytes + memory / 4 / sizes.index_extent_bytes, kMaxExtents)
        << memory;
    EXPECT_GE(sizes.data_extent_bytes, 4 * kMaxInlineRecordBytes) << memory;
    EXPECT_LE(directory_depth_for(sizes), 24U);
    EXPECT_LE(std::size_t{8} << directory_depth_for(sizes), memory / 64) << memory;
    EXPECT_GE(sizes.initial_segments * 2 * segment, sizes.index_extent_bytes) << memory;
  }
}

TEST(StoreMemory, GrowsToItsLimitAndNotBeyond) {
  std::size_t total = 0;
  const auto source = [&](std::size_t bytes) {
    total += bytes;
    return testing::PlainRegion::make(bytes);
  };
  MemoryOptions options = small_memory();
  options.memory_bytes = std::size_t{50'000'001};
  const auto made = StoreMemory::create(options, source);
  ASSERT_TRUE(made);
  StoreMemory& memory = **made;
  EXPECT_LE(total, options.memory_bytes / 2) << "a new store is small";
  EXPECT_EQ(total, memory.allocated_bytes());
  add_all_data_extents(memory);
  EXPECT_GE(memory.next_extent_bytes(ExtentEntry::kIndex), 64 * kGroupBytes)
      << "data leaves something to the index";
  while (memory.next_extent_bytes(ExtentEntry::kIndex) != 0)
    ASSERT_TRUE(memory.add_extent(ExtentEntry::kIndex));
  EXPECT_EQ(total, memory.allocated_bytes());
  EXPECT_LE(total, options.memory_bytes);
  EXPECT_GE(total, options.memory_bytes - (std::size_t{1} << 20));
  EXPECT_EQ(memory.add_extent(ExtentEntry::kData).error().code, Code::kOutOfMemory);
}

TEST(StoreMemory, ShowsNewExtentsToClients) {
  const auto memory = testing::make_plain_memory(small_memory());
  const auto before = testing::ReferenceReader(memory->root().bytes(), kTestEpoch).extents().size();
  const auto index = memory->add_extent(ExtentEntry::kIndex);
  const auto data = memory->add_extent(ExtentEntry::kData);
  ASSERT_TRUE(index && data);
  const testing::ReferenceReader reader(memory->root().bytes(), kTestEpoch);
  ASSERT_EQ(reader.extents().size(), before + 2);
  EXPECT_EQ(reader.extents()[index->id].kind, ExtentEntry::kIndex);
  EXPECT_EQ(reader.extents()[data->id].address, reinterpret_cast<std::uint64_t>(data->base));
}

// (MEMORY-5)
TEST(StoreMemory, EachNetworkHasARootWithItsOwnKeys) {
  const auto memory = testing::make_plain_memory(small_memory());
  const auto number =
      memory->add_root([](const rdma::Region& region) { return region.remote_key() + 1000; });
  ASSERT_TRUE(number);
  ASSERT_EQ(*number, 1U);
  memory->set_tick(4711);
  ASSERT_TRUE(memory->add_extent(ExtentEntry::kData));
  const testing::ReferenceReader first(memory->root().bytes(), kTestEpoch);
  const testing::ReferenceReader second(memory->root(1).bytes(), kTestEpoch);
  ASSERT_TRUE(first.valid() && second.valid());
  ASSERT_EQ(first.extents().size(), second.extents().size());
  for (std::size_t id = 0; id < first.extents().size(); ++id) {
    EXPECT_EQ(second.extents()[id].remote_key, first.extents()[id].remote_key + 1000);
    EXPECT_EQ(second.extents()[id].address, first.extents()[id].address);
  }
  EXPECT_EQ(std::memcmp(memory->root().bytes().data() + kTickOffset,
                        memory->root(1).bytes().data() + kTickOffset, kRootLineBytes),
            0);
  EXPECT_EQ(memory->root_key(1), memory->root_key(0) + 1000);
}

// (MEMORY-5)
TEST(StoreMemory, KeysAreRewrittenInPlace) {
  std::uint32_t generation = 0;
  const auto memory = testing::make_plain_memory(small_memory());
  ASSERT_TRUE(memory->add_root([&](const rdma::Region&) { return 100 + generation; }));
  const auto before = testing::ReferenceReader(memory->root(1).bytes(), kTestEpoch).extents();
  generation = 1;
  memory->rewrite_keys(1);
  const testing::ReferenceReader reader(memory->root(1).bytes(), kTestEpoch);
  ASSERT_TRUE(reader.valid());
  ASSERT_EQ(reader.extents().size(), before.size());
  for (std::size_t id = 0; id < before.size(); ++id) {
    EXPECT_EQ(before[id].remote_key, 100U);
    EXPECT_EQ(reader.extents()[id].remote_key, 101U);
    EXPECT_EQ(reader.extents()[id].address, before[id].address);
    EXPECT_EQ(reader.extents()[id].units, before[id].units);
  }
  DirectoryLine line;
  std::memcpy(&line, memory->root(1).bytes().data() + kDirectoryLineOffset, sizeof line);
  EXPECT_EQ(line.remote_key, 101U);
  EXPECT_EQ(line.generation, 2U);
}

class Layout : public ::testing::TestWithParam<MemoryOptions> {};

TEST_P(Layout, VerifiesAndCoversEveryHashOnce) {
  const auto memory = testing::make_plain_memory(GetParam());
  ASSERT_NE(memory, nullptr);
  const testing::ReferenceReader reader(memory->root().bytes(), kTestEpoch);
  ASSERT_TRUE(reader.valid());
  EXPECT_EQ(reader.directory().hash_seed, GetParam().hash_seed);

  std::set<std::uint64_t> places;
  const std::uint32_t depth = reader.directory().global_depth;
  const auto segments = std::bit_floor(memory->segments().in_use());
  const std::uint32_t groups = reader.directory().groups_per_segment;
  for (std::uint64_t prefix = 0; prefix < (std::uint64_t{1} << depth); ++prefix) {
    for (std::uint64_t group = 0; group < groups; ++group) {
      const KeyHash hash((depth == 0 ? 0 : prefix << (64 - depth)) | (group << 25) | 0x1FFFFFF);
      const auto place = reader.home(hash);
      ASSERT_TRUE(place);
      EXPECT_EQ(*place, memory->home(hash));
      EXPECT_EQ(memory->home(hash).neighbour(), memory->home(KeyHash(hash.bits() ^ (1U << 25))));
      const Group& found = *memory->group(*place);
      EXPECT_TRUE(verify_group(found, kTestEpoch, *place));
      const GroupHeader header = GroupHeader::decode(found.header);
      EXPECT_TRUE(header.covers(hash));
      EXPECT_EQ(std::uint32_t{1} << header.depth, segments);
      places.insert(place->bits());
    }
  }
  EXPECT_EQ(places.size() * kSlotsPerGroup, memory->slot_count());
}

TEST_P(Layout, DataExtentsAreWholeAndLargeEnough) {
  const auto memory = testing::make_plain_memory(GetParam());
  const testing::ReferenceReader reader(memory->root().bytes(), kTestEpoch);
  for (std::uint32_t id = 0; id < memory->extent_count(); ++id) {
    const StoreMemory::Extent& extent = memory->extent(id);
    if (extent.kind != ExtentEntry::kData) continue;
    const ExtentEntry& entry = reader.extents().at(extent.id);
    EXPECT_EQ(entry.kind, ExtentEntry::kData);
    EXPECT_EQ(entry.address, reinterpret_cast<std::uint64_t>(extent.base));
    EXPECT_EQ(entry.units, extent.units());
    EXPECT_GE(extent.length_bytes, 2 * kMaxInlineRecordBytes);
    EXPECT_LE(extent.length_bytes, kMaxExtentBytes);
  }
}

MemoryOptions many_extents() {
  MemoryOptions options = small_memory();
  options.data_extent_bytes = std::size_t{1} << 20;
  options.index_extent_bytes = std::size_t{32} * kGroupBytes;
  options.groups_per_segment = 32;
  return options;
}
INSTANTIATE_TEST_SUITE_P(Sizes, Layout,
                         ::testing::Values(small_memory(), one_pair(), many_extents()));

TEST(StoreMemory, TickAndMarksVerifyAfterEachChange) {
  const auto memory = testing::make_plain_memory(small_memory());
  const Bytes root = memory->root().bytes();
  const auto value = [&](std::size_t offset) {
    const auto line = open_line<MarkLine>(root, kTestEpoch, offset);
    return line ? line->value : ~std::uint64_t{0};
  };
  EXPECT_EQ(value(kTickOffset), 0U);
  memory->set_tick(77);
  memory->set_marks(Version::of(3, 9), Version::of(3, 8));
  EXPECT_EQ(value(kTickOffset), 77U);
  EXPECT_EQ(value(kWalMarkOffset), Version::of(3, 9).bits);
  EXPECT_EQ(value(kSyncMarkOffset), Version::of(3, 8).bits);
}

TEST(StoreMemory, EachRootHasTheGroupLine) {
  const auto memory = testing::make_plain_memory(small_memory());
  ASSERT_TRUE(memory->add_root([](const rdma::Region& region) { return region.remote_key(); }));
  const auto line_of = [&](std::size_t root) {
    const auto line =
        open_line<GroupLine>(memory->root(root).bytes(), kTestEpoch, kGroupLineOffset);
    EXPECT_TRUE(line);
    return line.value_or(GroupLine{.tick = 1, .replicated = Version{1}});
  };
  for (const std::size_t root : {0U, 1U}) {
    EXPECT_EQ(line_of(root).tick, 0U) << "to be believed before it is written";
    EXPECT_EQ(line_of(root).replicated, Version{});
  }
  memory->set_group_line(123'456'789'012, Version::of(3, 9));
  for (const std::size_t root : {0U, 1U}) {
    EXPECT_EQ(line_of(root).tick, 123'456'789'012U);
    EXPECT_EQ(line_of(root).replicated, Version::of(3, 9));
  }
}

TEST(StoreMemory, AGroupLineThatVerifiesIsOfOneTime) {
  const auto memory = testing::make_plain_memory(small_memory());
  std::atomic<bool> over = false;
  std::thread replicator([&] {
    for (Nanos now = 1; !over; ++now)
      memory->set_group_line(now, Version{static_cast<std::uint64_t>(now)});
  });
  std::vector<std::byte> root(kRootPageBytes);
  for (std::uint64_t last = 0, whole = 0; whole < 2000;) {
    copy_from_shared(root, memory->root().bytes().data());
    const auto line = open_line<GroupLine>(root, kTestEpoch, kGroupLineOffset);
    if (!line) continue;
    ++whole;
    EXPECT_EQ(line->replicated.bits, line->tick);
    EXPECT_GE(line->tick, last);
    last = line->tick;
  }
  over = true;
  replicator.join();
}

TEST(StoreMemoryDeath, PlacesAreChecked) {
  const auto memory = testing::make_plain_memory(small_memory());
  const std::uint32_t data = first_data_extent(*memory).id;
  const auto units = first_data_extent(*memory).units();
  EXPECT_NE(memory->record(Location::of(data, 0)), nullptr);
  EXPECT_DEATH(memory->record(Location::of(0, 0)), "outside the data extents");
  EXPECT_DEATH(memory->record(Location::of(data + 1, 0)), "outside the data extents");
  EXPECT_DEATH(memory->record(Location::of(data, static_cast<std::uint32_t>(units) - 1), 2),
               "outside the data extents");
  EXPECT_DEATH(memory->group({.extent = 99, .number = 0}), "outside the index");
}

}  // namespace
}  // namespace rkv::server
