#include "server/store/loader.h"

namespace rkv::server {

namespace {
constexpr const char* kChanged = "the key has changed meanwhile";
}

void Loader::prefetch(Bytes key) const {
  const KeyHash hash = table_.memory().hash(key);
  const GroupPlace home = table_.memory().home(hash);
  table_.index().prefetch(home);
  __builtin_prefetch(&table_.locks().of(home), 1);
  disk_.prefetch(hash);
}

Status Loader::load(const RecordFields& from_disk, std::uint64_t as_of, bool promoted) {
  RecordFields record = from_disk;
  if (disk_.in_use() && clock_.has_expired(record.expiry_ms, record.version)) {
    return drop_expired(record, as_of);
  }
  if (is_large(record.value.size())) return load_large(record, as_of, promoted);
  return take_in(record, as_of, promoted,
                 [&](const Target& at) { return records_.plan(at, record); });
}

// Copies the value before any lock is taken.
Status Loader::load_large(RecordFields& record, std::uint64_t as_of, bool promoted) {
  record.digest = value_digest(record.key, record.value, table_.memory().epoch());
  const std::size_t head =
      record_head_bytes(record.key.size(), record.value.size(), record.expiry_ms != 0);
  RecordStore::Plan ready{.units = record_units(head + record.value.size()),
                          .value_is_there = true};
  RKV_ASSIGN_OR_RETURN(ready.block, growth_.allocate(ready.units));
  copy_to_shared(table_.memory().record(ready.block, ready.units) + head, record.value);
  bool used = false;
  const Status taken =
      take_in(record, as_of, promoted, [&](const Target& at) -> Result<RecordStore::Plan> {
        RKV_RETURN_IF_ERROR(records_.find_vacancy(at, ready));
        used = true;
        return ready;
      });
  if (!used) table_.blocks().release(ready.block, ready.units);
  return taken;
}

// `prepare(target)` makes the plan, or refuses.
template <class Prepare>
Status Loader::take_in(const RecordFields& record, std::uint64_t as_of, bool promoted,
                       Prepare prepare) {
  const KeyHash hash = table_.memory().hash(record.key);
  RecordTable::Locked locked(table_, hash);
  Target at = table_.target(hash, locked, record.key);
  // The record in memory is the newest, whatever the versions say: the version of a counter in a
  // cell does not rise.
  const bool newer =
      !disk_.in_use() && at.found && table_.version_at(at.found->slot.location()) < record.version;
  if (at.found && !newer) return {};
  if (disk_.in_use()) {
    if (disk_.has_changed_since(hash, as_of)) return fail(Code::kStale, kChanged);
    // A key that loading has not passed has no slot.
    if (promoted) at.on_disk = disk_.own_slot(at, record.key);
  }
  const Result<RecordStore::Plan> plan = prepare(at);
  if (!plan) {
    locked.unlock();
    growth_.split_if_crowded(hash);
    return std::unexpected(plan.error());
  }
  const RecordStore::Plan& ready = *plan;
  records_.publish(at, ready, record);
  const bool expires_first = expirer_.note(at.home, record.expiry_ms);
  locked.unlock();
  if (at.found && !ready.in_place) table_.release(at.found->slot);
  if (ready.vacancy.where == Index::Where::kStash) growth_.split_if_crowded(hash);
  if (expires_first) expirer_.wake();
  if (promoted) promoted_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

// Inserts a new slot even if there are others with the same bits: each slot stands for one key.
Status Loader::load_on_disk(const RecordFields& record, std::uint64_t as_of) {
  if (clock_.has_expired(record.expiry_ms, record.version)) return drop_expired(record, as_of);
  const KeyHash hash = table_.memory().hash(record.key);
  RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, record.key);
  if (at.found) return {};
  if (disk_.has_changed_since(hash, as_of)) return fail(Code::kStale, kChanged);
  RecordStore::Plan plan;
  if (const Status found = records_.find_vacancy(at, plan); !found) {
    locked.unlock();
    growth_.split_if_crowded(hash);
    return found;
  }
  table_.index().insert(at.home, plan.vacancy, Slot::on_disk(hash));
  at.counters->on_disk += 1;
  locked.unlock();
  if (plan.vacancy.where == Index::Where::kStash) growth_.split_if_crowded(hash);
  return {};
}

// Deletes an expired record from the disk, as a DELETE does. A record in the kept range stays
// there, because the clock that says it expired may be wrong.
Status Loader::drop_expired(const RecordFields& record, std::uint64_t as_of) {
  const bool kept = record.expiry_ms > kept_from_ms_ && record.expiry_ms <= kept_to_ms_;
  CommitLog::Reservation room;
  if (!kept) {
    RKV_ASSIGN_OR_RETURN(room, log_.try_reserve(record.key.size(), 0));
  }
  const KeyHash hash = table_.memory().hash(record.key);
  RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, record.key);
  const bool changed = at.found || disk_.has_changed_since(hash, as_of);
  if (changed || kept) {
    locked.unlock();
    if (!kept) log_.unreserve(room);
    if (!changed) return fail(Code::kNotFound, "no such key");
    return at.found ? Status() : fail(Code::kStale, kChanged);
  }
  disk_.erase(at, record.key, room);
  at.counters->expired += 1;
  return fail(Code::kNotFound, "no such key");
}

}  // namespace rkv::server
