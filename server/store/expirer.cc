#include "server/store/expirer.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace rkv::server {

namespace {
constexpr Nanos kLongestNap = 1000 * kNanosPerMs;  // then expire() reads the clock again
constexpr Nanos kRetry = kNanosPerMs;
// A walk over all segments costs some 3 ms with 400 million records, so it is not made for each.
constexpr Nanos kAfterARemoval = 20 * kNanosPerMs;
}  // namespace

Expirer::Moment Expirer::moment() const {
  const Version begun = Version::of(boot_, log_.last_begun());  // before the clock
  return {.begun = begun, .now_ms = clock_.unix_ms()};
}

Nanos Expirer::expire() {
  DueTimes& due = table_.index().due();
  const Segments& segments = table_.memory().segments();
  Moment now = moment();
  Removal worst = Removal::kDone;
  const bool looks = due.earliest() <= now.now_ms;
  if (looks) {
    due.take_earliest();
    std::uint32_t prefix = 0;
    do {
      const Segment segment = segments.route(RecordTable::hash_of_prefix(prefix));
      if (const std::uint64_t at_ms = due.of_segment(segment);
          at_ms > now.now_ms || worst == Removal::kLogIsFull) {
        due.lower_earliest(at_ms);
      } else {
        due.take(segment);
        worst = std::max(worst, expire_segment(prefix, segment, now));
        due.give_back(segment);
        now = moment();
      }
      prefix = RecordTable::next_prefix(prefix, segment.depth);
    } while (prefix != 0);
  }
  if (worst != Removal::kDone) return clock_.now() + kRetry;
  const std::uint64_t now_ms = clock_.unix_ms();
  const std::uint64_t next_ms = std::max(due.earliest(), now_ms);
  const Nanos left = next_ms - now_ms < kLongestNap / kNanosPerMs
                         ? static_cast<Nanos>((next_ms - now_ms) * kNanosPerMs)
                         : kLongestNap;
  return clock_.now() + std::max(left, looks ? kAfterARemoval : Nanos{0});
}

// A segment that is split meanwhile hands on its due times.
Expirer::Removal Expirer::expire_segment(std::uint32_t prefix, Segment segment,
                                         const Moment& moment) {
  const Segments& segments = table_.memory().segments();
  const DueTimes& due = table_.index().due();
  Removal worst = Removal::kDone;
  for (std::uint32_t pair = 0; pair < segments.groups_per_segment() / 2; ++pair) {
    if (due.of_pair(segments.group(segment, 2 * pair)) > moment.now_ms) continue;
    worst = std::max(worst, expire_pair(prefix, pair, moment));
    if (worst == Removal::kLogIsFull) break;
  }
  return worst;
}

// kLogIsFull, kCannot: not all were removed, and the pair's due time stays.
Expirer::Removal Expirer::expire_pair(std::uint32_t prefix, std::uint32_t pair,
                                      const Moment& moment) {
  enum class Step : std::uint8_t { kNoneDue, kNeedsRoom, kCannot, kRemoved };
  const KeyHash hash = RecordTable::hash_of_prefix(prefix);
  Room room;
  for (;;) {
    Step step = Step::kNoneDue;
    Slot gone;
    std::uint32_t depth = 0;
    const auto visit = [&](const RecordTable::Pair& at) {
      const auto due = look(at.even, moment.now_ms);
      if (!due) return;
      step = Step::kNeedsRoom;
      if (!room) return;
      gone = due->position.slot;
      step = remove(at, *due, *room, moment) ? Step::kRemoved : Step::kCannot;
    };
    while (!table_.visit_pair(hash, pair, &depth, visit)) {
    }
    switch (step) {
      case Step::kRemoved:
        table_.release(gone);
        if (*room) room.reset();  // used up
        continue;
      case Step::kNeedsRoom:
        room = log_.try_reserve(kMaxKeyBytes, 0);
        if (!*room && room->error().code == Code::kBusy) return Removal::kLogIsFull;
        continue;
      case Step::kNoneDue:
      case Step::kCannot:
        if (room && *room) log_.unreserve(**room);
        return step == Step::kCannot ? Removal::kCannot : Removal::kDone;
    }
  }
}

// Returns a record of the pair that has expired. If there is none, sets the pair's due time to the
// first expiry of its records.
std::optional<Index::Resident> Expirer::look(GroupPlace even, std::uint64_t now_ms) {
  Index& index = table_.index();
  index.prefetch_residents(even);
  std::optional<Index::Resident> due;
  std::uint64_t next_ms = DueTimes::kNever;
  index.each_resident(even, [&](const Index::Resident& resident) {
    const std::uint64_t expiry_ms = table_.record_at(resident.position.slot.location()).expiry_ms;
    if (expiry_ms == 0) return;
    if (expiry_ms <= now_ms) due = resident;
    next_ms = std::min(next_ms, expiry_ms);
  });
  if (!due) index.due().set_pair(even, next_ms);
  return due;
}

// Returns false if nothing was removed: the device failed, or the log has failed and the record was
// begun after the moment; a cell may have been ended. If the log has failed, the record is removed
// without an entry. It is then removed from the disk when it is read there, or at the next start.
bool Expirer::remove(const RecordTable::Pair& pair, const Index::Resident& due,
                     const Result<CommitLog::Reservation>& room, const Moment& moment) {
  const RecordFields record = table_.record_at(due.position.slot.location());
  if (!room && record.version > moment.begun) return false;  // the next call
  if (!cells_.end(record)) return false;                     // the device failed
  const Version version = record.version;
  const std::uint64_t expiry_ms = record.expiry_ms;
  std::array<std::byte, kMaxKeyBytes> key;
  std::memcpy(key.data(), record.key.data(), record.key.size());
  RecordFields removal{.key = Bytes(key).first(record.key.size())};
  const Target at{table_.memory().hash(removal.key), due.home, due.position, &pair.counters};
  CommitLog::Ticket ticket{};
  if (room) {
    ticket = log_.begin(*room);
    removal.version = Version::of(boot_, ticket.sequence);
  } else {
    clock_.keep_expired(moment.begun, expiry_ms);  // before anyone can miss the record
  }
  table_.erase(at);
  pair.counters.expired += 1;
  if (room) {
    disk_.raise(at.hash, ticket.sequence);
  } else if (version.is_since(boot_)) {
    disk_.raise(at.hash, version.sequence_since(boot_));  // the record on disk may be older
  }
  if (room) log_.finish(ticket, CommitLog::Kind::kRemove, removal);
  return true;
}

}  // namespace rkv::server
