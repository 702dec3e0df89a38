// The memory that clients READ: root region, directory, groups, records. LAYOUT.md specifies every
// byte with a worked example; this file implements it. Little-endian throughout.
//
// Invariants (numbers are cited where code relies on them):
//  LAYOUT-1  Clients act only on data whose checksum they have verified; the checksum covers all of
//      that data. The directory alone is a hint: it is bounds-checked, then proved by the group
//      that it leads to.
//  LAYOUT-2  A group's checksum covers its epoch and its place, so a group proves which group it
//      is.
//  LAYOUT-3  A record's checksum covers its epoch, its location and its key. The record's state
//      (live, superseded, prepared) is encoded in the same 8-byte word. So one store changes the
//      state, and the word that a READ fetched proves the state.
//  LAYOUT-4  The three state masks differ in every byte: a word torn between two states of a record
//      equals none of the three.
//  LAYOUT-5  Change counters only increase (28 bits, wrapping); versions are never used twice.
//
// Thread safety: values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "common/bytes.h"
#include "common/hash.h"
#include "common/random.h"
#include "rkv/limits.h"
#include "rkv/result.h"

namespace rkv {

// ---------------------------------------------------------------------------- units and places

inline constexpr std::size_t kUnitBytes = 32;  // records are stored in whole units
inline constexpr std::size_t kGroupBytes = 256;
inline constexpr std::size_t kSlotsPerGroup = 30;
inline constexpr std::uint32_t kMaxExtents = 4096;
inline constexpr std::uint64_t kMaxExtentUnits = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMaxExtentBytes = kMaxExtentUnits * kUnitBytes;  // 512 MiB

// Where a record starts: extent 12 bits, unit within the extent 24 bits.
struct Location {
  std::uint64_t bits = 0;  // 36 bits
  static constexpr Location of(std::uint32_t extent, std::uint32_t unit) {
    return {(std::uint64_t{extent} << 24) | unit};
  }
  constexpr std::uint32_t extent() const { return static_cast<std::uint32_t>(bits >> 24); }
  constexpr std::uint32_t unit() const { return static_cast<std::uint32_t>(bits) & 0xFFFFFFU; }
  constexpr std::uint64_t offset() const { return std::uint64_t{unit()} * kUnitBytes; }
  friend constexpr bool operator==(Location, Location) = default;
};

// Identifies a group by its extent and its number, counted from the extent's start. The number is
// segment x groups_per_segment + index in the segment, so it also proves the index.
struct GroupPlace {
  std::uint32_t extent = 0;
  std::uint32_t number = 0;
  constexpr std::uint64_t bits() const { return (std::uint64_t{extent} << 32) | number; }
  constexpr std::uint64_t offset() const { return std::uint64_t{number} * kGroupBytes; }
  constexpr GroupPlace neighbour() const { return {extent, number ^ 1U}; }
  friend constexpr bool operator==(GroupPlace, GroupPlace) = default;
};

// ---------------------------------------------------------------------------------------- slots

// An index entry: fingerprint 16 | length in units 12 | location 36. Zero = empty. Length 0: the
// record is on disk only. The location field then holds prefix 27 | upper 8 of the 9 hint-stripe
// bits | 1, where prefix and stripe are from the key's hash.
struct Slot {
  std::uint64_t bits = 0;
  static constexpr std::uint32_t kLongRecord = 0xFFF;  // 4095 units or more: see the record header

