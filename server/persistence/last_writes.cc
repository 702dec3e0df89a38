#include "server/persistence/last_writes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/hash.h"

namespace rkv::server {

// The entry of the key in table_, or the free entry where it belongs.
std::uint32_t& LastWrites::place_of(std::uint64_t hash, Bytes key) {
  for (std::size_t at = hash & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1)) {
    std::uint32_t& place = table_[at];
    if (place == 0) return place;
    const Kept& kept = entries_[place - 1];
    if (kept.hash == hash && as_text(kept.entry.record.key) == as_text(key)) return place;
  }
}

void LastWrites::grow() {
  table_.assign(table_.size() * 2, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].is_void) continue;
    place_of(entries_[i].hash, entries_[i].entry.record.key) = static_cast<std::uint32_t>(i + 1);
  }
}

void LastWrites::add(const CommitLog::Entry& entry) {
  if (2 * (keys_ + 1) > table_.size()) grow();
  const std::uint64_t hash = KeyHash(entry.record.key, seed_).bits();
  std::uint32_t& place = place_of(hash, entry.record.key);
  if (place == 0) {
    ++keys_;
  } else {
    Kept& before = entries_[place - 1];
    before.is_void = true;
    bytes_ -= size_of(before.entry);
    ++void_;
  }
  entries_.push_back({.entry = entry, .hash = hash, .is_void = false});
  bytes_ += size_of(entry);
  place = static_cast<std::uint32_t>(entries_.size());
}

namespace {
// Orders keys as memcmp(3) does, as far as eight bytes tell. Shorter keys end with zeros.
std::uint64_t beginning_of(Bytes key) {
  std::uint64_t first = 0;
  std::memcpy(&first, key.data(), std::min(key.size(), sizeof first));
  return std::byteswap(first);
}
}  // namespace

void LastWrites::sort() {
  sorted_.clear();
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].is_void) continue;
    sorted_.push_back({.beginning = beginning_of(entries_[i].entry.record.key),
                       .place = static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(sorted_, [&](const Sorted& a, const Sorted& b) {
    if (a.beginning != b.beginning) return a.beginning < b.beginning;
    return as_text(entries_[a.place].entry.record.key) <
           as_text(entries_[b.place].entry.record.key);
  });
}

void LastWrites::clear() {
  if (entries_.empty()) return;
  entries_.clear();
  // A retry of everything unsynced may have grown the table; later batches would pay to clear it.
  if (table_.size() > kLargestKept) table_.resize(kLargestKept);
  std::ranges::fill(table_, 0U);
  keys_ = void_ = bytes_ = 0;
}

}  // namespace rkv::server
