#include "server/store/store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "common/check.h"
#include "server/memory/publish_hooks.h"
#include "server/store/store_impl.h"

namespace rkv::server {

namespace {

std::uint64_t* words_of(std::byte* record) {
  return reinterpret_cast<std::uint64_t*>(record);
}

// Records are encoded here before they are copied to shared memory. One buffer per thread, so that
// no request allocates.
MutableBytes scratch() {
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

Result<Store::Impl::Plan> Store::Impl::plan(const Target& target, const RecordFields& fields) {
  const bool has_expiry = fields.expiry_ms != 0;
  Plan plan{.units =
                record_units(record_bytes(fields.key.size(), fields.value.size(), has_expiry))};
  if (target.found) {
    const Slot old = target.found->slot;
    // Rewriting a long record takes longer than a READ, so long records always move.
    if (!old.is_long() && old.units() == plan.units && !pins_.pinned(target.hash, memory_.tick())) {
      plan.in_place = true;
      plan.block = old.location();
      return plan;
    }
  }
  RKV_ASSIGN_OR_RETURN(plan.block, allocate(plan.units));
  if (const Status found = find_vacancy(target, plan); !found) {
    records_.release(plan.block, plan.units);
    return std::unexpected(found.error());
  }
  return plan;
}

Result<Location> Store::Impl::allocate(std::uint64_t units) {
  if (units * kUnitBytes > memory_.data_extent_bytes()) [[unlikely]] {
    return fail(Code::kTooLarge,
                "the value does not fit into the server's memory: start it with a --memory of at "
                "least eight values of this size");
  }
  const auto block = records_.allocate(units);
  call_for_memory_if_low();
  if (!block) return no_room(ExtentEntry::kData);
  return *block;
}

// Finds a place in the index for a new key.
Status Store::Impl::find_vacancy(const Target& target, Plan& plan) {
  if (target.found) return {};
  if (target.on_disk) {
    plan.vacancy = *target.on_disk;
    return {};
  }
  const auto vacancy = index_.vacancy(target.home);
  if (!vacancy && index_.is_crowded(target.home)) [[unlikely]] {
    return pair_is_crowded(target.hash);
  }
  if (!vacancy) return no_room(ExtentEntry::kIndex);
  plan.vacancy = *vacancy;
  return {};
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

// REQUIRES: the record is live, so its checksum word is the bare checksum.
void Store::Impl::supersede(Location block) {
  std::uint64_t* word = words_of(memory_.record(block));
  publish_word(Step::kRecordSuperseded, word, load_word(word) ^ kSupersededMask);
}

// REQUIRES: no slot leads to the record and it is not live (S5), so only the caller uses the block.
// A long record keeps its header until the block is given to another record.
void Store::Impl::release(Slot gone) {
  std::uint64_t units = gone.units();
  if (gone.is_long()) [[unlikely]] {
    const RecordFields record = record_at(gone.location());
    units =
        record_units(record_bytes(record.key.size(), record.value.size(), record.expiry_ms != 0));
  }
  records_.release(gone.location(), units);
}

Version Store::Impl::version_at(Location block) const {
  return {load_word(words_of(memory_.record(block)) + 1)};
}

// The order of the steps is essential. DESIGN.md, "Writing", says what each step prevents.
PutResult Store::Impl::publish(const Target& target, const Plan& plan, const RecordFields& fields) {
  PutResult result;
  result.version = fields.version;
  target.counters->expiring += fields.expiry_ms != 0 ? 1 : 0;
  if (target.found) {
    const bool expired = record_at(target.found->slot.location()).expiry_ms != 0;
    target.counters->expiring -= expired ? 1 : 0;
  }
  if (plan.in_place) {
    write_in_place(plan, fields);
    if (is_full_grown()) index_.touch(target.home, *target.found);
    target.counters->puts_in_place += 1;
    result.slot = target.found->slot;
  } else {
    const std::uint64_t live = write_prepared(plan, fields);
    result.slot = Slot::of(target.hash.fingerprint(), plan.units, plan.block);
    if (target.found) {
      supersede(target.found->slot.location());
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

namespace {
constexpr const char* kOtherVersion = "the key has another version: read it again";
}

Status Store::Impl::check_condition(const Target& target, Condition condition,
                                    Version expected) const {
  if (condition == Condition::kNone) return {};
  if (condition == Condition::kIfAbsent) {
    if (target.found) return fail(Code::kConflict, "the key exists already");
    return {};
  }
  if (!target.found) return fail(Code::kNotFound, "no such key");
  if (version_at(target.found->slot.location()) == expected) return {};
  return fail(Code::kConflict, kOtherVersion);
}

RecordFields Store::Impl::fields_for(Bytes key, const PutOptions& options) const {
  RecordFields fields{.key = key};
  // Rounded up to the next millisecond, so that no key expires early.
  if (options.ttl_ms == 0) return fields;
  fields.expiry_ms = (options.until ? 0 : unix_ms(kNanosPerMs - 1)) + options.ttl_ms;
  return fields;
}

Status Store::Impl::check_put(const Target& target, const PutOptions& options) const {
  RKV_RETURN_IF_ERROR(check_condition(target, options.condition, options.expected));
  if (target.found && record_at(target.found->slot.location()).counter) {
    return fail(Code::kWrongType, "the key holds a counter: remove it first");
  }
  return {};
}

Result<PutResult> Store::Impl::put(Bytes key, Bytes value, const PutOptions& options) {
  RKV_CHECK(!key.empty() && key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes,
            "key or value outside the limits");
  if (is_large(value.size())) return put_large(key, value, options);
  RecordFields fields = fields_for(key, options);
  fields.value = value;
  return write(fields, value.size(), options,
               [&](const Target& at) { return check_put(at, options); });
}

// Removes the record and its slot. The caller logs the removal and releases the block.
void Store::Impl::erase(const Target& target) {
  const Location block = target.found->slot.location();
  target.counters->records -= 1;
  target.counters->expiring -= record_at(block).expiry_ms != 0 ? 1 : 0;
  supersede(block);
  index_.erase(target.home, *target.found);
}

Status Store::Impl::check_remove(const Target& at, const RecordOnDisk* on_disk,
                                 std::optional<Version> expected, const DiskLookup& look) const {
  if (on_disk == nullptr) {
    RKV_RETURN_IF_ERROR(check_in_memory(at, look));
    if (at.found && !expected) return {};
    return check_condition(at, Condition::kIfVersion, expected.value_or(Version{}));
  }
  if (has_expired(on_disk->expiry_ms)) return fail(Code::kNotFound, "no such key");
  if (expected && on_disk->version != *expected) {
    return fail(Code::kConflict, kOtherVersion);
  }
  return {};
}

Result<Version> Store::Impl::remove(Bytes key, std::optional<Version> expected, DiskLookup look,
                                    Nanos begin_by) {
  const KeyHash hash = memory_.hash(key);
  RKV_ASSIGN_OR_RETURN(const auto reservation, log_.try_reserve(key.size(), 0));

  Locked locked(*this, hash);
  const Target at = target(hash, locked, key);
  const RecordOnDisk* on_disk = record_on_disk(at, look);
  Status allowed = check_time(begin_by);
  if (allowed) allowed = check_remove(at, on_disk, expected, look);
  if (allowed && at.found) {
    if (const auto ended = end_cell(record_at(at.found->slot.location())); !ended) {
      allowed = std::unexpected(ended.error());
    }
  }
  if (!allowed) {
    locked.unlock();
    log_.unreserve(reservation);
    return std::unexpected(allowed.error());
  }
  if (on_disk != nullptr) return erase_on_disk(at, key, reservation);
  const CommitLog::Ticket ticket = log_.begin(reservation);
  const Version version = Version::of(boot_, ticket.sequence);
  erase(at);
  if (removal_sequences_) removal_sequences_->raise(hash, ticket.sequence);
  log_.finish(ticket, CommitLog::Kind::kRemove, {.version = version, .key = key});
  locked.unlock();
  release(at.found->slot);
  return version;
}

RecordFields Store::Impl::record_at(Location block) const {
  // Plain reads: the pair's lock keeps the record whole.
  const std::byte* record = memory_.record(block);
  const auto lengths = load_le<std::uint64_t>(record + 16);
  const bool has_expiry = (lengths & kRecordExpiryFlag) != 0;
  const std::byte* key = record + record_key_offset(lengths);
  const std::size_t key_bytes = record_key_length(lengths);
  const std::size_t value_bytes = lengths >> 32;
  return {.version = {load_le<std::uint64_t>(record + 8)},
          .expiry_ms =
              has_expiry ? load_le<std::uint64_t>(record + kRecordHeaderBytes) : std::uint64_t{0},
          .counter = (lengths & kRecordCounterFlag) != 0,
          .in_cell = (lengths & kRecordCellFlag) != 0,
          .key = {key, key_bytes},
          .value = {record + record_head_bytes(key_bytes, value_bytes, has_expiry), value_bytes}};
}

Result<GetResult> Store::Impl::get(Bytes key, MutableBytes out, DiskLookup look) const {
  const KeyHash hash = memory_.hash(key);
  const Locked locked(*this, hash);
  const Target at = target(hash, locked, key);
  if (const RecordOnDisk* on_disk = record_on_disk(at, look)) return get_on_disk(*on_disk, out);
  RKV_RETURN_IF_ERROR(check_in_memory(at, look));
  const auto& found = at.found;
  if (!found) return fail(Code::kNotFound, "no such key");
  if (is_full_grown()) index_.touch(locked.home, *found);
  const RecordFields record = record_at(found->slot.location());
  GetResult result{.version = record.version,
                   .expiry_ms = record.expiry_ms,
                   .counter = record.counter,
                   .value_length = record.value.size(),
                   .large = is_large(record.value.size()),
                   .slot = found->slot};
  if (result.large) return result;
  if (record.in_cell) {
    RKV_ASSIGN_OR_RETURN(const std::int64_t number, number_of(record));
    store_le(out.data(), number);
    result.value_length = kCounterBytes;
    result.in_cell = true;
    result.slot = {};
    return result;
  }
  RKV_CHECK(out.size() >= record.value.size(), "the buffer must hold any value in a message");
  if (!record.value.empty()) std::memcpy(out.data(), record.value.data(), record.value.size());
  return result;
}

namespace {
std::uint64_t sum_of_cells(const std::vector<Cells*>& all, std::uint32_t (Cells::*count)() const) {
  std::uint64_t sum = 0;
  for (const Cells* cells : all)
    sum += (cells->*count)();
  return sum;
}
}  // namespace

StoreStats Store::Impl::stats() const {
  // Read before the records are counted: if `loading` is false, the counts cover all records.
  const bool loading = index_.all_spilled();
  const StripeCounters counters = locks_.total();
  const RecordAllocator::Usage usage = records_.usage();
  return {.records = counters.records,
          .records_on_disk = counters.on_disk,
          .evicted = counters.evicted,
          .promoted = promoted_.load(std::memory_order_relaxed),
          .loading = loading,
          .stashed_records = index_.stashed(),
          .index_slots = memory_.slot_count(),
          .index_splits = counters.splits,
          .memory_bytes = memory_.allocated_bytes(),
          .data_bytes = usage.capacity_bytes,
          .data_bytes_used = usage.used_bytes,
          .puts_in_place = counters.puts_in_place,
          .puts_moved = counters.puts_moved,
          .expiring = counters.expiring,
          .expired = counters.expired,
          .expiry_notes = expiries_.size(),
          .counter_cells = sum_of_cells(cells_, &Cells::count),
          .counter_cells_taken = sum_of_cells(cells_, &Cells::taken),
          .one_sided_counters = sum_of_cells(cells_, &Cells::open)};
}

Store::Store(StoreMemory& memory, CommitLog& log, const Clock& clock, std::uint32_t boot,
             std::uint64_t unix_ms_at_0)
    : impl_(std::make_unique<Impl>(memory, log, clock, boot, unix_ms_at_0)) {}
Store::~Store() = default;

Result<PutResult> Store::put(Bytes key, Bytes value, const PutOptions& options) {
  return impl_->put(key, value, options);
}
Result<LargePut> Store::begin_large(Bytes key, std::size_t value_length,
                                    const PutOptions& options) {
  return impl_->begin_large(key, value_length, options);
}
Result<PutResult> Store::finish_large(LargePut large, Bytes key, std::uint64_t digest,
                                      const PutOptions& options) {
  return impl_->finish_large(std::move(large), key, digest, options);
}
void Store::cancel_large(LargePut large) {
  impl_->cancel_large(std::move(large));
}
std::uint64_t Store::epoch() const {
  return impl_->epoch();
}
Result<Version> Store::remove(Bytes key, std::optional<Version> expected, DiskLookup look,
                              Nanos begin_by) {
  return impl_->remove(key, expected, look, begin_by);
}
Result<CounterResult> Store::add(Bytes key, std::int64_t summand, DiskLookup look, Nanos begin_by) {
  return impl_->add(key, summand, look, begin_by);
}
Result<CounterResult> Store::swap(Bytes key, std::int64_t expected, std::int64_t desired,
                                  DiskLookup look, Nanos begin_by) {
  return impl_->swap(key, expected, desired, look, begin_by);
}
std::uint32_t Store::add_cells(Cells& cells) {
  return impl_->add_cells(cells);
}
void Store::on_first_cell(std::function<void()> call) {
  impl_->on_first_cell(std::move(call));
}
Result<Store::OpenedCounter> Store::open_counter(Bytes key, bool create, std::uint32_t network,
                                                 DiskLookup look, Nanos begin_by) {
  return impl_->open_counter(key, create, network, look, begin_by);
}
Status Store::sweep_counters() {
  return impl_->sweep_counters();
}
Store::Swept Store::end_counters() {
  return impl_->end_counters();
}
bool Store::has_cells() const {
  return impl_->has_cells();
}
Nanos Store::expire() {
  return impl_->expire();
}
bool Store::has_expired() const {
  return impl_->has_expired();
}
void Store::on_earlier_expiry(std::function<void()> call) {
  impl_->on_earlier_expiry(std::move(call));
}
Result<GetResult> Store::get(Bytes key, MutableBytes out, DiskLookup look) const {
  return impl_->get(key, out, look);
}
void Store::set_wall_clock(std::uint64_t unix_ms_at_0) {
  impl_->set_wall_clock(unix_ms_at_0);
}
std::uint64_t Store::unix_ms() const {
  return impl_->unix_ms();
}
void Store::keep_expired(std::uint64_t from_ms, std::uint64_t to_ms) {
  impl_->keep_expired(from_ms, to_ms);
}
void Store::begin_loading() {
  impl_->begin_loading();
}
void Store::end_loading() {
  impl_->end_loading();
}
Status Store::load(const RecordFields& record, std::uint64_t as_of, bool promoted) {
  return impl_->load(record, as_of, promoted);
}
Status Store::load_on_disk(const RecordFields& record, std::uint64_t as_of) {
  return impl_->load_on_disk(record, as_of);
}
void Store::prefetch(Bytes key) const {
  impl_->prefetch(key);
}
void Store::loading(Bytes key, std::uint64_t as_of) {
  impl_->loading(key, as_of);
}
bool Store::evicts_after_sync() const {
  return impl_->evicts_after_sync();
}
bool Store::has_nothing_to_evict() const {
  return impl_->has_nothing_to_evict();
}
std::uint64_t Store::departed(Bytes key) const {
  return impl_->departed(key);
}
bool Store::is_on_disk(Bytes key) const {
  return impl_->is_on_disk(key);
}
void Store::touch(std::span<const std::uint64_t> hashes) {
  impl_->touch(hashes);
}
bool Store::evict_for_space() {
  return impl_->evict_for_space();
}
void Store::on_no_room(std::function<void()> call) {
  impl_->on_no_room(std::move(call));
}
bool Store::has_spare_room() const {
  return impl_->has_spare_room();
}
bool Store::is_full_grown() const {
  return impl_->is_full_grown();
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
void Store::add_hint_words(const std::uint64_t* words) {
  impl_->add_hint_words(words);
}
std::string Store::check_at_rest() const {
  return impl_->check_at_rest();
}
StoreStats Store::stats() const {
  return impl_->stats();
}

}  // namespace rkv::server