  static constexpr Slot of(std::uint16_t fingerprint, std::uint64_t units, Location location) {
    const std::uint64_t length = units < kLongRecord ? units : kLongRecord;
    return {(std::uint64_t{fingerprint} << 48) | (length << 36) | location.bits};
  }
  static Slot on_disk(KeyHash hash) {
    return {(std::uint64_t{hash.fingerprint()} << 48) | (std::uint64_t{hash.prefix()} << 9) |
            (hash.stripe() >> 1U << 1U) | 1U};
  }
  constexpr bool empty() const { return bits == 0; }
  constexpr bool is_on_disk() const { return units() == 0 && bits != 0; }
  // REQUIRES: is_on_disk().
  constexpr std::uint32_t prefix() const {
    return static_cast<std::uint32_t>(bits >> 9) & 0x7FFFFFFU;
  }
  constexpr std::uint16_t fingerprint() const { return static_cast<std::uint16_t>(bits >> 48); }
  constexpr std::uint32_t units() const { return static_cast<std::uint32_t>(bits >> 36) & 0xFFFU; }
  constexpr bool is_long() const { return units() == kLongRecord; }
  constexpr Location location() const { return {bits & 0xFFFFFFFFFU}; }
  friend constexpr bool operator==(Slot, Slot) = default;
};

// --------------------------------------------------------------------------------------- groups

// The second word of a group: change counter 28 | local depth 5 | prefix 27 | flags 4.
struct GroupHeader {
  std::uint32_t change = 0;  // 28 bits, wraps
  std::uint32_t depth = 0;   // 0..27: how many bits of `prefix` count
  std::uint32_t prefix = 0;  // 27 bits, left-aligned, unused bits zero
  bool overflow = false;     // keys of this home group may be in the neighbour
  bool spilled = false;      // keys of this home group may be known to the server only
  bool forward = false;      // reserved for online splits: ask the old segment

