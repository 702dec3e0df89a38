// A server's memory without a server: root region, directory, one index extent and one data extent
// in plain memory, built with layout.h alone, for tests that script every byte a client READs.
//
//   ScriptedMemory memory;
//   memory.add("key", memory.store("key", "value"));
//   client::RemoteMap map = memory.load_map();
//
// Addresses that a READ names are checked against the four regions; anything else is counted in
// `bad_reads`.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/get/remote_map.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/layout.h"

namespace rkv::testing {

class ScriptedMemory {
 public:
  static constexpr std::uint64_t kEpoch = 0xE90C;
  static constexpr std::uint64_t kSeed = 0x5EED;
  static constexpr std::uint32_t kGroupsPerSegment = 4;
  static constexpr std::uint32_t kSegments = 4;
  static constexpr std::uint32_t kDepth = 2;  // of the directory and of every segment
  static constexpr std::uint32_t kIndexExtent = 0;
  static constexpr std::uint32_t kDataExtent = 1;
  static constexpr std::uint32_t kDataUnits = 1U << 16;
  enum RemoteKey : std::uint32_t { kRootKey = 10, kDirectoryKey, kIndexKey, kDataKey, kHintKey };
  static constexpr std::uint32_t kClientNumber = 0xABCDE;

  explicit ScriptedMemory(std::uint64_t of_epoch = kEpoch)
      : epoch(of_epoch),
        root(root_bytes(kMaxRootExtents) / 8),
        directory(std::size_t{1} << kDepth),
        groups(std::size_t{kGroupsPerSegment} * kSegments),
        data(std::size_t{kDataUnits} * kUnitBytes / 8) {
    for (std::uint32_t segment = 0; segment < kSegments; ++segment) {
      directory[segment] =
          DirectoryEntry{.extent = kIndexExtent, .segment = segment, .depth = kDepth}.encode(epoch);
      for (std::uint32_t i = 0; i < kGroupsPerSegment; ++i) {
        publish({kIndexExtent, segment * kGroupsPerSegment + i},
                {.depth = kDepth, .prefix = segment << (KeyHash::kPrefixBits - kDepth)});
      }
    }
    write_root();
    set_marks({}, {});
  }

  void write_root() {
    const std::uint64_t flags = reports_reads ? IdentityLine::kReportReads : 0;
    seal(IdentityLine{.extent_count = extent_count, .epoch = epoch, .flags = flags},
         kIdentityOffset);
    seal(directory_line(), kDirectoryLineOffset);
    seal_extent(kIndexExtent, std::as_bytes(std::span(groups)), kIndexKey, ExtentEntry::kIndex);
    seal_extent(kDataExtent, std::as_bytes(std::span(data)), kDataKey, ExtentEntry::kData);
  }
  DirectoryLine directory_line() const {
    return {.generation = generation,
            .address = address(std::as_bytes(std::span(directory))),
            .remote_key = kDirectoryKey,
            .global_depth = kDepth,
            .groups_per_segment = kGroupsPerSegment,
            .hash_seed = kSeed};
  }
  RemoteWindow window() const {
    const Bytes bytes = std::as_bytes(std::span(root));
    return {.address = address(bytes),
            .remote_key = kRootKey,
            .length = static_cast<std::uint32_t>(bytes.size())};
  }

  RemoteWindow hint_window() const {
    if (!grants_hints) return {};
    return {.address = address(std::as_bytes(std::span(hints))),
            .remote_key = kHintKey,
            .length = static_cast<std::uint32_t>(hints.size() * 8)};
  }
  void set_tick(std::uint64_t ms) { seal(MarkLine{.value = ms}, kTickOffset); }
  void set_marks(Version wal, Version sync) {
    seal(MarkLine{.value = wal.bits}, kWalMarkOffset);
    seal(MarkLine{.value = sync.bits}, kSyncMarkOffset);
  }
  // Nanoseconds of the server's clock; 0: it must not be believed.
  void set_group_line(Nanos tick) {
    seal(GroupLine{.tick = static_cast<std::uint64_t>(tick), .replicated = replicated},
         kGroupLineOffset);
  }
  void tear_marks() { root[kSyncMarkOffset / 8] ^= 1; }
  std::uint64_t& hint(std::string_view key) { return hints[hash(key).stripe()]; }

