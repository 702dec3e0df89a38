#include "server/store/record_store.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/check.h"

namespace rkv::server {

namespace {

constexpr const char* kOtherVersion = "the key has another version: read it again";

// Records are encoded here before they are copied to shared memory. One buffer per thread, so that
// no request allocates. Not inline: the compiler would compute the buffer's address for each word
// that is copied.
[[gnu::noinline]] MutableBytes scratch() {
  alignas(64) static thread_local std::array<std::byte, kMaxInlineRecordBytes> buffer;
  return buffer;
}

// Writes the body of a record, everything after its checksum word, or a first part of it. The
// stores are relaxed and in any order: from the first changed word until the checksum word is
// written, the block does not verify.
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

RecordStore::RecordStore(const Parts& parts)
    : table_(parts.table),
      memory_(parts.table.memory()),
      index_(parts.table.index()),
      log_(parts.log),
      clock_(parts.clock),
      disk_(parts.disk),
      cells_(parts.cells),
      evictor_(parts.evictor),
      growth_(parts.growth),
      expirer_(parts.expirer),
      boot_(parts.boot) {}

Result<RecordStore::Plan> RecordStore::plan(const Target& target, const RecordFields& fields) {
  const bool has_expiry = fields.expiry_ms != 0;
  Plan plan{.units =
                record_units(record_bytes(fields.key.size(), fields.value.size(), has_expiry))};
  if (target.found) {
    const Slot old = target.found->slot;
    // Rewriting a long record takes longer than a READ, so a put always moves it.
    if (!old.is_long() && old.units() == plan.units && !pins_.pinned(target.hash, memory_.tick())) {
      plan.in_place = true;
      plan.block = old.location();
      return plan;
    }
  }
  RKV_ASSIGN_OR_RETURN(plan.block, growth_.allocate(plan.units));
  if (const Status found = find_vacancy(target, plan); !found) {
    table_.blocks().release(plan.block, plan.units);
    return std::unexpected(found.error());
  }
  return plan;
}

std::optional<RecordStore::Plan> RecordStore::plan_head(const Target& target,
                                                        RecordFields& fields) {
  const Slot slot = target.found->slot;
  const RecordFields record = table_.record_at(slot.location());
  if (!is_large(record.value.size()) || (record.expiry_ms != 0) != (fields.expiry_ms != 0) ||
      pins_.pinned(target.hash, memory_.tick()))
    return std::nullopt;
  fields.value = record.value;
  fields.digest = record.digest;
  return Plan{.in_place = true,
              .block = slot.location(),
              .units = table_.units_of(slot),
              .value_is_there = true};
}

Status RecordStore::find_vacancy(const Target& target, Plan& plan) {
  if (target.found) return {};
  if (target.on_disk) {
    plan.vacancy = *target.on_disk;
    return {};
  }
  auto vacancy = index_.vacancy(target.home);
  while (!vacancy) [[unlikely]] {
    const std::unexpected<Error> full = growth_.no_vacancy(target.home, target.hash);
    if (full.error().code != Code::kOutOfMemory || !evictor_.make_vacancy(target)) return full;
    vacancy = index_.vacancy(target.home);
  }
  plan.vacancy = *vacancy;
  return {};
}

void RecordStore::drop(const Plan& plan) {
  if (!plan.in_place) table_.blocks().release(plan.block, plan.units);
  index_.release(plan.vacancy);
}

void RecordStore::write_in_place(const Plan& plan, const RecordFields& fields) {
  const MutableBytes buffer = scratch();
  const auto encode = plan.value_is_there ? encode_large_head : encode_record;
  std::size_t length = encode(buffer, fields, RecordState::kLive, memory_.epoch(), plan.block);
  if (memory_.is_scrubbed() && !plan.value_is_there)
      [[unlikely]] {  // a longer value may have been there (SCRUB-1)
    const std::size_t block = plan.units * kUnitBytes;
    std::ranges::fill(buffer.first(block).subspan(length), std::byte{});
    length = block;
  }
  std::byte* record = memory_.record(plan.block, plan.units);
  write_body(record, buffer.first(length));
  publish_word(Step::kRecordRewritten, words_of(record), load_le<std::uint64_t>(buffer.data()));
}

// Returns the checksum word that makes the record live.
std::uint64_t RecordStore::write_prepared(const Plan& plan, const RecordFields& fields) {
  const MutableBytes buffer = scratch();
  const bool large = is_large(fields.value.size());
  const auto encode = large ? encode_large_head : encode_record;
  const std::size_t length =
      encode(buffer, fields, RecordState::kPrepared, memory_.epoch(), plan.block);
  std::byte* record = memory_.record(plan.block, plan.units);
  write_body(record, buffer.first(length));
  if (large && !plan.value_is_there) copy_to_shared(record + length, fields.value);
  const auto prepared = load_le<std::uint64_t>(buffer.data());
  publish_word(Step::kRecordPrepared, words_of(record), prepared);
  return prepared ^ kPreparedMask;
}

// The order of the steps is essential. DESIGN.md, "Writing", says what each step prevents.
PutResult RecordStore::publish(const Target& target, const Plan& plan, const RecordFields& fields) {
  PutResult result;
  result.version = fields.version;
  target.counters->expiring += fields.expiry_ms != 0 ? 1 : 0;
  if (target.found) {
    const bool expired = table_.record_at(target.found->slot.location()).expiry_ms != 0;
    target.counters->expiring -= expired ? 1 : 0;
  }
  if (plan.in_place) {
    write_in_place(plan, fields);
    if (evictor_.counts_uses()) index_.touch(target.home, *target.found);
    target.counters->puts_in_place += 1;
    result.slot = target.found->slot;
  } else {
    const std::uint64_t live = write_prepared(plan, fields);
    result.slot = Slot::of(target.hash.fingerprint(), plan.units, plan.block);
    if (target.found) {
      table_.supersede(target.found->slot.location());
      index_.replace(target.home, *target.found, result.slot);
      target.counters->puts_moved += 1;
    } else if (target.on_disk) {
      index_.replace(target.home, plan.vacancy, result.slot);
      target.counters->records += 1;
      target.counters->on_disk -= 1;
    } else {
      index_.insert(target.home, plan.vacancy, result.slot);
      target.counters->records += 1;
    }
    publish_word(Step::kRecordLive, words_of(memory_.record(plan.block)), live);
  }
  const auto where = target.found ? target.found->where : plan.vacancy.where;
  result.in_neighbour = where == Index::Where::kNeighbour;
  return result;
}

void RecordStore::move(const Target& at, Location to, std::uint64_t units) {
  const RecordFields record = table_.record_at(at.found->slot.location());
  publish(at, {.block = to, .units = units}, record);
  at.counters->puts_moved -= 1;  // no client has put it
}

Status RecordStore::check_condition(const Target& target, Condition condition,
                                    Version expected) const {
  if (condition == Condition::kNone) return {};
  if (condition == Condition::kIfAbsent) {
    if (target.found) return fail(Code::kConflict, "the key exists already");
    return {};
  }
  if (!target.found) return fail(Code::kNotFound, "no such key");
  if (table_.version_at(target.found->slot.location()) == expected) return {};
  return fail(Code::kConflict, kOtherVersion);
}

RecordFields RecordStore::fields_for(Bytes key, const PutOptions& options) const {
  RecordFields fields{.key = key};
  if (options.ttl_ms == 0) return fields;
  // Rounded up to the next millisecond, so that no key expires early. Not later than an expiry that
  // a client may give: else nothing could store again what a dump shows.
  fields.expiry_ms =
      options.until ? options.ttl_ms : std::min(clock_.end_of(options.ttl_ms), kMaxTtlMs);
  return fields;
}

Status RecordStore::check_put(const Target& target, const PutOptions& options) const {
  RKV_RETURN_IF_ERROR(check_condition(target, options.condition, options.expected));
  if (target.found && table_.record_at(target.found->slot.location()).counter) {
    return fail(Code::kWrongType, "the key holds a counter: remove it first");
  }
  return {};
}

StoreResult<PutResult> RecordStore::put(Bytes key, Bytes value, const PutOptions& options) {
  RecordFields fields = fields_for(key, options);
  fields.value = value;
  // Acquires everything that could fail before anything is published (STORE-4).
  RKV_ASSIGN_OR_RETURN(const auto room, log_.try_reserve(key.size(), value.size()));
  const auto prepare = [&](const Target& at) -> Result<Plan> {
    RKV_RETURN_IF_ERROR(check_put(at, options));
    return plan(at, fields);
  };
  return commit(room, fields, prepare, options.look, options.begin_by, options.tag);
}

StoreStatus RecordStore::check_remove(const Target& at, const RecordOnDisk* on_disk,
                                      std::optional<Version> expected,
                                      const DiskLookup& look) const {
  if (on_disk == nullptr) {
    RKV_RETURN_IF_ERROR(disk_.check_in_memory(at, look));
    if (at.found && !expected) return {};
    return check_condition(at, Condition::kIfVersion, expected.value_or(Version{}));
  }
  if (clock_.has_expired(on_disk->expiry_ms, on_disk->version)) {
    return fail(Code::kNotFound, "no such key");
  }
  if (expected && on_disk->version != *expected) {
    return fail(Code::kConflict, kOtherVersion);
  }
  return {};
}

StoreResult<Version> RecordStore::remove(Bytes key, std::optional<Version> expected,
                                         const DiskLookup& look, Nanos begin_by,
                                         const WriteTag* tag) {
  const KeyHash hash = memory_.hash(key);
  RKV_ASSIGN_OR_RETURN(const auto reservation, log_.try_reserve(key.size(), 0));

  RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, key);
  const RecordOnDisk* on_disk = disk_.record_on_disk(at, look);
  StoreStatus allowed = check_time(begin_by);
  if (allowed) allowed = check_remove(at, on_disk, expected, look);
  if (allowed && at.found) {
    if (const auto ended = cells_.end(table_.record_at(at.found->slot.location())); !ended) {
      allowed = std::unexpected(ended.error());
    }
  }
  if (!allowed) {
    locked.unlock();
    log_.unreserve(reservation);
    return std::unexpected(allowed.error());
  }
  if (on_disk != nullptr) return disk_.erase(at, key, reservation, tag);
  const CommitLog::Ticket ticket = log_.begin(reservation);
  const Version version = Version::of(boot_, ticket.sequence);
  table_.erase(at);
  disk_.raise(hash, ticket.sequence);
  log_.finish(ticket, CommitLog::Kind::kRemove, {.version = version, .key = key}, {}, tag);
  locked.unlock();
  table_.release(at.found->slot);
  return version;
}

StoreResult<GetResult> RecordStore::get(Bytes key, MutableBytes out, const DiskLookup& look) const {
  const KeyHash hash = memory_.hash(key);
  const RecordTable::Locked locked(table_, hash);
  const Target at = table_.target(hash, locked, key);
  if (const RecordOnDisk* on_disk = disk_.record_on_disk(at, look))
    return get_on_disk(*on_disk, out);
  RKV_RETURN_IF_ERROR(disk_.check_in_memory(at, look));
  const auto& found = at.found;
  if (!found) return fail(Code::kNotFound, "no such key");
  if (evictor_.counts_uses()) index_.touch(locked.home, *found);
  const RecordFields record = table_.record_at(found->slot.location());
  GetResult result{.version = record.version,
                   .expiry_ms = record.expiry_ms,
                   .counter = record.counter,
                   .value_length = record.value.size(),
                   .large = is_large(record.value.size()),
                   .slot = found->slot};
  if (result.large) return result;
  if (record.in_cell) {
    RKV_ASSIGN_OR_RETURN(const std::int64_t number, cells_.number_of(record));
    store_le(out.data(), number);
    result.value_length = kCounterBytes;
    result.in_cell = true;
    result.slot = {};
    return result;
  }
  if (record.value.size() > out.size()) return fail(Code::kTooLarge, "a longer buffer is needed");
  if (!record.value.empty()) std::memcpy(out.data(), record.value.data(), record.value.size());
  return result;
}

Result<GetResult> RecordStore::get_on_disk(const RecordOnDisk& record, MutableBytes out) const {
  if (clock_.has_expired(record.expiry_ms, record.version)) {
    return fail(Code::kNotFound, "no such key");
  }
  // Not kTooLarge, which would tell the reader that the buffer is too small.
  if (record.large) return fail(Code::kOutOfMemory, record.no_room.text);
  RKV_CHECK(record.value.size() <= out.size(), "room for a value");
  std::ranges::copy(record.value, out.begin());
  return GetResult{.version = record.version,
                   .expiry_ms = record.expiry_ms,
                   .counter = record.counter,
                   .value_length = record.value.size()};
}

}  // namespace rkv::server