  constexpr std::uint64_t encode() const {
    return (std::uint64_t{change & 0xFFFFFFFU} << 36) | (std::uint64_t{depth & 0x1FU} << 31) |
           (std::uint64_t{prefix & 0x7FFFFFFU} << 4) | (overflow ? 1U : 0U) | (spilled ? 2U : 0U) |
           (forward ? 4U : 0U);
  }
  static constexpr GroupHeader decode(std::uint64_t word) {
    return {.change = static_cast<std::uint32_t>(word >> 36),
            .depth = static_cast<std::uint32_t>(word >> 31) & 0x1FU,
            .prefix = static_cast<std::uint32_t>(word >> 4) & 0x7FFFFFFU,
            .overflow = (word & 1U) != 0,
            .spilled = (word & 2U) != 0,
            .forward = (word & 4U) != 0};
  }
  // Returns whether keys with this hash belong to this group's segment.
  constexpr bool covers(KeyHash hash) const {
    if (depth > KeyHash::kPrefixBits) return false;
    const std::uint32_t unused = KeyHash::kPrefixBits - depth;
    return ((hash.prefix() ^ prefix) >> unused) == 0;
  }
};

// 256 bytes. In shared memory every word is accessed through load_word and store_word; a reader
// works on its private copy.
struct alignas(8) Group {
  std::uint64_t checksum = 0;
  std::uint64_t header = 0;
  std::array<std::uint64_t, kSlotsPerGroup> slots{};
};
static_assert(sizeof(Group) == kGroupBytes);

// XXH3-64 of bytes 8..255 with seed = epoch, XOR mix64(place). (LAYOUT-2)
std::uint64_t group_checksum(const Group& group, std::uint64_t epoch, GroupPlace place);
inline bool verify_group(const Group& group, std::uint64_t epoch, GroupPlace place) {
  return group.checksum == group_checksum(group, epoch, place);
}

// -------------------------------------------------------------------------------------- records

enum class RecordState : std::uint8_t { kLive, kSuperseded, kPrepared };

// XORed onto the checksum; 0 for live. Each, and their XOR, is nonzero in every byte (LAYOUT-4).
inline constexpr std::uint64_t kSupersededMask = 0x9C5A36E1B7D2480FU;
inline constexpr std::uint64_t kPreparedMask = 0x63A7C91E482DB5F0U;

constexpr bool nonzero_in_every_byte(std::uint64_t word) {
  for (int i = 0; i < 8; ++i) {
    if (((word >> (8 * i)) & 0xFFU) == 0) return false;
  }
  return true;
}
static_assert(nonzero_in_every_byte(kSupersededMask) && nonzero_in_every_byte(kPreparedMask) &&
              nonzero_in_every_byte(kSupersededMask ^ kPreparedMask));

constexpr std::uint64_t state_mask(RecordState state) {
  return state == RecordState::kLive         ? 0
         : state == RecordState::kSuperseded ? kSupersededMask
                                             : kPreparedMask;
}

// boot number 32 | commit sequence 32. A sequence that exceeds 32 bits carries into the boot
// number; the server owns every boot number that it carries into (DISK-2 of
// server/persistence/storage_engine.h). A greater version is later, across restarts too.
struct Version {
  std::uint64_t bits = 0;
  static constexpr Version of(std::uint32_t boot, std::uint64_t sequence) {
    return {(std::uint64_t{boot} << 32) + sequence};
  }
  // The upper and the lower half. To find which server issued a version and its full sequence, use
  // is_since() and sequence_since() with that server's first boot number.
  constexpr std::uint32_t boot() const { return static_cast<std::uint32_t>(bits >> 32); }
  constexpr std::uint64_t sequence() const { return bits & 0xFFFFFFFFU; }
  // Whether the server that began with `boot` issued this version. REQUIRES: that server is the
  // last that issued versions.
  constexpr bool is_since(std::uint32_t boot) const { return this->boot() >= boot; }
  // REQUIRES: is_since(boot).
  constexpr std::uint64_t sequence_since(std::uint32_t boot) const {
    return bits - (std::uint64_t{boot} << 32);
  }
  friend constexpr auto operator<=>(Version, Version) = default;
};

// Record: checksum word 8 | version 8 | lengths 8 | [expiry 8] | key | value | padding to 32.
// lengths: bits 0..10 key length, bit 11 expiry present, bit 12 counter, bit 13 digest present,
// bit 14 the counter's number is in a cell, 15..31 zero, 32..63 value length.
//
// A large value is longer than kMaxInlineBytes. A digest in the record head covers it, and the
// checksum covers the head: checksum word 8 | version 8 | lengths 8 | [expiry 8] | digest 8 | key |
// zeros to 8 | value. So the value can be hashed before version and location are known, outside
// every lock. A reader can READ the value separately into its own memory.
inline constexpr std::size_t kRecordHeaderBytes = 24;
inline constexpr std::size_t kExpiryBytes = 8;
inline constexpr std::uint64_t kRecordExpiryFlag = 1U << 11;
inline constexpr std::uint64_t kRecordCounterFlag = 1U << 12;
inline constexpr std::uint64_t kRecordDigestFlag = 1U << 13;
inline constexpr std::uint64_t kRecordCellFlag = 1U << 14;
inline constexpr std::size_t kDigestBytes = 8;
inline constexpr std::size_t kCounterBytes = 8;  // the value of a counter: a signed number
// Value of a counter whose number is in a cell: the number at the time it was moved there, then the
// cell: network 32 | index 32.
inline constexpr std::size_t kCellCounterBytes = 16;

constexpr bool is_large(std::size_t value_length) {
  return value_length > kMaxInlineBytes;
}
// Bytes before the value.
constexpr std::size_t record_head_bytes(std::size_t key_length, std::size_t value_length,
                                        bool has_expiry) {
  const std::size_t fixed = kRecordHeaderBytes + (has_expiry ? kExpiryBytes : 0);
  return is_large(value_length) ? round_up(fixed + kDigestBytes + key_length, 8)
                                : fixed + key_length;
}
inline constexpr std::size_t kMaxLargeHeadBytes =
    record_head_bytes(kMaxKeyBytes, kMaxValueBytes, true);
constexpr std::size_t record_bytes(std::size_t key_length, std::size_t value_length,
                                   bool has_expiry = false) {
  return record_head_bytes(key_length, value_length, has_expiry) + value_length;
}
constexpr std::uint64_t record_units(std::size_t bytes) {
  return (bytes + kUnitBytes - 1) / kUnitBytes;
}
inline constexpr std::size_t kMaxRecordBytes =
    round_up(record_bytes(kMaxKeyBytes, kMaxValueBytes, true), kUnitBytes);
// Offset and length of the key, from the lengths word of a verified record.
constexpr std::size_t record_key_offset(std::uint64_t lengths) {
  return kRecordHeaderBytes + ((lengths & kRecordExpiryFlag) != 0 ? kExpiryBytes : 0) +
         ((lengths & kRecordDigestFlag) != 0 ? kDigestBytes : 0);
}
constexpr std::size_t record_key_length(std::uint64_t lengths) {
  return lengths & (kRecordExpiryFlag - 1);
}

// Largest record whose value is not large.
inline constexpr std::size_t kMaxInlineRecordBytes =
    round_up(record_bytes(kMaxKeyBytes, kMaxInlineBytes, true), kUnitBytes);
static_assert(kMaxKeyBytes < (1U << 11));
// A slot already shows by its length that a value is large, so a reader need not READ twice.
static_assert(record_units(record_bytes(1, kMaxInlineBytes + 1)) >= Slot::kLongRecord);

struct RecordFields {
  Version version{};
  std::uint64_t expiry_ms = 0;  // Unix milliseconds by the server's clock; 0 = never
  bool counter = false;         // the value is a counter's number, of kCounterBytes
  bool in_cell = false;         // a counter of kCellCounterBytes: its number is in the cell
  Bytes key{};
  Bytes value{};
  std::uint64_t digest = 0;  // large values: value_digest() of key and value
};

// Digest of a large value, in its record and on its way to the server: XXH3-64 of the value, seeded
// with XXH3-64 of the key, which is seeded with the epoch.
std::uint64_t value_digest_seed(Bytes key, std::uint64_t epoch);
std::uint64_t value_digest(Bytes key, Bytes value, std::uint64_t epoch);

// Writes the record with its checksum word into private memory. `out` holds at least
// record_bytes(...). Returns the bytes written (without padding).
std::size_t encode_record(MutableBytes out, const RecordFields& fields, RecordState state,
                          std::uint64_t epoch, Location location);
// Writes only the head of a record with a large value. Of the value, only its length is used.
std::size_t encode_large_head(MutableBytes out, const RecordFields& fields, RecordState state,
                              std::uint64_t epoch, Location location);

// Expiry and type in a single word, as the commit log and the disk store them.
constexpr std::uint64_t record_traits(const RecordFields& fields) {
  return fields.expiry_ms | (std::uint64_t{fields.counter} << 63);
}
constexpr void set_record_traits(RecordFields& fields, std::uint64_t traits) {
  fields.expiry_ms = traits & ~(std::uint64_t{1} << 63);
  fields.counter = (traits >> 63) != 0;
}

struct RecordView {
  RecordFields fields{};  // spans point into the bytes decoded
  RecordState state = RecordState::kLive;
};
// Verifies a private copy of a record: first the lengths against the bytes, then the checksum under
// each state. Returns nullopt if it does not verify (torn, recycled, never written).
std::optional<RecordView> decode_record(Bytes bytes, std::uint64_t epoch, Location location);
// Faster variant of decode_record() for the common case: a live record of this key whose value is
// neither large nor in a cell. Returns false for all other records and leaves `record` unchanged.
struct LiveRecord {
  Version version;
  std::uint64_t expiry_ms;  // 0 = never
  bool counter;
  const std::byte* value;
  std::size_t value_bytes;
};
bool decode_live_record(Bytes bytes, std::uint64_t epoch, Location location, Bytes key,
                        LiveRecord& record);

// The verified head of a record with a large value. The value is `value_bytes` long and starts at
// `value_offset` of the record. It is not verified: compare its value_digest() with
// `fields.digest`.
struct LargeHead {
  RecordFields fields{};  // without the value
  RecordState state = RecordState::kLive;
  std::size_t value_offset = 0;
  std::size_t value_bytes = 0;
};
// Decodes the first bytes of a record; kMaxLargeHeadBytes are always enough.
std::optional<LargeHead> decode_large_head(Bytes bytes, std::uint64_t epoch, Location location);
// Whether an unverified record header claims a large value.
bool claims_large_value(Bytes header);

// Returns the total bytes that an unverified record header claims, or nullopt if it is implausible.
// Sizes the second READ of a record whose slot says kLongRecord.
std::optional<std::size_t> claimed_record_bytes(Bytes header);

// ----------------------------------------------------------------------------------- hint words

// One word for each stripe of key hashes: client number 24 | tick 40. A client that found a record
// torn writes its number and the tick there by compare-and-swap.
inline constexpr std::size_t kHintWords = std::size_t{1} << KeyHash::kStripeBits;
inline constexpr std::uint32_t kPinWindowMs = 500;

struct HintWord {
  std::uint32_t client = 0;   // 24 bits: names the client to people; nothing depends on it
  std::uint64_t tick_ms = 0;  // 40 bits: the tick line as the client read it
  constexpr std::uint64_t encode() const {
    return (std::uint64_t{client & 0xFFFFFFU} << 40) | (tick_ms & 0xFFFFFFFFFFU);
  }
  static constexpr HintWord decode(std::uint64_t word) {
    return {.client = static_cast<std::uint32_t>(word >> 40), .tick_ms = word & 0xFFFFFFFFFFU};
  }
};
// Whether a word is a valid pin at this tick: neither expired nor in the future.
constexpr bool pin_counts(std::uint64_t word, std::uint64_t tick_ms) {
  const std::uint64_t pinned_ms = HintWord::decode(word).tick_ms;
  return word != 0 && pinned_ms <= tick_ms + 1 && tick_ms <= pinned_ms + kPinWindowMs;
}

// -------------------------------------------------------------------------------- counter cells

// A cell holds the number of a one-sided counter as kCellBias + number. Clients change it by
// fetch-and-add and compare-and-swap. The server ends a counter by adding the seal. An atomic whose
// old value has the seal did not change the counter. A sealed cell is not reused within the epoch,
// so a late addition cannot change another counter. A cell that was never used is 0.
inline constexpr std::uint64_t kCellSeal = std::uint64_t{1} << 63;
inline constexpr std::uint64_t kCellBias = std::uint64_t{1} << 62;
// Numbers that a cell may hold, of either sign. At kCellEndNumber, well within that range, the
// server takes the counter back. Clients that add kMaxCellSummand at a time need 2^28 additions
// from there to kMaxCellNumber.
inline constexpr std::int64_t kMaxCellNumber = std::int64_t{1} << 61;
inline constexpr std::int64_t kCellEndNumber = std::int64_t{1} << 60;
inline constexpr std::int64_t kMaxCellSummand = std::int64_t{1} << 32;

constexpr std::uint64_t cell_word(std::int64_t number) {
  return kCellBias + static_cast<std::uint64_t>(number);
}
// Returns nullopt if the cell is sealed or was never used.
constexpr std::optional<std::int64_t> cell_number(std::uint64_t word) {
  const auto number = static_cast<std::int64_t>(word - kCellBias);
  if ((word & kCellSeal) != 0 || number < -kMaxCellNumber || number > kMaxCellNumber) {
    return std::nullopt;
  }
  return number;
}
static_assert(!cell_number(0) && !cell_number(cell_word(0) + kCellSeal) &&
              cell_number(cell_word(-kMaxCellNumber)) == -kMaxCellNumber);

// -------------------------------------------------------------------------------- directory, root

// extent 16 | segment 32 | local depth 5 | check 11. A hint (LAYOUT-1).
struct DirectoryEntry {
  std::uint32_t extent = 0;
  std::uint32_t segment = 0;
  std::uint32_t depth = 0;
  std::uint64_t encode(std::uint64_t epoch) const;
  static std::optional<DirectoryEntry> decode(std::uint64_t word, std::uint64_t epoch);
};

// The root region: a page of 64-byte lines, each ending in a checksum, then the extent table. Line
// checksum = XXH3-64 of the line's first 56 bytes, seed = epoch, XOR mix64(offset).
inline constexpr std::uint64_t kRootMagic = 0x31544F4F52564B52U;  // "RKVROOT1"
inline constexpr std::uint32_t kLayoutVersion = 1;
inline constexpr std::size_t kRootLineBytes = 64;
inline constexpr std::size_t kRootPageBytes = 4096;
inline constexpr std::size_t kIdentityOffset = 0;
inline constexpr std::size_t kTickOffset = 64;
inline constexpr std::size_t kDirectoryLineOffset = 128;
inline constexpr std::size_t kWalMarkOffset = 192;
inline constexpr std::size_t kSyncMarkOffset = 256;
inline constexpr std::size_t kGroupLineOffset = 320;
inline constexpr std::size_t kExtentTableOffset = kRootPageBytes;
inline constexpr std::size_t kExtentEntryBytes = 32;

struct IdentityLine {
  std::uint64_t magic = kRootMagic;
  std::uint32_t layout_version = kLayoutVersion;
  std::uint32_t extent_count = 0;  // entries of the extent table in use; only increases
  std::uint64_t epoch = 0;
  std::uint64_t flags = 0;  // kReportReads
  std::uint64_t reserved[3] = {};
  std::uint64_t checksum = 0;

