// The one-sided GET: reads a value from the server's memory and verifies it, without the server.
//
// GetMachine is a state machine without a transport. start() and step() return the next action. The
// caller performs it (posts the READs and waits until all have landed) and calls step() again:
//
//   for (auto next = get.start(key, memory); next == GetMachine::Next::kRead; next = get.step()) {
//     post(get.reads()); wait();
//   }
//
// Invariants (get.cc cites the numbers; they build on LAYOUT.md's LAYOUT-1 to LAYOUT-5):
//  GET-1  Found: a record that verified (epoch, location), has the key, and was read inside this
//      GET. A live record needs nothing else: it is its own proof, wherever its location came from.
//  GET-2  A superseded record is an answer only with a licence. A slot gives a licence if its group
//      verified, is the computed group, covers the key, and was read inside this GET before the
//      record. The record was then current when the group was read. A cached group never gives a
//      licence.
//  GET-3  Missing: the home group verified, covers the key and had no slot of the key's
//      fingerprint. Or the matching slots of home and neighbour led to records of other keys. Then
//      a second READ must show every group used unchanged: the same header word, in a group that
//      verifies again.
//  GET-4  With the overflow flag set, READs of home and neighbour are not a snapshot. So the GET
//      reads home, neighbour, and home again: every move of a key raises the home group's counter
//      before the key leaves its old place. Or the GET reads both groups in one READ, which may see
//      either group first, and then both again. If neither changed, both were as read between the
//      two READs.
//  GET-5  The caches, of groups and of slots, give candidates only. A miss is never concluded from
//      them.
//  GET-6  Headers are compared only if their READs lie less than a second apart: the counter has 28
//      bits and may wrap. Otherwise the GET starts again.
//  GET-7  Every address is formed by RemoteMap, which checks it against a verified table (RMAP-1).
//  GET-8  After kMaxTries tries or kMaxReads READs the server is asked.
//  GET-9  A pin is a hint to the server. No other invariant depends on whether there is a pin, or
//      which client set it.
//  GET-10  A large value: the head was verified inside this GET, with state and key, before the
//      value is READ. The value counts only if it has the head's digest. So it is the value of the
//      version in the head, whatever happened to the record since.
//  GET-11  A place that the server named during this GET gives a licence for the version that it
//      named.
//
// Thread safety: none; one machine for each GET in flight. No allocation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "client/get/group_cache.h"
#include "client/get/remote_map.h"
#include "client/get/slot_cache.h"
#include "common/clock.h"

namespace rkv::client {

// Registered memory of one GET in flight. It has 65 cache lines: an odd number, so that the buffers
// of many GETs do not compete for the same sets of a processor cache.
struct alignas(64) GetMemory {
  static constexpr std::size_t kRecordBytes = 3008;

  // A group and its neighbour in the order of the server's memory: the even group number first.
  using Pair = std::array<Group, 2>;

  Pair groups;
  Pair groups_again;
  std::array<std::byte, kRootLineBytes> directory_line;
  std::uint64_t directory_word;
  std::array<std::uint64_t, 7> unused;
  // Longer records are read into a large buffer, which Next::kLargeBuffer requests. For a large
  // value, the head is read into this array. The value is read into a buffer that
  // Next::kValueBuffer requests.
  std::array<std::byte, kRecordBytes> record;
};
static_assert(sizeof(GetMemory) == std::size_t{65} * 64);

static_assert(GetMemory::kRecordBytes >= kMaxLargeHeadBytes);

// A READ, or the compare-and-swap of a pin (`to` receives the old word).
struct ReadRequest {
  RemoteRange from;
  MutableBytes to;
  bool swaps = false;
  std::uint64_t compare = 0;
  std::uint64_t desired = 0;
  // Local key of the region that `to` lies in; empty = the arena's.
  std::optional<std::uint32_t> local_key = std::nullopt;
};

class GetMachine {
 public:
  // A try ends when its READs do not fit together: torn, prepared, or changed in between.
  static constexpr std::uint32_t kMaxTries = 8;
  // The key's stripe is pinned after this many failed tries. Pinning takes a look at the hint word
  // and a swap: two round trips before the next READ of the home group, once a GET.
  static constexpr std::uint32_t kTriesBeforePin = 2;
  // Hard limit of READs in one GET. Unless fingerprints collide, a try needs at most 8: directory
  // line and entry, home, header and body of a long record, neighbour, a record of the neighbour,
  // both groups again. A large value takes one more: two READs of up to 8 MiB.
  static constexpr std::uint32_t kMaxReads = 64;
  static constexpr std::uint32_t kMaxRefreshes = 3;  // of the extent table or the directory
  static constexpr Nanos kCompareWindow = 1000 * kNanosPerMs;  // GET-6
  static constexpr std::size_t kLargeBufferBytes = kMaxInlineRecordBytes;
  // Length limit of one READ; some adapters take no longer READs.
  static constexpr std::size_t kMaxReadBytes = std::size_t{8} << 20;
  static_assert(kMaxValueBytes <= 2 * kMaxReadBytes);

