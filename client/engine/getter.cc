#include "client/engine/getter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "client/get/fingerprints.h"
#include "common/random.h"

namespace rkv::client {

using Need = GetOp::Need;

namespace {

// How long a GET waits until a line of the map verifies, before it asks the server for the value.
constexpr Nanos kMapPatience = 10 * kNanosPerMs;

}  // namespace

Getter::Getter(Session& session, Connector& connector, Requester& requester)
    : session_(session),
      connector_(connector),
      requester_(requester),
      op_(session, session.arena.get_memory(session.options.reads_in_flight)),
      mark_wait_(random_from_kernel()) {}

// --------------------------------------------------------------------------- driving a GetOp

const Result<ValueView>& Getter::find(Bytes key, Durability at_least, const Deadline& deadline,
                                      const Destination* into) {
  op_.begin(key, at_least);
  while (op_.need() != Need::kNothing) {
    if (op_.need() == Need::kReads) [[likely]] {
      const Status landed = session_.link.read(op_.reads(), deadline);
      if (landed) [[likely]]
        op_.on_reads();
      else
        op_.on_error(landed.error());
    } else if (op_.need() == Need::kConnection && session_.usable() && !session_.trust.in_group()) {
      op_.start();
    } else {
      perform(deadline, into);
    }
  }
  const Result<ValueView>& result = op_.result();
  if (result || is_answer(result.error().code)) connector_.progressed();
  return result;
}

void Getter::perform(const Deadline& deadline, const Destination* into) {
  switch (op_.need()) {
    case Need::kConnection: {
      const Status ready = connector_.make_ready(deadline);
      return ready ? op_.start() : op_.end_with(ready.error());
    }
    case Need::kLargeBuffer:
      // Requests hold all large buffers: the device has not reported their sends yet.
      if (!op_.take_large_buffer()) op_.ask_server();
      return;
    case Need::kValueBuffer:
      return give_value_buffer(into);
    case Need::kMap:
      return op_.on_map(refresh_map(op_.stale_map(), deadline));
    case Need::kRequest: {
      auto reply = requester_.ask(op_.request(), deadline);
      if (reply || reply.error().code == Code::kNotFound) op_.reported();
      return reply ? op_.on_reply(std::move(*reply)) : op_.on_refused(reply.error());
    }
    case Need::kReplicated: {
      const Status replicated = connector_.await_replicated(op_.version(), deadline);
      return replicated ? op_.on_replicated() : op_.on_error(replicated.error());
    }
    case Need::kMark:
      return await_mark(deadline);
    case Need::kReads:
    case Need::kReply:
    case Need::kNothing:
      return;
  }
}

// Gives the GET of a large value the caller's memory if it is registered, else the client's own.
void Getter::give_value_buffer(const Destination* into) {
  if (into != nullptr && into->bytes.size() < op_.value_bytes()) {
    return op_.end_with(too_long(op_.value_bytes()).error());
  }
  if (into != nullptr && into->local_key) {
    return op_.give_value_buffer(into->bytes, *into->local_key);
  }
  if (const Status given = op_.take_value_buffer(); !given) op_.end_with(given.error());
}

Status Getter::refresh_map(GetMachine::Next what, const Deadline& deadline) {
  const Nanos patience_end = std::min(deadline.at(), session_.clock.now() + kMapPatience);
  return what == GetMachine::Next::kRefreshExtents
             ? session_.loader.refresh_extents(deadline, patience_end)
             : session_.loader.refresh_directory(deadline, patience_end);
}

// READs the marks until they cover the version, and requests them when MarkWait says so. The answer
// to a refused request (the disk has failed, the server is busy) carries the marks, too. Its error
// is ignored: the mark may still rise.
void Getter::await_mark(const Deadline& deadline) {
  mark_wait_.begin();
  for (;;) {
    const Status looked = session_.loader.look_at_marks(deadline);
    if (!looked && looked.error().code != Code::kBusy) return op_.on_error(looked.error());
    op_.on_marks(looked.has_value());
    if (op_.need() == Need::kMark && mark_wait_.asks_after_look()) {
      const auto reply =
          session_.link.call({.opcode = MarkWait::request_for(op_.at_least())}, deadline);
      if (!reply) return op_.on_error({.code = reply.error().code, .text = reply.error().text});
      ++session_.stats.two_sided_requests;
      session_.learn_marks(reply->response());
      op_.on_marks(true);
    }
    if (op_.need() != Need::kMark) return;
    const Nanos again_at = session_.clock.now() + mark_wait_.pause();
    if (again_at >= deadline.at()) return op_.on_no_mark();
    session_.link.sleep_until(again_at);
  }
}

template <class T, class Use>
Result<T> Getter::with_found(Bytes key, Durability at_least, const Deadline& deadline,
                             const Destination* into, Use use) {
  const Result<ValueView>& found = find(key, at_least, deadline, into);
  Result<T> result = found ? use(*found) : Result<T>(std::unexpected(found.error()));
  op_.release();
  return result;
}

Result<Value> Getter::get(Bytes key, const GetOptions& options) {
  if (const LiveRecord* const found = try_sync(key, options.at_least)) {
    return copy_of(view(*found));
  }
  return with_found<Value>(key, options.at_least, connector_.deadline(options.timeout), nullptr,
                           copy_of);
}

Result<ValueSize> Getter::get_into(Bytes key, const GetOptions& options, const Destination& into) {
  if (overlap(key, into.bytes)) [[unlikely]]
    return std::unexpected(kKeyInDestination);  // INTO-1
  return with_found<ValueSize>(key, options.at_least, connector_.deadline(options.timeout), &into,
                               [&](const ValueView& found) { return copy_out(found, into.bytes); });
}

Result<Counter> Getter::get_number(Bytes key, const Deadline& deadline) {
  return with_found<Counter>(key, Durability::kMemory, deadline, nullptr, counter_of);
}

Result<Counter> counter_of(const ValueView& found) {
  if (!found.is_counter) {
    return fail(Code::kWrongType, "the key holds a plain value, not a counter");
  }
  return Counter{.number = load_le<std::int64_t>(as_bytes(found.value).data()),
                 .version = found.version,
                 .durability = found.durability};
}

std::unexpected<Error> Getter::too_long(std::size_t needed) {
  needed_bytes_ = needed;
  return fail(Code::kTooLarge, "the value is longer than the buffer given");
}

// ------------------------------------------------------------- the READ of a cached place

// Returns the only slot with the key's fingerprint in its home group, if the group is cached; else
// an empty slot.
Slot Getter::slot_in_cached_group(KeyHash hash) {
  const auto home = session_.map.home(hash);
  const Group* const group = home ? session_.groups.find(*home) : nullptr;
  if (group == nullptr) return {};
  const std::uint32_t found = slots_with(*group, hash.fingerprint());
  if (!std::has_single_bit(found)) return {};
  return Slot{group->slots[static_cast<std::size_t>(std::countr_zero(found))]};
}

// Finds the cached place of a key's record. GET-7: the address comes from the map.
[[gnu::always_inline]] inline bool Getter::find_place(KeyHash hash, Place& found) {
  Slot slot = session_.slots.find(hash);
  const bool from_group = slot.empty();
  if (from_group) slot = slot_in_cached_group(hash);
  const std::size_t length = slot.units() * kUnitBytes;
  if (slot.is_long() || length == 0 || length > GetMemory::kRecordBytes) return false;
  const Lookup at = session_.map.record(slot.location(), length);
  if (at.kind != Lookup::Kind::kOk) return false;
  found = {
      .hash = hash, .slot = slot, .from_group = from_group, .from = at.range, .length = length};
  return true;
}

// REQUIRES, in a group: the server is believed (TRUST-1). READs the record. The answer is a live
// record that verified, has this key, and was read inside this GET (GET-1). Otherwise the
// result is null, and the caller starts the state machine.
template <bool kInGroup>
[[gnu::always_inline]] inline const LiveRecord* Getter::read_place(Bytes key, const Place& at,
                                                                   Durability at_least,
                                                                   MutableBytes room) {
  const MutableBytes record = room.first(at.length);
  if (!session_.link.read_at_once(record, at.from)) return nullptr;
  ++session_.stats.rdma_reads;
  if (!decode_live_record(record, session_.map.epoch(), at.slot.location(), key, sync_))
    return nullptr;
  if (kInGroup && !session_.trust.is_replicated(sync_.version)) return nullptr;
  if (session_.durability_of(sync_.version) < at_least) return nullptr;
  if (at.from_group) session_.slots.put(at.hash, at.slot);
  session_.reports.note(at.hash);
  ++session_.stats.gets;
  ++session_.stats.one_sided_gets;
  ++session_.stats.cache_hits;
  return &sync_;
}

const LiveRecord* Getter::try_sync(Bytes key, Durability at_least) {
  if (!reads_at_once() || key.empty() || key.size() > kMaxKeyBytes) return nullptr;
  if (session_.reports.is_due()) [[unlikely]]
    return nullptr;
  if (session_.trust.in_group()) [[unlikely]]
    return try_sync_in_group(key, at_least);
  Place at;
  if (!find_place(session_.map.hash(key), at)) return nullptr;
  return read_place<false>(key, at, at_least, op_.memory().record);
}

const LiveRecord* Getter::try_sync_in_group(Bytes key, Durability at_least) {
  if (!session_.trust.believes(session_.group_clock->passed())) return nullptr;
  Place at;
  if (!find_place(session_.map.hash(key), at)) return nullptr;
  return read_place<true>(key, at, at_least, op_.memory().record);
}

// Performs each step for all keys before the next step, so that memory of one key is fetched while
// other keys are handled.
std::size_t Getter::try_sync(std::span<const GetItem> items, Visit visit, void* target,
                             std::span<std::size_t, kBatchKeys> left) {
  std::array<Place, kBatchKeys> at;
  std::array<bool, kBatchKeys> known{};
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Bytes key = as_bytes(items[i].key);
    known[i] = !key.empty() && key.size() <= kMaxKeyBytes;
    if (!known[i]) continue;
    at[i].hash = session_.map.hash(key);
    session_.slots.prefetch(at[i].hash);
  }
  if (session_.reports.is_due()) [[unlikely]]
    known[0] = false;  // this GET goes by request, with the reports
  for (std::size_t i = 0; i < items.size(); ++i) {
    known[i] = known[i] && find_place(at[i].hash, at[i]);
    if (known[i]) session_.link.prefetch(at[i].from, at[i].length);
  }
  const std::span<const Place> places = std::span(at).first(items.size());
  return session_.trust.in_group() ? read_places<true>(items, places, known, visit, target, left)
                                   : read_places<false>(items, places, known, visit, target, left);
}

template <bool kInGroup>
std::size_t Getter::read_places(std::span<const GetItem> items, std::span<const Place> at,
                                std::span<const bool> known, Visit visit, void* target,
                                std::span<std::size_t, kBatchKeys> left) {
  const MutableBytes room = op_.memory().record;
  std::size_t left_count = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const LiveRecord* const found =
        known[i] ? read_place<kInGroup>(as_bytes(items[i].key), at[i], items[i].at_least, room)
                 : nullptr;
    if (found != nullptr) {
      visit(target, items[i].token, view(*found));
    } else {
      left[left_count++] = i;
    }
  }
  return left_count;
}

}  // namespace rkv::client
