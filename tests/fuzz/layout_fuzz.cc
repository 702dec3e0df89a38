// The memory that a client READs (common/layout.h, client/get/remote_map.h): records by three
// decoders that must agree, and a map that hands out no address outside of the extents (MEMORY-1).
// Checksums are put right where the input says so; otherwise none of it would be looked at.
#include <array>
#include <cstring>
#include <vector>

#include "client/get/remote_map.h"
#include "common/layout.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

constexpr std::uint64_t kEpoch = 0x1122334455667788U;

// Where what the checksum word covers ends, by the lengths alone.
std::size_t covered(Bytes bytes) {
  const auto lengths = load_le<std::uint64_t>(bytes.data() + 16);
  const std::size_t head = record_key_offset(lengths) + record_key_length(lengths);
  return (lengths & kRecordDigestFlag) != 0 ? round_up(head, 8) : head + (lengths >> 32);
}

void check_ordinary(Bytes bytes, const RecordView& view, Location location) {
  const std::size_t total = covered(bytes);
  RKV_CHECK(total <= bytes.size() && claimed_record_bytes(bytes) == total, "two lengths");
  const bool has_expiry = (load_le<std::uint64_t>(bytes.data() + 16) & kRecordExpiryFlag) != 0;
  if (has_expiry && view.fields.expiry_ms == 0) return;  // never: no server says so in this way
  std::vector<std::byte> again(total);
  RKV_CHECK(encode_record(again, view.fields, view.state, kEpoch, location) == total &&
                same(again, bytes.first(total)),
            "a record that no encoder makes");
}

void record(Bytes given, Location location, unsigned how) {
  std::vector<std::byte> copy(given.begin(), given.end());
  if ((how & 1U) != 0 && copy.size() >= kRecordHeaderBytes && covered(copy) <= copy.size()) {
    const Bytes sealed = Bytes(copy).subspan(8, covered(copy) - 8);
    store_le(copy.data(), line_checksum(sealed, kEpoch, location.bits) ^
                              state_mask(static_cast<RecordState>((how >> 1U) % 3)));
  }
  copy.resize(round_up(copy.size(), kUnitBytes));  // as a READ has it
  const Exact exact(copy);
  const Bytes bytes = exact.bytes();
  const auto whole = decode_record(bytes, kEpoch, location);
  const auto head = decode_large_head(bytes, kEpoch, location);
  if (whole && whole->fields.digest == 0) check_ordinary(bytes, *whole, location);
  const Bytes key = whole ? whole->fields.key : as_bytes("k");
  LiveRecord live{};
  const bool is_live = decode_live_record(bytes, kEpoch, location, key, live);
  const bool wanted = whole && whole->state == RecordState::kLive && !whole->fields.in_cell &&
                      !is_large(whole->fields.value.size());
  RKV_CHECK(is_live == wanted, "two decoders of a live record disagree");
  if (is_live) {
    RKV_CHECK(live.version == whole->fields.version && live.value == whole->fields.value.data() &&
                  live.value_bytes == whole->fields.value.size() &&
                  live.expiry_ms == whole->fields.expiry_ms &&
                  live.counter == whole->fields.counter,
              "two readings of a live record");
  }
  if (head) {
    RKV_CHECK(claims_large_value(bytes) && is_large(head->value_bytes) &&
                  head->value_bytes <= kMaxValueBytes && head->value_offset <= bytes.size(),
              "a large head that is none");
  }
}

ExtentEntry extent(Input& input, std::uint32_t id) {
  const std::uint32_t kind = input.number<std::uint8_t>();
  ExtentEntry entry{.address = input.number<std::uint64_t>(),
                    .remote_key = id,
                    .units = input.number<std::uint32_t>(),
                    .id = kind % 8 == 7 ? id + 1 : id,
                    .kind = kind % 4U};
  if (kind % 2 == 0) entry.address &= ~std::uint64_t{7};
  seal_line(entry, kEpoch, kExtentTableOffset + (id * kExtentEntryBytes));
  if (kind >= 240) entry.checksum ^= 1;
  return entry;
}

