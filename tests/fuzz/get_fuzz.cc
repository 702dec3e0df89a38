// A one-sided GET (client/get/get.h) from a server that answers each READ with whatever the input
// says, sealed with right checksums or not: every address is one that was granted (GET-7), the GET
// ends (GET-8), and a value is never another one than a record said that verified (GET-1).
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "client/get/get.h"
#include "common/clock.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/manual_clock.h"

namespace rkv::fuzz {
namespace {

using client::GetMachine;
using client::ReadRequest;
using client::RemoteMap;
using Next = GetMachine::Next;

constexpr std::uint64_t kEpoch = 0x1122334455667788U;
constexpr std::uint64_t kRoot = 0x10000;
constexpr std::uint64_t kDirectory = 0x20000;
constexpr std::uint64_t kHints = 0x30000;
constexpr std::uint64_t kIndex = 0x100000;
constexpr std::uint64_t kData = 0x1000000;
constexpr std::uint32_t kIndexUnits = 0x400;    // 128 groups
constexpr std::uint32_t kDataUnits = 1U << 20;  // 32 MiB: room for a large value
constexpr std::uint32_t kExtents = 2;           // the index, then data
constexpr std::uint8_t kDepth = 2;
constexpr std::uint16_t kGroups = 4;  // a segment
constexpr std::size_t kRootBytes = root_bytes(8);
constexpr std::uint32_t kValueKey = 4711;
constexpr std::string_view kKey = "the key";
constexpr std::size_t kLargeBytes = kMaxInlineBytes + 1;

const KeyHash kHash(as_bytes(kKey), 0x5EED);

struct Truth {
  std::vector<std::byte> root = std::vector<std::byte>(kRootBytes);
  RemoteMap map;

  template <class T>
  void put(T line, std::size_t offset) {
    seal_line(line, kEpoch, offset);
    std::memcpy(root.data() + offset, &line, sizeof line);
  }
  static ExtentEntry extent(std::uint32_t id, std::uint32_t units) {
    return {.address = id == 0 ? kIndex : kData,
            .remote_key = id,
            .units = units,
            .id = id,
            .kind = id == 0 ? ExtentEntry::kIndex : ExtentEntry::kData};
  }
  Truth() {
    put(IdentityLine{.extent_count = kExtents, .epoch = kEpoch}, kIdentityOffset);
    put(MarkLine{.value = 1000}, kTickOffset);
    put(DirectoryLine{.generation = 1,
                      .address = kDirectory,
                      .remote_key = 7,
                      .global_depth = kDepth,
                      .groups_per_segment = kGroups,
                      .hash_seed = 0x5EED},
        kDirectoryLineOffset);
    put(extent(0, kIndexUnits), kExtentTableOffset);
    put(extent(1, kDataUnits), kExtentTableOffset + kExtentEntryBytes);
    map.begin(kEpoch, {.address = kRoot, .remote_key = 1, .length = kRootBytes},
              {.address = kHints, .remote_key = 2, .length = kHintWords * 8}, 3);
    RKV_CHECK(map.apply_identity(root) && map.apply_directory_line(root), "a map");
    (void)map.apply_extents(0, Bytes(root).subspan(kExtentTableOffset, 2 * kExtentEntryBytes));
    std::array<std::byte, 8U << kDepth> words;
    for (std::uint32_t i = 0; i < (1U << kDepth); ++i) {
      store_le(words.data() + (8 * i),
               DirectoryEntry{.extent = 0, .segment = i, .depth = kDepth}.encode(kEpoch));
    }
    map.apply_directory(0, words);
    map.finish();
  }
};

struct Given {
  Version version;
  std::vector<std::byte> value;
};

class LyingServer {
 public:
  LyingServer(Input& input, const Truth& truth) : input_(input), truth_(truth) {}