  // A map that has read all of it.
  client::RemoteMap load_map() const {
    client::RemoteMap map;
    RKV_CHECK(load_into(map), "memory made here loads");
    return map;
  }
  Status load_into(client::RemoteMap& map) const {
    const Bytes bytes = std::as_bytes(std::span(root));
    map.begin(epoch, window(), hint_window(), kClientNumber);
    RKV_RETURN_IF_ERROR(map.apply_identity(bytes.first(kRootPageBytes)));
    RKV_RETURN_IF_ERROR(map.apply_directory_line(bytes.first(kRootPageBytes)));
    RKV_RETURN_IF_ERROR(
        map.apply_extents(0, bytes.subspan(kExtentTableOffset, extent_count * kExtentEntryBytes)));
    map.apply_directory(0, std::as_bytes(std::span(directory)));
    map.finish();
    return {};
  }

  // ---- groups

  static KeyHash hash(std::string_view key) { return {as_bytes(key), kSeed}; }
  static GroupPlace home(std::string_view key) {
    return {kIndexExtent, hash(key).directory_index(kDepth) * kGroupsPerSegment +
                              hash(key).group_index(kGroupsPerSegment)};
  }
  Group& group(GroupPlace place) { return groups[place.number]; }
  GroupHeader header(GroupPlace place) { return GroupHeader::decode(group(place).header); }
  void publish(GroupPlace place, GroupHeader header) {
    Group& group = groups[place.number];
    group.header = header.encode();
    group.checksum = group_checksum(group, epoch, place);
  }
  // A change as a server publishes it: the counter rises.
  template <class Change>
  void change(GroupPlace place, Change edit) {
    GroupHeader next = header(place);
    ++next.change;
    edit(group(place), next);
    publish(place, next);
  }
  // Puts a slot into the first empty place of a group.
  void add_slot(GroupPlace place, Slot slot) {
    change(place, [&](Group& group, GroupHeader&) {
      for (std::uint64_t& word : group.slots) {
        if (word != 0) continue;
        word = slot.bits;
        return;
      }
    });
  }
  void add(std::string_view key, Slot slot) { add_slot(home(key), slot); }
  void clear_slots(GroupPlace place) {
    change(place, [](Group& group, GroupHeader&) { group.slots.fill(0); });
  }
  void set_flags(GroupPlace place, bool overflow, bool spilled = false, bool forward = false) {
    change(place, [&](Group&, GroupHeader& next) {
      next.overflow = overflow;
      next.spilled = spilled;
      next.forward = forward;
    });
  }
  void tear_group(GroupPlace place) { group(place).slots[29] ^= std::uint64_t{1} << 40; }

  // ---- records

  // Writes a record into fresh units; the slot that points to it, with the key's fingerprint.
  Slot store(std::string_view key, std::string_view value, RecordState state = RecordState::kLive) {
    const Slot slot =
        Slot::of(hash(key).fingerprint(), record_units(record_bytes(key.size(), value.size())),
                 Location::of(kDataExtent, next_unit));
    next_unit += static_cast<std::uint32_t>(record_units(record_bytes(key.size(), value.size())));
    write(slot, key, value, state);
    return slot;
  }
  void write(Slot slot, std::string_view key, std::string_view value, RecordState state) {
    encode_record(
        record_bytes_at(slot),
        {.version = Version::of(1, ++sequence),
         .key = as_bytes(key),
         .value = as_bytes(value),
         .digest =
             is_large(value.size()) ? value_digest(as_bytes(key), as_bytes(value), epoch) : 0},
        state, epoch, slot.location());
  }
  void set_state(Slot slot, RecordState from, RecordState to) {
    std::byte* at = record_bytes_at(slot).data();
    store_le(at, load_le<std::uint64_t>(at) ^ state_mask(from) ^ state_mask(to));
  }
  void tear_record(Slot slot) { record_bytes_at(slot)[12] ^= std::byte{1}; }
  MutableBytes record_bytes_at(Slot slot) {
    return std::as_writable_bytes(std::span(data)).subspan(slot.location().offset());
  }