  // The server drops the least recently used records: clients tell it which they READ.
  static constexpr std::uint64_t kReportReads = 1;
};
struct MarkLine {  // tick line: milliseconds since the server started; watermarks: a Version
  std::uint64_t value = 0;
  std::uint64_t reserved[6] = {};
  std::uint64_t checksum = 0;
};
struct GroupLine {  // of a server in a replicated group: what its clients may believe
  // Nanoseconds of the server's clock, as Response::server_us: the server was the group's primary
  // until kTrustWindow after it. 0: it must not be believed.
  std::uint64_t tick = 0;
  Version replicated{};  // every version up to it is in the memory of all in-sync replicas
  std::uint64_t reserved[5] = {};
  std::uint64_t checksum = 0;
};
struct DirectoryLine {
  std::uint64_t generation = 0;  // increases when the directory moves
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint8_t global_depth = 0;         // the directory has 2^global_depth entries
  std::uint8_t hash_algorithm = 1;       // 1 = XXH3-64 of xxHash 0.8
  std::uint16_t groups_per_segment = 0;  // power of two, 2 to 4096
  std::uint64_t hash_seed = 0;
  std::uint64_t reserved[3] = {};
  std::uint64_t checksum = 0;
};
struct ExtentEntry {
  enum Kind : std::uint32_t { kUnused = 0, kIndex = 1, kData = 2 };
  std::uint64_t address = 0;
  std::uint32_t remote_key = 0;
  std::uint32_t units = 0;  // length in 32-byte units
  std::uint32_t id = 0;     // its index in the table
  std::uint32_t kind = kUnused;
  std::uint64_t checksum = 0;  // XXH3-64 of the first 24 bytes, seed = epoch, XOR mix64(offset)
};
static_assert(sizeof(IdentityLine) == kRootLineBytes && sizeof(MarkLine) == kRootLineBytes &&
              sizeof(GroupLine) == kRootLineBytes && sizeof(DirectoryLine) == kRootLineBytes &&
              sizeof(ExtentEntry) == kExtentEntryBytes);

constexpr std::size_t root_bytes(std::uint32_t max_extents) {
  return kExtentTableOffset + std::size_t{max_extents} * kExtentEntryBytes;
}

// Writes the checksum of a line or entry, and verifies it. T ends in `checksum`.
std::uint64_t line_checksum(Bytes line_without_checksum, std::uint64_t epoch, std::size_t offset);
template <class T>
void seal_line(T& line, std::uint64_t epoch, std::size_t offset) {
  const Bytes all = std::as_bytes(std::span(&line, 1));
  line.checksum = line_checksum(all.first(sizeof(T) - 8), epoch, offset);
}
template <class T>
std::optional<T> open_line(Bytes root, std::uint64_t epoch, std::size_t offset) {
  if (root.size() < offset + sizeof(T)) return std::nullopt;
  T line;
  std::memcpy(&line, root.data() + offset, sizeof line);
  const Bytes all = std::as_bytes(std::span(&line, 1));
  if (line.checksum != line_checksum(all.first(sizeof(T) - 8), epoch, offset)) return std::nullopt;
  return line;
}

}  // namespace rkv