  void answer(const ReadRequest& read) {
    const std::uint64_t at = read.from.address;
    const MutableBytes to = read.to;
    if (within(at, to, kRoot, kRootBytes)) return from_root(at - kRoot, to);
    if (within(at, to, kDirectory, 8U << kDepth)) return store_le(to.data(), directory_word());
    if (within(at, to, kHints, kHintWords * 8))
      return store_le(to.data(), input_.number<std::uint64_t>());
    if (within(at, to, kIndex, std::uint64_t{kIndexUnits} * kUnitBytes)) {
      for (std::size_t done = 0; done < to.size(); done += kGroupBytes)
        group(static_cast<std::uint32_t>((at - kIndex + done) / kGroupBytes), to.subspan(done));
      return;
    }
    RKV_CHECK(within(at, to, kData, std::uint64_t{kDataUnits} * kUnitBytes),
              "a READ outside of what was granted");
    if (read.local_key == kValueKey) return large_value(to);
    record(Location::of(1, static_cast<std::uint32_t>((at - kData) / kUnitBytes)), to);
  }
  void refresh(RemoteMap& map) {
    std::array<std::byte, 2 * kExtentEntryBytes> table;
    for (std::uint32_t id = 0; id < 2; ++id) {
      const std::uint32_t most = id == 0 ? kIndexUnits : kDataUnits;
      ExtentEntry entry = Truth::extent(id, input_.number<std::uint32_t>() % (most + 1));
      seal_line(entry, kEpoch, kExtentTableOffset + (id * kExtentEntryBytes));
      std::memcpy(table.data() + (id * kExtentEntryBytes), &entry, sizeof entry);
    }
    (void)map.apply_extents(0, table);
    std::array<std::byte, 8U << kDepth> words;
    for (std::uint32_t i = 0; i < (1U << kDepth); ++i)
      store_le(words.data() + (8 * i), directory_word());
    map.apply_directory(0, words);
  }
  bool has_given(Version version, Bytes value) const {
    return std::ranges::any_of(
        given_, [&](const Given& one) { return one.version == version && same(one.value, value); });
  }
  bool group_verified() const { return group_verified_; }

 private:
  static bool within(std::uint64_t at, Bytes to, std::uint64_t from, std::uint64_t length) {
    return at >= from && at - from <= length && to.size() <= length - (at - from);
  }
  void raw(MutableBytes to) {
    const Bytes some = input_.take(std::min<std::size_t>(to.size(), input_.number<std::uint8_t>()));
    std::ranges::fill(to, std::byte{0});
    std::ranges::copy(some, to.begin());
  }
  void from_root(std::size_t offset, MutableBytes to) {
    if (input_.number<std::uint8_t>() % 8 == 0) return raw(to);
    std::memcpy(to.data(), truth_.root.data() + offset, to.size());
  }
  std::uint64_t directory_word() {
    const std::uint32_t kind = input_.number<std::uint8_t>();
    if (kind % 8 == 0) return input_.number<std::uint64_t>();
    return DirectoryEntry{.extent = kind % 8 == 1 ? 9U : 0U,
                          .segment = input_.number<std::uint8_t>(),
                          .depth = kind >> 5U}
        .encode(kEpoch);
  }
  Slot slot() {
    const std::uint32_t kind = input_.number<std::uint8_t>();
    const auto unit = input_.number<std::uint16_t>();
    const auto units = input_.number<std::uint16_t>();
    switch (kind % 8) {
      case 0:
        return Slot::on_disk(kHash);
      case 1:
        return {input_.number<std::uint64_t>()};
      case 2:
        return Slot::of(kHash.fingerprint(), Slot::kLongRecord, Location::of(1, unit));
      case 3:
        return Slot::of(kHash.fingerprint(), units, Location::of(kind >> 3U, unit));
      default:
        return Slot::of(kHash.fingerprint(), units % 8U, Location::of(1, unit));
    }
  }
  void group(std::uint32_t number, MutableBytes to) {
    Group group;
    const std::uint32_t flags = input_.number<std::uint8_t>();
    GroupHeader header{.change = flags >> 6U,
                       .depth = kDepth,
                       .prefix = kHash.prefix() >> (KeyHash::kPrefixBits - kDepth)
                                                       << (KeyHash::kPrefixBits - kDepth),
                       .overflow = (flags & 1U) != 0,
                       .spilled = (flags & 6U) == 6,
                       .forward = (flags & 24U) == 24};
    const bool sealed = (flags & 32U) == 0;
    group.header = (flags & 30U) == 30 ? input_.number<std::uint64_t>() : header.encode();
    for (std::size_t slots = input_.number<std::uint8_t>() % 6; slots > 0; --slots)
      group.slots[slots] = slot().bits;
    if (sealed) group.checksum = group_checksum(group, kEpoch, {.extent = 0, .number = number});
    group_verified_ =
        group_verified_ || (sealed && GroupHeader::decode(group.header).covers(kHash));
    std::memcpy(to.data(), &group, sizeof group);
  }
  void record(Location location, MutableBytes to) {
    const std::uint32_t flags = input_.number<std::uint8_t>();
    if (flags % 8 == 0) return raw(to);
    const bool large = (flags & 7U) == 7;
    const bool counter = !large && (flags & 0x10U) != 0;
    const bool in_cell = counter && (flags & 0x20U) != 0;
    RecordFields fields{.version = Version::of(1, input_.number<std::uint8_t>()),
                        .expiry_ms = (flags & 0x40U) != 0 ? 99U : 0U,
                        .counter = counter,
                        .in_cell = in_cell,
                        .key = as_bytes((flags & 0x80U) != 0 ? std::string_view("another") : kKey)};
    const std::size_t length =
        large     ? kLargeBytes
        : in_cell ? kCellCounterBytes
        : counter ? kCounterBytes
                  : (input_.number<std::uint16_t>() << (flags & 2U)) % (kMaxInlineBytes + 1);
    std::vector<std::byte> value(length, std::byte{input_.number<std::uint8_t>()});
    fields.value = value;
    const auto state = static_cast<RecordState>(input_.number<std::uint8_t>() % 3);
    std::vector<std::byte> bytes(std::max(to.size(), kMaxInlineRecordBytes));
    if (large) {
      fields.digest = value_digest(fields.key, value, kEpoch);
      (void)encode_large_head(bytes, fields, state, kEpoch, location);
    } else {
      (void)encode_record(bytes, fields, state, kEpoch, location);
    }
    const auto wrong = input_.number<std::uint16_t>();
    bytes[wrong % to.size()] ^= std::byte{input_.number<std::uint8_t>()};
    std::memcpy(to.data(), bytes.data(), to.size());
    if ((flags & 0x80U) == 0 && !in_cell && state != RecordState::kPrepared)
      given_.push_back({.version = fields.version, .value = std::move(value)});
  }
  // Fills in the value for which the head of large_ was made, or another one.
  void large_value(MutableBytes to) {
    std::ranges::fill(to, std::byte{input_.number<std::uint8_t>()});
  }

