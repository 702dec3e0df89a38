#include "server/store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "common/check.h"
#include "server/store_impl.h"
#include "server/store_steps.h"

namespace rkv::server {

namespace {

std::uint64_t* words_of(std::byte* record) {
  return reinterpret_cast<std::uint64_t*>(record);
}

// Records are encoded here before they are copied to shared memory. Per thread, not on the heap:
// no allocation per request.
MutableBytes scratch() {
  alignas(64) static thread_local std::array<std::byte, kMaxRecordBytes> buffer;
  return buffer;
}

// The body of a record, everything after its checksum word. The block verifies as nothing from the
// first changed word until its checksum word is written, hence relaxed stores in any order.
void write_body(std::byte* record, Bytes encoded) {
  if constexpr (kStoreSteps) {
    for (std::size_t at = 8; at < encoded.size(); at += 8) {
      copy_to_shared(record + at,
                     encoded.subspan(at, std::min<std::size_t>(8, encoded.size() - at)));
      after_step(Step::kRecordBody, words_of(record + at));
    }
  } else {
    copy_to_shared(record + 8, encoded.subspan(8));
  }
}

}  // namespace

Result<Store::Impl::Plan> Store::Impl::plan(const Target& target, const RecordFields& fields) {
  const bool has_expiry = fields.expiry_ms != 0;
  Plan plan{.units =
                record_units(record_bytes(fields.key.size(), fields.value.size(), has_expiry))};
  if (target.found) {
    const Slot old = target.found->slot;
    // Long records are rewritten for longer than a READ takes; they always move.
    if (!old.is_long() && old.units() == plan.units && !pinned(target.hash)) {
      plan.in_place = true;
      plan.block = old.location();
      return plan;
    }
  }
  const auto block = records_.allocate(plan.units);
  call_for_memory_if_low();
  if (!block) return no_room(ExtentEntry::kData);
  plan.block = *block;
  if (!target.found) {
    const auto vacancy = index_.vacancy(target.home);
    if (!vacancy) {
      records_.release(plan.block);
      return no_room(ExtentEntry::kIndex);
    }
    plan.vacancy = *vacancy;
  }
  return plan;
}

void Store::Impl::write_in_place(const Plan& plan, const RecordFields& fields) {
  const MutableBytes buffer = scratch();
  const std::size_t length =
      encode_record(buffer, fields, RecordState::kLive, memory_.epoch(), plan.block);
  std::byte* record = memory_.record(plan.block, plan.units);
  write_body(record, buffer.first(length));
  publish_word(Step::kRecordRewritten, words_of(record), load_le<std::uint64_t>(buffer.data()));
}

// Returns the checksum word that makes the record live.
std::uint64_t Store::Impl::write_prepared(const Plan& plan, const RecordFields& fields) {
  const MutableBytes buffer = scratch();
  const std::size_t length =
      encode_record(buffer, fields, RecordState::kPrepared, memory_.epoch(), plan.block);
  std::byte* record = memory_.record(plan.block, plan.units);
  write_body(record, buffer.first(length));
  const auto prepared = load_le<std::uint64_t>(buffer.data());
  publish_word(Step::kRecordPrepared, words_of(record), prepared);
  return prepared ^ kPreparedMask;
}

// The record is live: its checksum word is the bare checksum.
void Store::Impl::supersede(Location block) {
  std::uint64_t* word = words_of(memory_.record(block));
  publish_word(Step::kRecordSuperseded, word, load_word(word) ^ kSupersededMask);
}

Version Store::Impl::version_at(Location block) const {
  return {load_word(words_of(memory_.record(block)) + 1)};
}

// The order of steps is the heart of the store: DESIGN.md, "Writing", says what each one prevents.
PutResult Store::Impl::publish(const Target& target, const Plan& plan, const RecordFields& fields) {
  PutResult result;
  result.version = fields.version;
  if (plan.in_place) {
    write_in_place(plan, fields);
    target.counters->puts_in_place += 1;
    result.slot = target.found->slot;
  } else {
    const std::uint64_t live = write_prepared(plan, fields);
    result.slot = Slot::of(target.hash.fingerprint(), plan.units, plan.block);
    if (target.found) {
      supersede(target.found->slot.location());
      index_.replace(target.home, *target.found, result.slot);
      target.counters->puts_moved += 1;
    } else {
      index_.insert(target.home, plan.vacancy, result.slot);
      target.counters->records += 1;
    }
    publish_word(Step::kRecordLive, words_of(memory_.record(plan.block)), live);
  }
  const auto where = target.found ? target.found->where : plan.vacancy.where;
  result.in_neighbour = where == Index::Where::kNeighbour;
  if (where == Index::Where::kStash) result.slot = {};
  return result;
}

Result<PutResult> Store::Impl::put(Bytes key, Bytes value, std::uint64_t expiry_ms) {
  RKV_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes,
            "key or value outside the limits");
  const KeyHash hash = memory_.hash(key);
  RecordFields fields{.version = {}, .expiry_ms = expiry_ms, .key = key, .value = value};
  RKV_ASSIGN_OR_RETURN(const auto reservation, log_.try_reserve(key.size(), value.size()));

