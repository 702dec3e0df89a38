#include "client/get/get.h"

#include <algorithm>
#include <bit>

#include "client/get/fingerprints.h"
#include "common/check.h"

namespace rkv::client {

using Next = GetMachine::Next;

namespace {
// First READ of a record whose length is only in its header: long enough for every head.
constexpr std::size_t kLongHeaderBytes = kMaxLargeHeadBytes;
static_assert(kLongHeaderBytes <= Slot::kLongRecord * kUnitBytes);
}  // namespace

void GetMachine::begin(Bytes key, GetMemory& memory) {
  RKV_CHECK(map_->ready(), "a GET needs a loaded map");
  key_ = key;
  memory_ = &memory;
  large_ = {};
  value_ = {};
  hash_ = map_->hash(key);
  reason_ = Reason::kNone;
  cached_neighbour_tried_ = incomplete_ = false;
  header_ = {};
  tries_ = 0;
  refreshes_ = 0;
  counts_ = {};
}

Next GetMachine::start_at(Bytes key, GetMemory& memory, Slot slot, Version version) {
  begin(key, memory);
  server_version_ = version;
  return begin_at(Source::kServer, slot);
}

Next GetMachine::begin_at(Source source, Slot slot) {
  source_ = source;
  candidates_[0] = slot;
  candidate_ = 0;
  candidate_count_ = 1;
  return read_record();
}

Next GetMachine::start(Bytes key, GetMemory& memory) {
  begin(key, memory);
  if (const Slot slot = slots_->find(hash_); !slot.empty()) return begin_at(Source::kSlot, slot);
  const auto home = map_->home(hash_);
  if (!home) return read_directory();
  home_ = *home;
  if (collect_cached(home_)) return next_candidate();
  return candidates_done();
}

Next GetMachine::step() {
  switch (state_) {
    case State::kRecord:
      return on_record();
    case State::kRecordHeader:
      return on_record_header();
    case State::kValueBuffer:
      return read_value();
    case State::kValue:
      return on_value();
    case State::kHome:
      return on_home();
    case State::kNeighbour:
      return on_neighbour();
    case State::kRecheck:
      return on_recheck();
    case State::kDirectory:
      return on_directory();
    case State::kPinLook:
      return on_pin_look();
    case State::kPin:
      return read_home();  // pinned, or another client was faster: equally good (GET-9)
    case State::kExtentsForRecord:
    case State::kBuffer:
      return read_record();
    case State::kExtentsForGroup:
      return read_home();
    case State::kWholeDirectory:
      return look_up_home();
    case State::kIdle:
      break;
  }
  RKV_CHECK(false, "step() without a GET under way");
  return finish(Next::kTwoSided);
}

// ------------------------------------------------------------------------------------ READs

Next GetMachine::begin_reads(State state, std::size_t count) {
  if (counts_.reads + count > kMaxReads) return two_sided(Reason::kReads);  // GET-8
  counts_.reads += static_cast<std::uint32_t>(count);
  read_count_ = count;
  state_ = state;
  return Next::kRead;
}

Next GetMachine::read_one(State state, const Lookup& at, MutableBytes to) {
  reads_[0] = {.from = at.range, .to = to};  // the local key is the arena's
  return begin_reads(state, 1);
}

// ------------------------------------------------------------------------ candidates, records

void GetMachine::collect(const Group& group, Source source) {
  source_ = source;
  candidate_ = 0;
  candidate_count_ = 0;
  on_disk_ = false;
  for (std::uint32_t found = slots_with(group, hash_.fingerprint()); found != 0;
       found &= found - 1) {
    const Slot slot{group.slots[static_cast<std::size_t>(std::countr_zero(found))]};
    if (slot.empty()) continue;  // an empty slot has fingerprint 0 too
    if (slot.is_on_disk()) {
      on_disk_ = on_disk_ || slot == Slot::on_disk(hash_);
    } else {
      candidates_[candidate_count_++] = slot;
    }
  }
}

bool GetMachine::collect_cached(GroupPlace place) {
  candidate_count_ = 0;
  source_ = Source::kCached;
  const Group* group = cache_->find(place);
  if (group == nullptr) return false;
  if (place == home_) header_ = GroupHeader::decode(group->header);  // GET-5: for its overflow flag
  collect(*group, Source::kCached);
  return candidate_count_ != 0;
}

Next GetMachine::next_candidate() {
  if (candidate_ == candidate_count_) return candidates_done();
  return read_record();
}

// Reads the present candidate: a short record whole, of a long record the header first.
Next GetMachine::read_record() {
  const Slot slot = candidates_[candidate_];
  const std::size_t length = slot.is_long() ? kLongHeaderBytes : slot.units() * kUnitBytes;
  const Lookup at = map_->record(slot.location(), length);
  if (at.kind == Lookup::Kind::kUnknownExtent && proved() && refreshes_ < kMaxRefreshes) {
    ++refreshes_;
    state_ = State::kExtentsForRecord;
    return Next::kRefreshExtents;
  }
  if (at.kind != Lookup::Kind::kOk || length == 0) return give_up_candidate();
  if (length > memory_->record.size() && large_.empty()) {
    state_ = State::kBuffer;
    return Next::kLargeBuffer;
  }
  const MutableBytes room =
      length > memory_->record.size() ? large_ : MutableBytes(memory_->record);
  record_bytes_ = room.first(length);
  return read_one(slot.is_long() ? State::kRecordHeader : State::kRecord, at, record_bytes_);
}

// The header of a long record is unproved. It only sizes a READ that is bounds-checked and
// verified.
Next GetMachine::on_record_header() {
  if (claims_large_value(record_bytes_)) return on_large_head();
  const auto claimed = claimed_record_bytes(record_bytes_);
  if (!claimed || record_units(*claimed) < Slot::kLongRecord) {
    tear();
    return give_up_candidate();
  }
  if (large_.empty()) return Next::kLargeBuffer;  // step() returns here; the header stays
  const Lookup at = map_->record(candidates_[candidate_].location(), *claimed);
  if (at.kind != Lookup::Kind::kOk || *claimed > large_.size()) return give_up_candidate();
  record_bytes_ = large_.first(*claimed);
  return read_one(State::kRecord, at, record_bytes_);
}

// Handles the head of a record with a large value, which proves everything but the value (GET-10).
Next GetMachine::on_large_head() {
  const auto head =
      decode_large_head(record_bytes_, map_->epoch(), candidates_[candidate_].location());
  if (!head) {
    tear();
    return give_up_candidate();
  }
  if (!is_our_key(head->fields.key)) return on_other_key();
  if (!counts(head->state, head->fields.version)) return give_up_candidate();
  head_ = *head;
  if (value_.size() == head_.value_bytes) return read_value();  // a buffer from an earlier try
  state_ = State::kValueBuffer;
  return Next::kValueBuffer;
}

Next GetMachine::read_value() {
  const Slot slot = candidates_[candidate_];
  const Lookup at = map_->record(slot.location(), head_.value_offset + head_.value_bytes);
  if (at.kind != Lookup::Kind::kOk) return give_up_candidate();
  RKV_CHECK(value_.size() == head_.value_bytes, "a buffer for the value");
  std::size_t count = 0;
  for (std::size_t done = 0; done < value_.size(); ++count) {
    const std::size_t length = std::min(kMaxReadBytes, value_.size() - done);
    reads_[count] = {.from = {.address = at.range.address + head_.value_offset + done,
                              .remote_key = at.range.remote_key},
                     .to = value_.subspan(done, length),
                     .local_key = value_key_};
    done += length;
  }
  return begin_reads(State::kValue, count);
}

Next GetMachine::on_value() {
  if (value_digest(key_, value_, map_->epoch()) != head_.fields.digest) {
    tear();
    return give_up_candidate();
  }
  record_ = {.fields = head_.fields, .state = head_.state};
  record_.fields.value = value_;
  return found();  // GET-1, GET-10
}

bool GetMachine::is_our_key(Bytes key) const {
  return key.size() == key_.size() && std::memcmp(key.data(), key_.data(), key.size()) == 0;
}

// A verified record belongs to another key now. This does not prove a miss: the block may have been
// our key's when the group was read. So the group must be seen unchanged (GET-3).
Next GetMachine::on_other_key() {
  if (source_ == Source::kHome) other_in_home_ = true;
  if (source_ == Source::kNeighbour) other_in_neighbour_ = true;
  ++candidate_;
  return next_candidate();
}

// Returns true if a verified record of our key in this state is an answer.
bool GetMachine::counts(RecordState state, Version version) const {
  if (state == RecordState::kLive) return true;
  if (state != RecordState::kSuperseded || !proved()) return false;  // GET-2
  return source_ != Source::kServer || version == server_version_;   // GET-11
}

Next GetMachine::on_record() {
  const auto record =
      decode_record(record_bytes_, map_->epoch(), candidates_[candidate_].location());
  if (!record) {
    tear();
    return give_up_candidate();
  }
  if (!is_our_key(record->fields.key)) return on_other_key();
  if (!counts(record->state, record->fields.version)) return give_up_candidate();
  if (record->fields.in_cell) [[unlikely]] {
    return two_sided(Reason::kCell);
  }
  record_ = *record;
  return found();  // GET-1
}

// The candidate proved nothing: it is torn, prepared, superseded without a licence, or out of
// bounds.
Next GetMachine::give_up_candidate() {
  incomplete_ = true;
  ++candidate_;
  return next_candidate();
}

Next GetMachine::candidates_done() {
  switch (source_) {
    case Source::kSlot: {
      // The cached group is usually as old as the slot, so it is not tried.
      slots_->forget(hash_);
      const auto home = map_->home(hash_);
      if (!home) return read_directory();
      home_ = *home;
      return read_home();
    }
    case Source::kCached:
      if (incomplete_) {
        // The cached group is out of date.
        cache_->invalidate(cached_neighbour_tried_ ? home_.neighbour() : home_);
        incomplete_ = false;
      } else if (!cached_neighbour_tried_ && header_.overflow) {
        cached_neighbour_tried_ = true;
        if (collect_cached(home_.neighbour())) return next_candidate();
      }
      return read_home();
    case Source::kUnproved:
      // The group is torn, or the directory led to something that is not a group. A hint is not
      // trusted twice: the second time the directory is read too.
      return again(tries_ > 0);
    case Source::kHome:
      return incomplete_ ? again() : home_done();
    case Source::kNeighbour:
      if (incomplete_) return again();
      if (on_disk_) return two_sided(Reason::kOnDisk);
      if (header_.spilled) return two_sided(Reason::kSpilled);
      return recheck(as_pair_ || other_in_neighbour_);  // GET-4
    case Source::kServer:
      return two_sided(Reason::kContention);
  }
  return two_sided(Reason::kMap);
}

// ----------------------------------------------------------------------------------- groups

// Takes the group that the directory copy names. If there is none, the directory is READ again.
Next GetMachine::look_up_home() {
  const auto home = map_->home(hash_);
  if (!home) return again(true);
  home_ = *home;
  return read_home();
}

Next GetMachine::read_home() {
  incomplete_ = other_in_home_ = other_in_neighbour_ = false;
  as_pair_ = header_.overflow;  // as last seen. If true: right saves a READ, wrong costs 256 bytes
  const Lookup at = as_pair_ ? map_->group_pair(home_) : map_->group(home_);
  if (at.kind == Lookup::Kind::kUnknownExtent && refreshes_ < kMaxRefreshes) {
    ++refreshes_;
    state_ = State::kExtentsForGroup;
    return Next::kRefreshExtents;
  }
  if (at.kind != Lookup::Kind::kOk) return again(true);
  compare_from_ = clock_->now();
  GetMemory::Pair& groups = memory_->groups;
  return read_one(State::kHome, at, as_pair_ ? room_for(groups) : room_for(groups, home_));
}

Next GetMachine::on_home() {
  const Group& group = group_of(memory_->groups, home_);
  if (!verify_group(group, map_->epoch(), home_)) {
    tear();
    collect(group, Source::kUnproved);
    return next_candidate();
  }
  header_ = GroupHeader::decode(group.header);
  if (!header_.covers(hash_)) {
    // The directory copy is older than a split of the segment.
    return again(true);
  }
  cache_->put(home_, group);
  collect(group, Source::kHome);
  return next_candidate();
}

// The home group has no record of our key.
Next GetMachine::home_done() {
  if (header_.forward) return two_sided(Reason::kMap);  // a split that clients do not follow
  if (on_disk_) return two_sided(Reason::kOnDisk);
  if (header_.overflow) return as_pair_ ? on_neighbour() : read_neighbour();
  if (header_.spilled) return two_sided(Reason::kSpilled);
  if (other_in_home_) return recheck(false);
  return finish(Next::kMissing);  // GET-3: one READ showed no slot of the fingerprint
}

Next GetMachine::read_neighbour() {
  // The neighbour lies in the home group's extent, which was checked. The table cannot shrink.
  const GroupPlace place = home_.neighbour();
  const Lookup at = map_->group(place);
  if (at.kind != Lookup::Kind::kOk) return again(true);
  return read_one(State::kNeighbour, at, room_for(memory_->groups, place));
}

Next GetMachine::on_neighbour() {
  const GroupPlace place = home_.neighbour();
  const Group& group = group_of(memory_->groups, place);
  if (!verify_group(group, map_->epoch(), place)) {
    tear();
    collect(group, Source::kUnproved);
    return next_candidate();
  }
  const GroupHeader header = GroupHeader::decode(group.header);
  if (!header.covers(hash_)) return again(true);
  if (header.forward) return two_sided(Reason::kMap);
  cache_->put(place, group);
  collect(group, Source::kNeighbour);
  return next_candidate();
}

// ----------------------------------------------------------------------------------- a miss

// The two groups need no order within one READ: both are read after everything they are compared
// with.
Next GetMachine::recheck(bool with_neighbour) {
  const Lookup at = with_neighbour ? map_->group_pair(home_) : map_->group(home_);
  if (at.kind != Lookup::Kind::kOk) return again(true);
  recheck_neighbour_ = with_neighbour;
  GetMemory::Pair& groups = memory_->groups_again;
  return read_one(State::kRecheck, at, with_neighbour ? room_for(groups) : room_for(groups, home_));
}

Next GetMachine::on_recheck() {
  const auto unchanged = [&](GroupPlace place) {
    const Group& now = group_of(memory_->groups_again, place);
    if (!verify_group(now, map_->epoch(), place)) {
      tear();
      return false;
    }
    // The header has counter, depth, prefix and flags: so the group still covers the key
    // (LAYOUT-5).
    return now.header == group_of(memory_->groups, place).header;
  };
  if (!unchanged(home_)) return again();
  if (recheck_neighbour_ && !unchanged(home_.neighbour())) return again();
  if (clock_->now() - compare_from_ >= kCompareWindow) return again();  // GET-6
  return finish(Next::kMissing);
}

// -------------------------------------------------------------------------------- directory

Next GetMachine::read_directory() {
  const auto line = map_->root(kDirectoryLineOffset, kRootLineBytes);
  const auto entry = map_->directory_entry(map_->directory_index(hash_));
  if (!line || !entry) return two_sided(Reason::kMap);
  reads_[0] = {.from = *line, .to = memory_->directory_line};
  reads_[1] = {.from = *entry,
               .to = std::as_writable_bytes(std::span(&memory_->directory_word, 1))};
  return begin_reads(State::kDirectory, 2);
}

Next GetMachine::on_directory() {
  const Status line = map_->check_directory_line(memory_->directory_line);
  if (!line && line.error().code == Code::kStale) {
    if (refreshes_ == kMaxRefreshes) return two_sided(Reason::kMap);
    ++refreshes_;
    state_ = State::kWholeDirectory;
    return Next::kRefreshDirectory;
  }
  if (!line) {
    tear();
    return again(true);
  }
  map_->apply_directory_entry(map_->directory_index(hash_), memory_->directory_word);
  return look_up_home();
}

// ------------------------------------------------------------------------------------- pins

Next GetMachine::look_at_pin() {
  const auto line = map_->root(kTickOffset, kRootLineBytes);
  const auto word = map_->hint(hash_);
  if (!line || !word) return read_home();
  reads_[0] = {.from = *line, .to = memory_->directory_line};
  reads_[1] = {.from = *word, .to = std::as_writable_bytes(std::span(&memory_->directory_word, 1))};
  return begin_reads(State::kPinLook, 2);
}

Next GetMachine::on_pin_look() {
  const auto tick_ms = map_->tick_ms(memory_->directory_line);
  const std::uint64_t seen = memory_->directory_word;
  const auto word = map_->hint(hash_);
  // A valid pin serves every client.
  if (!tick_ms || !word || pin_counts(seen, *tick_ms)) return read_home();
  reads_[0] = {.from = *word,
               .to = std::as_writable_bytes(std::span(&memory_->directory_word, 1)),
               .swaps = true,
               .compare = seen,
               .desired = HintWord{.client = map_->client(), .tick_ms = *tick_ms}.encode()};
  ++counts_.pins;
  return begin_reads(State::kPin, 1);
}

// -------------------------------------------------------------------------------------- ends

Next GetMachine::again(bool with_directory) {
  if (++tries_ >= kMaxTries) return two_sided(Reason::kContention);  // GET-8
  ++counts_.retries;
  if (with_directory) return read_directory();
  return tries_ == kTriesBeforePin ? look_at_pin() : read_home();
}

Next GetMachine::two_sided(Reason reason) {
  reason_ = reason;
  return finish(Next::kTwoSided);
}

Next GetMachine::found() {
  if (source_ != Source::kSlot) slots_->put(hash_, candidates_[candidate_]);
  return finish(Next::kFound);
}

Next GetMachine::finish(Next result) {
  state_ = State::kIdle;
  read_count_ = 0;
  return result;
}

}  // namespace rkv::client
