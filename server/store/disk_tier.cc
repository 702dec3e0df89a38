#include "server/store/disk_tier.h"

#include <algorithm>

namespace rkv::server {

void DiskTier::begin_loading() {
  removal_sequences_ = std::make_unique<RemovalSequences>();
  table_.index().set_all_spilled(true);
  refresh_spilled();
}

void DiskTier::end_loading() {
  {
    const MutexLock lock(progress_mutex_);
    loaded_all_ = true;
  }
  table_.index().set_all_spilled(false);
  refresh_spilled();
}

void DiskTier::refresh_spilled() {
  table_.for_each_pair(
      [this](const RecordTable::Pair& pair) { table_.index().refresh_spilled(pair.even); });
}

void DiskTier::set_progress(Bytes key, std::uint64_t as_of) {
  const MutexLock lock(progress_mutex_);
  progress_key_.assign(key.begin(), key.end());
  progress_as_of_ = as_of;
}

std::uint64_t DiskTier::removal_sequence(Bytes key) const {
  return removal_sequences_ == nullptr ? 0 : removal_sequences_->of(table_.memory().hash(key));
}

bool DiskTier::is_on_disk(Bytes key) const {
  const KeyHash hash = table_.memory().hash(key);
  const RecordTable::Locked locked(table_, hash);
  return !check_in_memory(table_.target(hash, locked, key), {});
}

StoreStatus DiskTier::check_in_memory(const Target& at, const DiskLookup& look) const {
  if (at.found || removal_sequences_ == nullptr) return {};
  const Index& index = table_.index();
  if (!index.all_spilled() && !index.find_on_disk(at.home, at.hash)) return {};
  if (!look || removal_sequences_->of(at.hash) > look->as_of) {
    return std::unexpected(
        StoreError({.code = Code::kBusy, .text = "the record is on disk"}, /*is_on_disk=*/true));
  }
  if (look->record == nullptr) return {};  // (REMSEQ-2)
  return std::unexpected(look->record->no_room);
}

const RecordOnDisk* DiskTier::record_on_disk(const Target& at, const DiskLookup& look) const {
  if (at.found || removal_sequences_ == nullptr || !look) return nullptr;
  return removal_sequences_->of(at.hash) <= look->as_of ? look->record : nullptr;
}

Version DiskTier::erase(const Target& at, Bytes key, CommitLog::Reservation room,
                        const WriteTag* tag) {
  const CommitLog::Ticket ticket = log_.begin(room);
  const Version version = Version::of(boot_, ticket.sequence);
  removal_sequences_->raise(at.hash, ticket.sequence);
  if (const auto slot = own_slot(at, key)) {
    table_.index().erase(at.home, *slot);
    at.counters->on_disk -= 1;
  }
  log_.finish(ticket, CommitLog::Kind::kRemove, {.version = version, .key = key}, {}, tag);
  return version;
}

// Whether loading has passed the key, so that it has a slot if it is on disk only.
bool DiskTier::is_passed(Bytes key) const {
  return loaded_all_ || std::ranges::lexicographical_compare(key, progress_key_);
}

std::optional<Index::Position> DiskTier::own_slot(const Target& at, Bytes key) const {
  {
    const MutexLock lock(progress_mutex_);
    if (!is_passed(key)) return std::nullopt;
  }
  return table_.index().find_on_disk(at.home, at.hash);
}

// Returns kNothing if loading will reach the record later: otherwise each eviction before that
// would leave one more slot. A record that is newer than the disk read under way is not in that
// read, so it must wait for the next one.
DiskTier::Leaves DiskTier::leaves(const RecordFields& record) const {
  if (!table_.index().all_spilled()) return Leaves::kSlot;
  const MutexLock lock(progress_mutex_);
  if (is_passed(record.key) || std::ranges::equal(record.key, progress_key_)) return Leaves::kSlot;
  const bool seen =
      !record.version.is_since(boot_) || record.version.sequence_since(boot_) <= progress_as_of_;
  return seen ? Leaves::kNothing : Leaves::kCannotGo;
}

}  // namespace rkv::server