  // ---- remote access

  // Carries out a compare-and-swap of a hint word.
  bool swap(std::uint64_t at, std::uint32_t key, std::uint64_t compare, std::uint64_t desired,
            MutableBytes old) {
    const std::uint64_t offset = at - address(std::as_bytes(std::span(hints)));
    if (key != kHintKey || offset % 8 != 0 || offset / 8 >= hints.size()) return refuse();
    std::uint64_t& word = hints[offset / 8];
    store_le(old.data(), word);
    if (word == compare) word = desired;
    return true;
  }
  // Carries out a READ; false when it names memory that was not granted.
  bool read(std::uint64_t from, std::uint32_t key, MutableBytes to) {
    const Bytes regions[] = {std::as_bytes(std::span(root)), std::as_bytes(std::span(directory)),
                             std::as_bytes(std::span(groups)), std::as_bytes(std::span(data)),
                             std::as_bytes(std::span(hints))};
    if (key < kRootKey || key > kHintKey) return refuse();
    const Bytes region = regions[key - kRootKey];
    const std::uint64_t offset = from - address(region);
    if (from < address(region) || offset > region.size() || to.size() > region.size() - offset) {
      return refuse();
    }
    if (inside_pair && key == kIndexKey && to.size() == 2 * kGroupBytes) {
      for (const std::size_t half : {std::size_t{upper_first}, std::size_t{!upper_first}}) {
        std::memcpy(to.data() + half * kGroupBytes, region.data() + offset + half * kGroupBytes,
                    kGroupBytes);
        if (const auto step = std::exchange(inside_pair, nullptr)) step();
      }
      return true;
    }
    std::memcpy(to.data(), region.data() + offset, to.size());
    return true;
  }

  static std::uint64_t address(Bytes bytes) {
    return reinterpret_cast<std::uint64_t>(bytes.data());
  }

  static constexpr std::uint32_t kMaxRootExtents = 16;
  std::uint64_t epoch;
  std::uint64_t generation = 1;
  std::uint32_t extent_count = 2;
  bool reports_reads = false;       // the server wants to be told what is READ; then write_root()
  std::vector<std::uint64_t> root;  // words, for their alignment
  std::vector<std::uint64_t> directory;
  std::vector<Group> groups;
  std::vector<std::uint64_t> data;
  std::vector<std::uint64_t> hints = std::vector<std::uint64_t>(kHintWords);
  bool grants_hints = false;
  std::uint32_t next_unit = 1;
  std::uint64_t sequence = 0;
  Version replicated = Version::of(1, 1U << 20);  // in the group line
  // Once, between the two groups of a READ that takes both.
  std::function<void()> inside_pair;
  bool upper_first = false;
  int bad_reads = 0;

 private:
  bool refuse() {
    ++bad_reads;
    return false;
  }
  template <class Line>
  void seal(Line line, std::size_t offset) {
    seal_line(line, epoch, offset);
    std::memcpy(std::as_writable_bytes(std::span(root)).data() + offset, &line, sizeof line);
  }
  void seal_extent(std::uint32_t id, Bytes memory, std::uint32_t key, ExtentEntry::Kind kind) {
    seal(ExtentEntry{.address = address(memory),
                     .remote_key = key,
                     .units = static_cast<std::uint32_t>(memory.size() / kUnitBytes),
                     .id = id,
                     .kind = kind},
         kExtentTableOffset + id * kExtentEntryBytes);
  }
};

}  // namespace rkv::testing
