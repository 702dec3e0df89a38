#include "server/store/expirer.h"

#include <array>
#include <cstring>

namespace rkv::server {

namespace {
constexpr Nanos kLongestNap = 1000 * kNanosPerMs;  // then expire() reads the clock again
constexpr Nanos kWhenTheLogIsFull = kNanosPerMs;
constexpr std::size_t kFewNotes = 1024;
}  // namespace

void Expirer::note(KeyHash hash, const RecordFields& fields) {
  const bool earliest =
      expiries_.add({.at_ms = fields.expiry_ms, .hash = hash.bits(), .version = fields.version});
  if (earliest && call_) call_();
}

Nanos Expirer::expire() {
  for (;;) {
    const Version begun = Version::of(boot_, log_.last_begun());  // before the clock (EXPCLOCK-1)
    const auto due = expiries_.take_due(clock_.unix_ms());
    if (!due) break;
    if (expire_one(*due, begun)) continue;
    expiries_.add(*due);
    return clock_.now() + kWhenTheLogIsFull;
  }
  if (const std::size_t notes = expiries_.size(); notes > kFewNotes) {
    if (notes > 2 * table_.locks().total().expiring + kFewNotes) {
      expiries_.drop_stale([this](const Expiry& expiry) { return is_stale(expiry); });
    }
  }
  const Nanos latest = clock_.now() + kLongestNap;
  const auto next_ms = expiries_.earliest_ms();
  if (!next_ms) return latest;
  const std::uint64_t now_ms = clock_.unix_ms();
  const std::uint64_t left_ms = *next_ms > now_ms ? *next_ms - now_ms : 0;
  return left_ms * kNanosPerMs < kLongestNap
             ? clock_.now() + static_cast<Nanos>(left_ms * kNanosPerMs)
             : latest;
}

// Returns false if nothing was removed: the log has no space, or the device failed; a cell may have
// been ended. If the log has failed, the record is removed without an entry. It is then removed
// from the disk when it is read there, or at the next start. `begun`: what was begun before the
// clock said that the record has expired.
bool Expirer::expire_one(const Expiry& expiry, Version begun) {
  const KeyHash hash(expiry.hash);
  const auto reservation = log_.try_reserve(kMaxKeyBytes, 0);
  if (!reservation && reservation.error().code == Code::kBusy) return false;
  if (!reservation && expiry.version > begun) return false;  // begun meanwhile: the next call
  RecordTable::Locked locked(table_, hash);
  const Target at{hash, locked.home, table_.index().find_version(locked.home, hash, expiry.version),
                  &locked.counters()};
  if (!at.found) {
    locked.unlock();
    if (reservation) log_.unreserve(*reservation);
    return true;
  }
  if (!cells_.end(table_.record_at(at.found->slot.location()))) {
    locked.unlock();
    if (reservation) log_.unreserve(*reservation);
    return false;  // the device failed
  }
  std::array<std::byte, kMaxKeyBytes> key;
  const Bytes in_record = table_.record_at(at.found->slot.location()).key;
  std::memcpy(key.data(), in_record.data(), in_record.size());
  RecordFields removal{.key = Bytes(key).first(in_record.size())};
  CommitLog::Ticket ticket{};
  if (reservation) {
    ticket = log_.begin(*reservation);
    removal.version = Version::of(boot_, ticket.sequence);
  }
  if (!reservation) clock_.keep_expired(begun, expiry.at_ms);  // before anyone can miss the record
  table_.erase(at);
  at.counters->expired += 1;
  if (reservation) {
    disk_.raise(hash, ticket.sequence);
  } else if (expiry.version.is_since(boot_)) {
    // The record on disk may be older.
    disk_.raise(hash, expiry.version.sequence_since(boot_));
  }
  if (reservation) log_.finish(ticket, CommitLog::Kind::kRemove, removal);
  locked.unlock();
  table_.release(at.found->slot);
  return true;
}

bool Expirer::is_stale(const Expiry& expiry) const {
  const KeyHash hash(expiry.hash);
  const RecordTable::Locked locked(table_, hash);
  return !table_.index().find_version(locked.home, hash, expiry.version);
}

}  // namespace rkv::server