// Within an extent that the table holds, and at a place that exists.
void expect_granted(const client::Lookup& found, std::uint64_t length,
                    const std::vector<ExtentEntry>& table) {
  if (found.kind != client::Lookup::Kind::kOk) return;
  const std::uint32_t id = found.range.remote_key;
  RKV_CHECK(id < table.size(), "an extent that is not there");
  const ExtentEntry& entry = table[id];
  const std::uint64_t offset = found.range.address - entry.address;
  RKV_CHECK(offset + length <= std::uint64_t{entry.units} * kUnitBytes &&
                found.range.address >= entry.address && entry.address != 0 &&
                found.range.address + length >= found.range.address,
            "an address beside its extent (MEMORY-1)");
  RKV_CHECK(found.range.address % 8 == 0, "an address that no atomic can have");
}

void map(Input& input) {
  std::vector<std::byte> page(kRootPageBytes);
  const auto put = [&](auto line, std::size_t offset) {
    seal_line(line, kEpoch, offset);
    std::memcpy(page.data() + offset, &line, sizeof line);
  };
  const auto count = input.number<std::uint16_t>();
  put(IdentityLine{.layout_version = input.number<std::uint8_t>() == 9 ? 2 : kLayoutVersion,
                   .extent_count = count % 16U == 15U ? count : count % 16U,
                   .epoch = kEpoch},
      kIdentityOffset);
  put(DirectoryLine{.generation = 1,
                    .address = input.number<std::uint64_t>() & ~std::uint64_t{7},
                    .remote_key = 1,
                    .global_depth = static_cast<std::uint8_t>(input.number<std::uint8_t>() % 10),
                    .groups_per_segment = input.number<std::uint16_t>(),
                    .hash_seed = input.number<std::uint64_t>()},
      kDirectoryLineOffset);
  client::RemoteMap map;
  const RemoteWindow root{.address = input.number<std::uint64_t>(),
                          .remote_key = 1,
                          .length = input.number<std::uint32_t>()};
  map.begin(kEpoch, root, {.address = input.number<std::uint64_t>(), .length = 4096});
  if (!map.apply_identity(page) || !map.apply_directory_line(page)) return;
  std::vector<ExtentEntry> table;
  std::vector<std::byte> bytes;
  for (std::uint32_t id = 0; id < map.extent_count() && id < 16; ++id) {
    table.push_back(extent(input, id));
    const Bytes entry = std::as_bytes(std::span(&table.back(), 1));
    bytes.insert(bytes.end(), entry.begin(), entry.end());
  }
  (void)map.apply_extents(0, bytes);
  for (std::size_t i = 0; i < map.directory_entries() && !input.empty(); ++i) {
    const std::uint32_t kind = input.number<std::uint8_t>();
    std::array<std::byte, 8> word{};
    store_le(word.data(), kind % 4 == 0 ? input.number<std::uint64_t>()
                                        : DirectoryEntry{.extent = kind >> 4U,
                                                         .segment = input.number<std::uint32_t>(),
                                                         .depth = kind % 16U}
                                              .encode(kEpoch));
    if (kind % 4 == 3) {
      map.apply_directory_entry(i, load_le<std::uint64_t>(word.data()));
    } else {
      map.apply_directory(i, word);
    }
  }
  map.finish();
  for (const std::uint64_t bits :
       {std::uint64_t{0}, ~std::uint64_t{0}, input.number<std::uint64_t>()}) {
    const KeyHash hash(bits);
    if (const auto home = map.home(hash)) {
      expect_granted(map.group(*home), kGroupBytes, table);
      expect_granted(map.group_pair(*home), 2 * kGroupBytes, table);
    }
    const auto at = input.number<std::uint64_t>();
    const auto length = input.number<std::uint32_t>() % (2 * kMaxValueBytes);
    expect_granted(map.record(Location{at & 0xFFFFFFFFFU}, length), length, table);
    RKV_CHECK(!map.root(at, length) || at + length <= root.length, "beside the root window");
    RKV_CHECK(map.directory_index(hash) < map.directory_entries(), "beside the directory");
  }
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv::fuzz;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  if (which % 4 == 3) {
    map(input);
    return 0;
  }
  const rkv::Location location{input.number<std::uint64_t>() & 0xFFFFFFFFFU};
  record(input.rest(), location, which / 4U);
  return 0;
}