  Input& input_;
  const Truth& truth_;
  std::vector<Given> given_;
  bool group_verified_ = false;
};

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv;
  using namespace rkv::fuzz;
  static const Truth truth;
  static client::GroupCache no_groups(0);
  static client::SlotCache no_slots(0);
  static client::GetMemory memory;
  static std::vector<std::byte> large(GetMachine::kLargeBufferBytes);
  Input input(data, size);
  LyingServer server(input, truth);
  RemoteMap map = truth.map;
  ManualClock clock;
  GetMachine machine(map, no_groups, no_slots, clock);
  std::vector<std::byte> value;
  const auto start = input.number<std::uint8_t>();
  Next next =
      start % 4 != 0
          ? machine.start(as_bytes(kKey), memory)
          : machine.start_at(as_bytes(kKey), memory,
                             Slot::of(kHash.fingerprint(), start >> 2U, Location::of(1, start)),
                             Version::of(1, 1));
  for (int steps = 0;; ++steps) {
    RKV_CHECK(steps < 200, "a GET without an end");
    switch (next) {
      case Next::kRead:
        for (const ReadRequest& read : machine.reads())
          server.answer(read);
        clock.advance(input.number<std::uint8_t>() % 16 == 1 ? GetMachine::kCompareWindow : 1);
        break;
      case Next::kRefreshExtents:
      case Next::kRefreshDirectory:
        server.refresh(map);
        break;
      case Next::kLargeBuffer:
        machine.give_buffer(large);
        break;
      case Next::kValueBuffer:
        RKV_CHECK(machine.value_bytes() <= kMaxValueBytes, "a value beyond the limit");
        value.resize(machine.value_bytes());
        machine.give_value_buffer(value, kValueKey);
        break;
      case Next::kFound:
        RKV_CHECK(server.has_given(machine.version(), machine.value()),
                  "a value of nobody's (GET-1)");
        return 0;
      case Next::kMissing:
        RKV_CHECK(server.group_verified(), "a miss that no group proves (GET-3)");
        return 0;
      case Next::kTwoSided:
        RKV_CHECK(machine.counts().reads <= GetMachine::kMaxReads, "GET-8");
        return 0;
    }
    next = machine.step();
  }
}