  Locked locked(*this, hash);
  const Target at = target(hash, locked, key);
  const Result<Plan> ready = plan(at, fields);
  if (!ready) {
    locked.unlock();
    log_.unreserve(reservation);
    return std::unexpected(ready.error());
  }
  const CommitLog::Ticket ticket = log_.begin(reservation);
  fields.version = Version::of(boot_, ticket.sequence);
  const PutResult result = publish(at, *ready, fields);
  log_.finish(ticket, CommitLog::Kind::kPut, fields.version, expiry_ms, key, value);
  locked.unlock();
  // Only now that the new record is live: the block may be handed out at once.
  if (at.found && !ready->in_place) records_.release(at.found->slot.location());
  if (ready->vacancy.where == Index::Where::kStash) split_if_crowded(hash);
  return result;
}

Result<Version> Store::Impl::remove(Bytes key) {
  const KeyHash hash = memory_.hash(key);
  RKV_ASSIGN_OR_RETURN(const auto reservation, log_.try_reserve(key.size(), 0));

  Locked locked(*this, hash);
  const Target at = target(hash, locked, key);
  if (!at.found) {
    locked.unlock();
    log_.unreserve(reservation);
    return fail(Code::kNotFound, "no such key");
  }
  const CommitLog::Ticket ticket = log_.begin(reservation);
  const Version version = Version::of(boot_, ticket.sequence);
  supersede(at.found->slot.location());
  index_.erase(at.home, *at.found);
  at.counters->records -= 1;
  log_.finish(ticket, CommitLog::Kind::kRemove, version, 0, key, {});
  locked.unlock();
  records_.release(at.found->slot.location());
  return version;
}

Result<GetResult> Store::Impl::get(Bytes key, MutableBytes out) const {
  const KeyHash hash = memory_.hash(key);
  const Locked locked(*this, hash);
  const auto found = index_.find(locked.home, hash, key);
  if (!found) return fail(Code::kNotFound, "no such key");
  // Plain reads: the lock keeps the record whole.
  const std::byte* record = memory_.record(found->slot.location());
  const auto lengths = load_le<std::uint64_t>(record + 16);
  const GetResult result{.version = {load_le<std::uint64_t>(record + 8)},
                         .value_length = lengths >> 32};
  RKV_CHECK(out.size() >= result.value_length, "the buffer must hold any value");
  const std::size_t at = record_bytes(key.size(), 0, (lengths & kRecordExpiryFlag) != 0);
  if (result.value_length != 0) std::memcpy(out.data(), record + at, result.value_length);
  return result;
}

Status Store::Impl::load(const RecordFields& record) {
  const KeyHash hash = memory_.hash(record.key);
  Locked locked(*this, hash);
  const Target at = target(hash, locked, record.key);
  if (at.found && version_at(at.found->slot.location()) >= record.version) return {};
  RKV_ASSIGN_OR_RETURN(const Plan ready, plan(at, record));
  publish(at, ready, record);
  locked.unlock();
  if (at.found && !ready.in_place) records_.release(at.found->slot.location());
  if (ready.vacancy.where == Index::Where::kStash) split_if_crowded(hash);
  return {};
}

StoreStats Store::Impl::stats() const {
  const StripeCounters counters = locks_.total();
  const RecordAllocator::Usage usage = records_.usage();
  return {.records = counters.records,
          .stashed_records = index_.stashed(),
          .index_slots = memory_.slot_count(),
          .index_splits = counters.splits,
          .memory_bytes = memory_.allocated_bytes(),
          .data_bytes = usage.capacity_bytes,
          .data_bytes_used = usage.used_bytes,
          .puts_in_place = counters.puts_in_place,
          .puts_moved = counters.puts_moved};
}

Store::Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint16_t boot)
    : impl_(std::make_unique<Impl>(memory, log, clock, boot)) {}
Store::~Store() = default;

Result<PutResult> Store::put(Bytes key, Bytes value, std::uint64_t expiry_ms) {
  return impl_->put(key, value, expiry_ms);
}
Result<Version> Store::remove(Bytes key) {
  return impl_->remove(key);
}
Result<GetResult> Store::get(Bytes key, MutableBytes out) const {
  return impl_->get(key, out);
}
Status Store::load(const RecordFields& record) {
  return impl_->load(record);
}
bool Store::wants_memory() const {
  return impl_->wants_memory();
}
Result<bool> Store::grow() {
  return impl_->grow();
}
void Store::on_low_memory(std::function<void()> call) {
  impl_->on_low_memory(std::move(call));
}
StoreStats Store::stats() const {
  return impl_->stats();
}

}  // namespace rkv::server
