// Records that are on disk only: found after a start, or evicted. DESIGN.md, "Larger than memory",
// says when a read of the disk may be believed.
#include <algorithm>
#include <array>

#include "common/check.h"
#include "server/store/store_impl.h"
#include "server/store/store_walk.h"

namespace rkv::server {

void Store::Impl::begin_loading() {
  removal_sequences_ = std::make_unique<RemovalSequences>();
  index_.set_all_spilled(true);
  for_each_pair([this](const Pair& pair) { index_.refresh_spilled(pair.even); });
}

void Store::Impl::end_loading() {
  {
    const std::scoped_lock lock(loading_mutex_);
    loaded_all_ = true;
  }
  index_.set_all_spilled(false);
  for_each_pair([this](const Pair& pair) { index_.refresh_spilled(pair.even); });
}

// -------------------------------------------------------------------------- lookup and loading

// OK if the memory, or `look`, decides whether the key has a record; else kOnDisk, or the error
// that kept the record out of memory.
Status Store::Impl::check_in_memory(const Target& at, DiskLookup look) const {
  if (at.found || removal_sequences_ == nullptr) return {};
  if (!index_.all_spilled() && !index_.find_on_disk(at.home, at.hash)) return {};
  if (!look || removal_sequences_->of(at.hash) > look->as_of) {
    return fail(kOnDisk, "the record is on disk");
  }
  if (look->record == nullptr) return {};  // (V2)
  return std::unexpected(look->record->no_room);
}

// The key's record from `look`, if it is on disk only and the look is still valid (V2).
const RecordOnDisk* Store::Impl::record_on_disk(const Target& at, const DiskLookup& look) const {
  if (at.found || removal_sequences_ == nullptr || !look) return nullptr;
  return removal_sequences_->of(at.hash) <= look->as_of ? look->record : nullptr;
}

Result<GetResult> Store::Impl::get_on_disk(const RecordOnDisk& record, MutableBytes out) const {
  if (has_expired(record.expiry_ms)) return fail(Code::kNotFound, "no such key");
  // Not kTooLarge, which would tell the reader that the buffer is too small.
  if (record.large) return fail(Code::kOutOfMemory, record.no_room.text);
  RKV_CHECK(record.value.size() <= out.size(), "room for a value");
  std::ranges::copy(record.value, out.begin());
  return GetResult{.version = record.version,
                   .expiry_ms = record.expiry_ms,
                   .counter = record.counter,
                   .value_length = record.value.size()};
}

bool Store::Impl::is_on_disk(Bytes key) const {
  const KeyHash hash = memory_.hash(key);
  const Locked locked(*this, hash);
  return !check_in_memory(target(hash, locked, key), {});
}

std::uint64_t Store::Impl::departed(Bytes key) const {
  return removal_sequences_ == nullptr ? 0 : removal_sequences_->of(memory_.hash(key));
}

void Store::Impl::loading(Bytes key, std::uint64_t as_of) {
  const std::scoped_lock lock(loading_mutex_);
  loading_key_.assign(key.begin(), key.end());
  loading_as_of_ = as_of;
}

void Store::Impl::prefetch(Bytes key) const {
  const KeyHash hash = memory_.hash(key);
  const GroupPlace home = memory_.home(hash);
  index_.prefetch(home);
  __builtin_prefetch(&locks_.of(home), 1);
  if (removal_sequences_ != nullptr) removal_sequences_->prefetch(hash);
}

// Whether loading has passed the key, so that it has a slot if it is on disk only. REQUIRES:
// loading_mutex_.
bool Store::Impl::is_given(Bytes key) const {
  return loaded_all_ || std::ranges::lexicographical_compare(key, loading_key_);
}

// The slot that belongs to this key. Before loading has passed the key, a slot with the same bits
// belongs to another key.
std::optional<Index::Position> Store::Impl::own_slot(const Target& at, Bytes key) const {
  {
    const std::scoped_lock lock(loading_mutex_);
    if (!is_given(key)) return std::nullopt;
  }
  return index_.find_on_disk(at.home, at.hash);
}

// What an evicted record leaves in the index. Nothing if loading will reach it later: otherwise
// each eviction before that would leave one more slot. A record that is newer than the disk read
// under way is not in that read, so it must wait for the next one.
Store::Impl::Leaves Store::Impl::leaves(const RecordFields& record) const {
  if (!index_.all_spilled()) return Leaves::kSlot;
  const std::scoped_lock lock(loading_mutex_);
  if (is_given(record.key) || std::ranges::equal(record.key, loading_key_)) return Leaves::kSlot;
  const bool seen =
      !record.version.is_since(boot_) || record.version.sequence_since(boot_) <= loading_as_of_;
  return seen ? Leaves::kNothing : Leaves::kCannotGo;
}

Status Store::Impl::load(const RecordFields& from_disk, std::uint64_t as_of, bool promoted) {
  RecordFields record = from_disk;
  if (removal_sequences_ != nullptr && has_expired(record.expiry_ms))
    return drop_expired(record, as_of);
  if (is_large(record.value.size())) return load_large(record, as_of, promoted);
  return take_in(record, as_of, promoted,
                 [&](const Target& at) -> Result<Plan> { return plan(at, record); });
}

// Copies the value before any lock is taken.
Status Store::Impl::load_large(RecordFields& record, std::uint64_t as_of, bool promoted) {
  record.digest = value_digest(record.key, record.value, memory_.epoch());
  const std::size_t head =
      record_head_bytes(record.key.size(), record.value.size(), record.expiry_ms != 0);
  Plan ready{.units = record_units(head + record.value.size()), .value_is_there = true};
  RKV_ASSIGN_OR_RETURN(ready.block, allocate(ready.units));
  copy_to_shared(memory_.record(ready.block, ready.units) + head, record.value);
  bool used = false;
  const Status taken = take_in(record, as_of, promoted, [&](const Target& at) -> Result<Plan> {
    RKV_RETURN_IF_ERROR(find_vacancy(at, ready));
    used = true;
    return ready;
  });
  if (!used) records_.release(ready.block, ready.units);
  return taken;
}

// `prepare(target)` makes the plan, or refuses.
template <class Prepare>
Status Store::Impl::take_in(const RecordFields& record, std::uint64_t as_of, bool promoted,
                            Prepare prepare) {
  const KeyHash hash = memory_.hash(record.key);
  Locked locked(*this, hash);
  Target at = target(hash, locked, record.key);
  // The record in memory is the newest, whatever the versions say: the version of a counter in a
  // cell does not rise.
  const bool newer = removal_sequences_ == nullptr && at.found &&
                     version_at(at.found->slot.location()) < record.version;
  if (at.found && !newer) return {};
  if (removal_sequences_ != nullptr) {
    if (removal_sequences_->of(hash) > as_of)
      return fail(Code::kStale, "the key has changed meanwhile");
    // A key that loading has not passed has no slot.
    if (promoted) at.on_disk = own_slot(at, record.key);
  }
  const Result<Plan> plan = prepare(at);
  if (!plan) {
    locked.unlock();
    split_if_crowded(hash);
    return std::unexpected(plan.error());
  }
  const Plan& ready = *plan;
  publish(at, ready, record);
  locked.unlock();
  if (at.found && !ready.in_place) release(at.found->slot);
  if (ready.vacancy.where == Index::Where::kStash) split_if_crowded(hash);
  if (record.expiry_ms != 0) note_expiry(hash, record);
  if (promoted) promoted_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

// Inserts a new slot even if there are others with the same bits: each slot stands for one key.
Status Store::Impl::load_on_disk(const RecordFields& record, std::uint64_t as_of) {
  if (has_expired(record.expiry_ms)) return drop_expired(record, as_of);
  const KeyHash hash = memory_.hash(record.key);
  Locked locked(*this, hash);
  const Target at = target(hash, locked, record.key);
  if (at.found) return {};
  if (removal_sequences_->of(hash) > as_of)
    return fail(Code::kStale, "the key has changed meanwhile");
  Plan plan;
  if (const Status found = find_vacancy(at, plan); !found) {
    locked.unlock();
    split_if_crowded(hash);
    return found;
  }
  index_.insert(at.home, plan.vacancy, Slot::on_disk(hash));
  at.counters->on_disk += 1;
  locked.unlock();
  if (plan.vacancy.where == Index::Where::kStash) split_if_crowded(hash);
  return {};
}

// Deletes an expired record from the disk, as a DELETE does. A record in the kept range stays
// there, because the clock that says it expired may be wrong.
Status Store::Impl::drop_expired(const RecordFields& record, std::uint64_t as_of) {
  const bool kept = record.expiry_ms > kept_from_ms_ && record.expiry_ms <= kept_to_ms_;
  CommitLog::Reservation room;
  if (!kept) {
    RKV_ASSIGN_OR_RETURN(room, log_.try_reserve(record.key.size(), 0));
  }
  const KeyHash hash = memory_.hash(record.key);
  Locked locked(*this, hash);
  const Target at = target(hash, locked, record.key);
  const bool changed = at.found || removal_sequences_->of(hash) > as_of;
  if (changed || kept) {
    locked.unlock();
    if (!kept) log_.unreserve(room);
    if (!changed) return fail(Code::kNotFound, "no such key");
    return at.found ? Status() : fail(Code::kStale, "the key has changed meanwhile");
  }
  erase_on_disk(at, record.key, room);
  at.counters->expired += 1;
  return fail(Code::kNotFound, "no such key");
}

// A DELETE of a record that is on disk only.
Version Store::Impl::erase_on_disk(const Target& at, Bytes key, CommitLog::Reservation room) {
  const CommitLog::Ticket ticket = log_.begin(room);
  const Version version = Version::of(boot_, ticket.sequence);
  removal_sequences_->raise(at.hash, ticket.sequence);
  if (const auto slot = own_slot(at, key)) {
    index_.erase(at.home, *slot);
    at.counters->on_disk -= 1;
  }
  log_.finish(ticket, CommitLog::Kind::kRemove, {.version = version, .key = key});
  return version;
}

void Store::Impl::touch(std::span<const std::uint64_t> hashes) {
  if (!is_full_grown()) return;  // nothing will be evicted
  for (const std::uint64_t bits : hashes) {
    const KeyHash hash(bits);
    const Locked locked(*this, hash);
    index_.touch(locked.home, hash);
  }
}

// ------------------------------------------------------------------------------------- eviction

// Whether the record may ever be evicted. Counters in cells may not, because clients change them.
// Records that expire may not, because expiry finds records through memory.
bool Store::Impl::may_ever_go(const RecordFields& record) {
  return !record.in_cell && record.expiry_ms == 0;
}

// Whether the record is synced, so that a failing disk cannot lose it.
bool Store::Impl::is_durable(const RecordFields& record, std::uint64_t durable) const {
  return !record.version.is_since(boot_) || record.version.sequence_since(boot_) <= durable;
}

// In the order of a DELETE: supersede the record, then replace or clear the slot, then free the
// block.
std::size_t Store::Impl::evict_from(const Pair& pair) {
  std::array<Slot, std::size_t{4} * kSlotsPerGroup> gone;  // more records wait for the next pass
  std::size_t count = 0;
  std::size_t left_slots = 0;
  const std::uint64_t durable = log_.sync_mark();
  index_.pass(pair.even, [&](const Index::Resident& resident) {
    const Slot slot = resident.position.slot;
    const RecordFields record = record_at(slot.location());
    if (count == gone.size() || !may_ever_go(record)) return;
    if (!is_durable(record, durable)) {
      some_unsynced_ = true;
      return;
    }
    const Leaves leaves = this->leaves(record);
    if (leaves == Leaves::kCannotGo) {
      some_wait_ = true;
      return;
    }
    const KeyHash hash = memory_.hash(record.key);
    if (record.version.is_since(boot_))
      removal_sequences_->raise(hash, record.version.sequence_since(boot_));
    supersede(slot.location());
    if (leaves == Leaves::kSlot) {
      index_.replace(resident.home, resident.position, Slot::on_disk(hash));
      ++left_slots;
    } else {
      index_.erase(resident.home, resident.position);
    }
    gone[count++] = slot;
  });
  pair.counters.records -= count;
  pair.counters.on_disk += left_slots;
  pair.counters.evicted += count;
  std::size_t bytes = 0;
  for (const Slot slot : std::span(gone).first(count)) {
    // For a long record this is a lower bound.
    bytes += std::size_t{slot.units()} * kUnitBytes;
    release(slot);
  }
  return bytes;
}

// A clock's hand over all pairs: each use of a record saves it for one round, three at most.
std::size_t Store::Impl::evict(std::size_t bytes) {
  const std::uint32_t pairs = memory_.groups_per_segment() / 2;
  std::uint64_t left = std::uint64_t{memory_.segments().in_use()} * pairs * 4 + 1;
  std::size_t freed = 0;
  while (freed < bytes && left != 0) {
    std::uint32_t depth = 0;
    const auto visit = [&](const Pair& pair) { freed += evict_from(pair); };
    if (!visit_pair(hash_of_prefix(hand_prefix_), hand_pair_, &depth, visit)) continue;
    --left;
    if (++hand_pair_ < pairs) continue;
    hand_pair_ = 0;
    hand_prefix_ = next_prefix(hand_prefix_, depth);
  }
  return freed;
}

bool Store::Impl::evict_for_space() {
  const bool called = called_evictor_.exchange(false, std::memory_order_relaxed);
  if (!is_full_grown()) return true;
  const RecordAllocator::Usage usage = records_.usage();
  const std::size_t room = usage.capacity_bytes - usage.used_bytes;
  const std::size_t low = usage.capacity_bytes / 64;
  std::size_t wanted = room < low ? 2 * low - room : 0;
  // Free memory exists, but in pieces that are too small.
  if (called) wanted = std::max(wanted, low);
  if (wanted == 0) {
    nothing_to_evict_.store(false, std::memory_order_relaxed);
    return true;
  }
  some_wait_ = some_unsynced_ = false;
  const bool freed = evict(wanted) != 0;
  nothing_to_evict_.store(!freed && !some_unsynced_ && !some_wait_, std::memory_order_relaxed);
  return freed;
}

}  // namespace rkv::server