  enum class Next : std::uint8_t {
    kRead,              // perform all of reads(), then step()
    kFound,             // value() and version() are valid until the machine is started again
    kMissing,           // the key does not exist
    kTwoSided,          // ask the server; reason() says why
    kRefreshExtents,    // READ the extent table again, then step()
    kRefreshDirectory,  // READ directory line and directory again, then step()
    kLargeBuffer,       // give_buffer(), then step()
    kValueBuffer,       // give_value_buffer() for value_bytes(), then step(); or abandon the GET
  };
  enum class Reason : std::uint8_t {
    kNone,
    kSpilled,     // the server may know the key although the index does not have it
    kContention,  // kMaxTries reached
    kReads,       // kMaxReads reached
    kMap,         // directory or extent table do not lead to a group
    kOnDisk,      // the record is only on the server's disk
    kCell,        // the counter's number is in a one-sided counter's cell
  };
  struct Counts {
    std::uint32_t reads = 0;
    std::uint32_t retries = 0;
    std::uint32_t tears = 0;  // groups and records that did not verify
    std::uint32_t pins = 0;   // compare-and-swaps of hint words, counted in `reads` too
  };

  // The arguments must outlive the machine.
  GetMachine(RemoteMap& map, GroupCache& groups, SlotCache& slots, const Clock& clock)
      : map_(&map), cache_(&groups), slots_(&slots), clock_(&clock) {}

  // Starts a GET. REQUIRES map.ready(); key and memory stay valid until the machine has finished.
  Next start(Bytes key, GetMemory& memory);
  Next step();
  // Ends the GET with kTwoSided, when the caller cannot perform the action in time.
  Next ask_server() { return two_sided(Reason::kMap); }
  // Starts a GET with the server's answer: the key's record, with this version, is where `slot`
  // says. Ends with kFound, or with kTwoSided: ask the server again.
  Next start_at(Bytes key, GetMemory& memory, Slot slot, Version version);

  std::span<const ReadRequest> reads() const { return {reads_.data(), read_count_}; }
  // For kLargeBuffer: at least kLargeBufferBytes of registered memory. It must stay valid until the
  // machine has finished and the value has been used.
  void give_buffer(MutableBytes large) { large_ = large; }
  // For kValueBuffer: the key exists, and its value has this length.
  std::size_t value_bytes() const { return head_.value_bytes; }
  // For kValueBuffer: at least value_bytes() of memory registered under `local_key`, valid as
  // above.
  void give_value_buffer(MutableBytes buffer, std::uint32_t local_key) {
    value_ = buffer.first(head_.value_bytes);
    value_key_ = local_key;
  }

  const RecordFields& fields() const { return record_.fields; }
  Bytes value() const { return record_.fields.value; }
  Version version() const { return record_.fields.version; }
  RecordState state() const { return record_.state; }
  Reason reason() const { return reason_; }
  const Counts& counts() const { return counts_; }
  // Returns the counts since the last call or start, whichever was later.
  Counts take_counts() { return std::exchange(counts_, {}); }
  KeyHash hash() const { return hash_; }  // of the key started last
  bool used_cache() const { return source_ == Source::kSlot || source_ == Source::kCached; }

