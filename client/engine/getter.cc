#include "client/engine/getter.h"

#include <algorithm>
#include <array>
#include <bit>

#include "client/get/fingerprints.h"
#include "common/random.h"

namespace rkv::client {

using Next = GetMachine::Next;

namespace {

// How long a GET waits for a line of the map to verify, before it asks the server for the value.
constexpr Nanos kMapPatience = 10 * kNanosPerMs;

}  // namespace

Getter::Getter(Session& session, Connector& connector, Requester& requester)
    : session_(session),
      connector_(connector),
      requester_(requester),
      mark_wait_(random_from_kernel()) {
  lanes_.reserve(session.options.reads_in_flight);
  while (lanes_.size() < session.options.reads_in_flight)
    lanes_.emplace_back(session.map, session.groups, session.slots, session.clock);
}

void Getter::give_back_large(GetLane& lane) {
  session_.arena.give_back_large(lane.large);
  lane.large = {};
  session_.large.give_back(lane.value);
  lane.value = nullptr;
}

std::unexpected<Error> Getter::too_long(std::size_t needed) {
  needed_bytes_ = needed;
  return fail(Code::kTooLarge, "the value is longer than the buffer given");
}

// Gives a large value the caller's memory if it is registered, else the client's own.
Status Getter::give_value_buffer(GetLane& lane, const Destination* into) {
  const std::size_t needed = lane.machine.value_bytes();
  if (into != nullptr && into->bytes.size() < needed) return too_long(needed);
  if (into != nullptr && into->local_key) {
    lane.machine.give_value_buffer(into->bytes, *into->local_key);
    return {};
  }
  session_.large.give_back(lane.value);  // of a shorter value that was overwritten since
  lane.value = nullptr;
  RKV_ASSIGN_OR_RETURN(lane.value, session_.large.take(needed));
  lane.machine.give_value_buffer(lane.value->bytes(), lane.value->region->local_key());
  return {};
}

void Getter::count_reads(const GetMachine& machine) {
  session_.stats.rdma_reads += machine.counts().reads;
  session_.stats.retries += machine.counts().retries;
  session_.stats.pins += machine.counts().pins;
  session_.stats.tears_detected += machine.counts().tears;
}

Result<Next> Getter::run(GetLane& lane, Next next, const Deadline& deadline,
                         const Destination* into) {
  for (;;) {
    switch (next) {
      case Next::kRead:
        RKV_RETURN_IF_ERROR(session_.link.read(lane.machine.reads(), deadline));
        break;
      case Next::kRefreshExtents:
      case Next::kRefreshDirectory:
        if (const Status refreshed = refresh_map(next, deadline); !refreshed) [[unlikely]] {
          if (refreshed.error().code != Code::kBusy) return std::unexpected(refreshed.error());
          return lane.machine.ask_server();
        }
        break;
      case Next::kLargeBuffer:
        lane.large = session_.arena.take_large();
        // Requests hold all of them: the device has not reported their sends yet.
        if (lane.large.empty()) [[unlikely]]
          return lane.machine.ask_server();
        lane.machine.give_buffer(lane.large);
        break;
      case Next::kValueBuffer:
        RKV_RETURN_IF_ERROR(give_value_buffer(lane, into));
        break;
      default:
        return next;
    }
    next = lane.machine.step();
  }
}

// The version found stays the answer during the wait: it was the key's value within this call.
// Reading the key again might never end if the key is written all the time.
Result<Durability> Getter::await_mark(Version version, Durability level, const Deadline& deadline) {
  mark_wait_.begin();
  for (;;) {
    if (const Durability known = session_.durability_of(version); known >= level) return known;
    if (!session_.link.alive()) return fail(Code::kDisconnected, "the connection is lost");
    RKV_ASSIGN_OR_RETURN(const bool seen, look_or_ask(level, deadline));
    if (const Durability known = session_.durability_of(version); known >= level) return known;
    if (seen && session_.map.marks().none()) {
      return fail(Code::kUnsupported, kNoDisk);
    }
    const Nanos again_at = session_.clock.now() + mark_wait_.pause();
    if (again_at >= deadline.at()) {
      return fail(Code::kTimeout, kNotDurable);
    }
    session_.link.sleep_until(again_at);
  }
}

// A refused request (the disk has failed, the server is busy) carries the marks too. Its error is
// ignored: the mark may rise all the same.
Result<bool> Getter::look_or_ask(Durability level, const Deadline& deadline) {
  const Status looked = session_.loader.look_at_marks(deadline);
  if (!looked && looked.error().code != Code::kBusy) return std::unexpected(looked.error());
  if (!mark_wait_.asks_after_look()) return looked.has_value();
  const auto reply = session_.link.call({.opcode = MarkWait::request_for(level)}, deadline);
  if (!reply) return std::unexpected(Error{.code = reply.error().code, .text = reply.error().text});
  ++session_.stats.two_sided_requests;
  session_.learn_marks(reply->response());
  return true;
}

Status Getter::refresh_map(Next what, const Deadline& deadline) {
  const Nanos patience_end = std::min(deadline.at(), session_.clock.now() + kMapPatience);
  return what == Next::kRefreshExtents ? session_.loader.refresh_extents(deadline, patience_end)
                                       : session_.loader.refresh_directory(deadline, patience_end);
}

Result<Durability> Getter::await_mark(const Response& response, Durability level,
                                      const Deadline& deadline) {
  const Durability known = session_.durability_of(response);
  if (known >= level) return known;
  if ((response.flags & Response::kInCell) == 0) {
    return await_mark(response.version, level, deadline);
  }
  return fail(Code::kUnsupported, kNumberInCell);
}

Request Getter::request_for(Bytes key) {
  return {.opcode = Opcode::kGet, .key = key, .value = reports_.take()};
}

void Getter::count_found_by_read(const GetMachine& machine, bool asked) {
  reports_.note(machine.hash());
  ++(asked ? session_.stats.two_sided_gets : session_.stats.one_sided_gets);
  ++(machine.used_cache() ? session_.stats.cache_hits : session_.stats.cache_misses);
}

void Getter::count_missing_by_read(bool asked) {
  ++(asked ? session_.stats.two_sided_gets : session_.stats.one_sided_gets);
  ++session_.stats.cache_misses;
  ++session_.stats.missing;
}

void Getter::count_missing_by_request() {
  ++session_.stats.two_sided_gets;
  ++session_.stats.missing;
}

Result<Getter::Got> Getter::find(Bytes key, Durability at_least, const Deadline& deadline,
                                 const Destination* into) {
  RKV_RETURN_IF_ERROR(check_key(key));
  ++session_.stats.gets;
  GetLane& lane = lanes_.front();
  GetMemory& memory = session_.arena.get_memory(0);
  std::optional<Reply> told;  // the server's answer with the place of a large value
  for (std::uint32_t asked = 0;;) {
    if (!session_.usable()) [[unlikely]] {
      told.reset();  // it may belong to another epoch
      RKV_RETURN_IF_ERROR(connector_.ensure_connected(deadline));
    }
    free_large(lane);
    const Next first =
        told ? lane.machine.start_at(key, memory, told->response().slot, told->response().version)
             : lane.machine.start(key, memory);
    told.reset();
    const Result<Next> end = run(lane, first, deadline, into);
    count_reads(lane.machine);
    if (!end) [[unlikely]] {
      if (end.error().code == Code::kDisconnected) continue;  // E1
      return std::unexpected(end.error());
    }
    connector_.progressed();
    if (*end == Next::kMissing) {
      count_missing_by_read(asked != 0);
      return fail(Code::kNotFound, nullptr);
    }
    if (*end == Next::kFound) {
      ValueView found = found_view(lane.machine.fields(), session_.map.marks());
      if (found.durability < at_least) [[unlikely]] {
        const auto safe = await_mark(lane.machine.version(), at_least, deadline);
        if (!safe && safe.error().code == Code::kDisconnected) continue;
        if (!safe) return std::unexpected(safe.error());
        found.durability = *safe;
      }
      count_found_by_read(lane.machine, asked != 0);
      return Got{.view = found};
    }
    if (++asked > kMaxAsked) return fail(Code::kBusy, kRewritten);
    auto reply = requester_.ask(request_for(key), deadline);
    if (!reply) {
      if (reply.error().code == Code::kNotFound) count_missing_by_request();
      return std::unexpected(reply.error());
    }
    const Response& response = reply->response();
    if ((response.flags & Response::kByRead) != 0) {
      told.emplace(std::move(*reply));
      continue;
    }
    const auto safe = await_mark(response, at_least, deadline);
    if (!safe && safe.error().code == Code::kDisconnected) continue;
    if (!safe) return std::unexpected(safe.error());
    count_found_by_request();
    session_.learn_slot(lane.machine.hash(), response);
    const ValueView found = found_view(response, *safe);
    return Got{.view = found, .reply = std::move(*reply)};
  }
}

template <class T, class Use>
Result<T> Getter::with_found(Bytes key, Durability at_least, const Deadline& deadline,
                             const Destination* into, Use use) {
  const auto got = find(key, at_least, deadline, into);
  Result<T> result = got ? use(got->view) : Result<T>(std::unexpected(got.error()));
  free_large(lanes_.front());
  return result;
}

Result<Value> Getter::get(Bytes key, const GetOptions& options) {
  if (const LiveRecord* const found = try_sync(key, options.at_least)) {
    return to_value(view(*found));
  }
  return with_found<Value>(key, options.at_least, connector_.deadline(options.timeout), nullptr,
                           [](const ValueView& found) { return Result<Value>(to_value(found)); });
}

Result<ValueSize> Getter::get_into(Bytes key, const GetOptions& options, const Destination& into) {
  if (!into.local_key) {
    if (const LiveRecord* const found = try_sync(key, options.at_least)) {
      return copy_out(view(*found), into.bytes);
    }
  }
  return with_found<ValueSize>(key, options.at_least, connector_.deadline(options.timeout), &into,
                               [&](const ValueView& found) { return copy_out(found, into.bytes); });
}

Result<Counter> Getter::get_number(Bytes key, const Deadline& deadline) {
  return with_found<Counter>(
      key, Durability::kMemory, deadline, nullptr, [](const ValueView& found) -> Result<Counter> {
        if (!found.is_counter) {
          return fail(Code::kWrongType, "the key holds a plain value, not a counter");
        }
        return Counter{.number = load_le<std::int64_t>(as_bytes(found.value).data()),
                       .version = found.version,
                       .durability = found.durability};
      });
}

Result<ValueSize> Getter::copy_out(const ValueView& found, MutableBytes out) {
  const Bytes value = as_bytes(found.value);
  if (value.size() > out.size()) return too_long(value.size());
  if (!value.empty() && value.data() != out.data()) {
    std::memcpy(out.data(), value.data(), value.size());
  }
  return ValueSize{.bytes = value.size(), .version = found.version, .durability = found.durability};
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

// Finds the cached place of a key's record. G7: the address comes from the map.
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

// READs the record. The answer is a live record that verified, has this key, and was read inside
// this GET (G1). In any other case there is no answer here, and the caller starts the state
// machine.
[[gnu::always_inline]] inline const LiveRecord* Getter::read_place(Bytes key, const Place& at,
                                                                   Durability at_least,
                                                                   MutableBytes room) {
  const MutableBytes record = room.first(at.length);
  if (!session_.link.read_at_once(record, at.from)) return nullptr;
  ++session_.stats.rdma_reads;
  if (!decode_live_record(record, session_.map.epoch(), at.slot.location(), key, sync_))
    return nullptr;
  if (session_.durability_of(sync_.version) < at_least) return nullptr;
  if (at.from_group) session_.slots.put(at.hash, at.slot);
  reports_.note(at.hash);
  ++session_.stats.gets;
  ++session_.stats.one_sided_gets;
  ++session_.stats.cache_hits;
  return &sync_;
}

const LiveRecord* Getter::try_sync(Bytes key, Durability at_least) {
  if (!reads_at_once() || key.empty() || key.size() > kMaxKeyBytes) return nullptr;
  Place at;
  if (!find_place(session_.map.hash(key), at)) return nullptr;
  return read_place(key, at, at_least, session_.arena.get_memory(0).record);
}

// Performs each step for all keys before the next step, so that memory of one key is fetched while
// other keys are handled.
std::size_t Getter::try_sync(std::span<const std::string_view> keys, std::size_t first,
                             Durability at_least, GetVisitor visit, void* target,
                             std::span<std::size_t, kBatchKeys> left) {
  const std::size_t count = std::min(kBatchKeys, keys.size() - first);
  std::array<Place, kBatchKeys> at;
  std::array<bool, kBatchKeys> known{};
  for (std::size_t i = 0; i < count; ++i) {
    const Bytes key = as_bytes(keys[first + i]);
    known[i] = !key.empty() && key.size() <= kMaxKeyBytes;
    if (!known[i]) continue;
    at[i].hash = session_.map.hash(key);
    session_.slots.prefetch(at[i].hash);
  }
  for (std::size_t i = 0; i < count; ++i) {
    known[i] = known[i] && find_place(at[i].hash, at[i]);
    if (known[i]) session_.link.prefetch(at[i].from, at[i].length);
  }
  // The memory of the lanes may be in use.
  const MutableBytes room = session_.arena.get_memory(session_.options.reads_in_flight).record;
  std::size_t left_count = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const LiveRecord* const found =
        known[i] ? read_place(as_bytes(keys[first + i]), at[i], at_least, room) : nullptr;
    if (found != nullptr) {
      visit(target, first + i, view(*found));
    } else {
      left[left_count++] = first + i;
    }
  }
  return left_count;
}

ValueView Getter::view(const LiveRecord& found) const {
  return {.value = as_text({found.value, found.value_bytes}),
          .version = found.version.bits,
          .expires_at_ms = found.expiry_ms,
          .is_counter = found.counter,
          .durability = session_.durability_of(found.version)};
}

}  // namespace rkv::client