 private:
  enum class State : std::uint8_t {
    kIdle,
    kRecord,
    kRecordHeader,
    kValueBuffer,
    kValue,
    kHome,
    kNeighbour,
    kRecheck,
    kDirectory,
    kPinLook,
    kPin,
    kExtentsForRecord,
    kExtentsForGroup,
    kWholeDirectory,
    kBuffer,
  };
  // Where the candidates came from. The source decides what they may prove.
  enum class Source : std::uint8_t {
    kSlot,      // GET-5
    kCached,    // GET-5
    kUnproved,  // a group that did not verify: only a live record counts
    kHome,      // proved: gives a licence (GET-2)
    kNeighbour,
    kServer,  // named by the server: a licence for one version (GET-11)
  };
  bool proved() const {
    return source_ == Source::kHome || source_ == Source::kNeighbour || source_ == Source::kServer;
  }
  bool counts(RecordState state, Version version) const;
  void begin(Bytes key, GetMemory& memory);
  Next begin_at(Source source, Slot slot);

  void collect(const Group& group, Source source);
  bool collect_cached(GroupPlace place);
  Next read_one(State state, const Lookup& at, MutableBytes to);
  Next begin_reads(State state, std::size_t count);
  static MutableBytes room_for(GetMemory::Pair& groups, GroupPlace place) {
    return std::as_writable_bytes(std::span(groups).subspan(place.number % 2, 1));
  }
  static MutableBytes room_for(GetMemory::Pair& groups) {
    return std::as_writable_bytes(std::span(groups));
  }
  static const Group& group_of(const GetMemory::Pair& groups, GroupPlace place) {
    return groups[place.number % 2];
  }

  Next next_candidate();
  Next read_record();
  Next on_record_header();
  Next on_large_head();
  Next read_value();
  Next on_value();
  bool is_our_key(Bytes key) const;
  Next on_other_key();
  Next on_record();
  Next give_up_candidate();
  Next candidates_done();

  Next look_up_home();
  Next read_home();
  Next on_home();
  Next read_neighbour();
  Next on_neighbour();
  Next home_done();
  Next recheck(bool with_neighbour);
  Next on_recheck();
  Next read_directory();
  Next on_directory();

  Next look_at_pin();
  Next on_pin_look();
  Next again(bool with_directory = false);
  Next two_sided(Reason reason);
  Next finish(Next result);
  Next found();
  void tear() { ++counts_.tears; }

  RemoteMap* map_;
  GroupCache* cache_;
  SlotCache* slots_;
  const Clock* clock_;

  Bytes key_;
  GetMemory* memory_ = nullptr;
  MutableBytes large_;
  MutableBytes value_;  // buffer for a large value
  std::uint32_t value_key_ = 0;
  LargeHead head_;
  Version server_version_;  // version that the server named (GET-11)
  KeyHash hash_{0};
  GroupPlace home_;

  State state_ = State::kIdle;
  Source source_ = Source::kCached;
  Reason reason_ = Reason::kNone;
  bool cached_neighbour_tried_ = false;
  bool incomplete_ = false;     // a candidate of a proved group proved nothing
  bool other_in_home_ = false;  // a fingerprint match was another key's (GET-3)
  bool other_in_neighbour_ = false;
  bool on_disk_ = false;  // the group collected last has a slot that says so of our key
  bool as_pair_ = false;  // home and neighbour are READ in one piece (GET-4)
  bool recheck_neighbour_ = false;
  std::uint32_t tries_ = 0;
  std::uint32_t refreshes_ = 0;
  Nanos compare_from_ = 0;  // taken before the first READ of the headers that are compared (GET-6)
  GroupHeader header_;      // of the home group; a guess before that group is READ

  std::array<Slot, kSlotsPerGroup> candidates_;
  std::size_t candidate_count_ = 0;
  std::size_t candidate_ = 0;  // the candidate that is being read
  MutableBytes record_bytes_;  // where the candidate is read to
  RecordView record_;

  std::array<ReadRequest, 2> reads_;
  std::size_t read_count_ = 0;
  Counts counts_;
};

}  // namespace rkv::client
