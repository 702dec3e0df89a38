#include "client/engine/engine.h"

#include <algorithm>

#include "common/random.h"

namespace rkv::client {

using Next = GetMachine::Next;

namespace {

rdma::PollMode poll_mode(Polling polling) {
  switch (polling) {
    case Polling::kBusy:
      return rdma::PollMode::kBusy;
    case Polling::kEvent:
      return rdma::PollMode::kEvent;
    case Polling::kAdaptive:
      break;
  }
  return rdma::PollMode::kAdaptive;
}

Nanos nanos(std::chrono::milliseconds ms) {
  return ms.count() * kNanosPerMs;
}

constexpr Nanos kIdle = 10 * kNanosPerMs;  // an idle link is checked before a write after this time
// Fraction of the cache for single keys: one in four.
constexpr std::size_t kSlotsPart = 4;
constexpr Nanos kFirstBusyWait = kNanosPerMs / 4;
constexpr Nanos kLongestBusyWait = 50 * kNanosPerMs;
// If the next attempt to connect would be due after the operation's deadline, a last attempt is
// made this long before the deadline. An attempt takes some milliseconds. It also starts at least
// this long after the attempt before. So a client with timeouts shorter than its back-off makes at
// most 20 attempts a second.
constexpr Nanos kLastAttempt = 50 * kNanosPerMs;
// How long a GET waits for a line of the map to verify, before it asks the server for the value.
constexpr Nanos kMapPatience = 10 * kNanosPerMs;

Status check_options(const ClientOptions& options) {
  if (options.reads_in_flight < 1 || options.reads_in_flight > 1024) {
    return fail(Code::kInvalidArgument, "reads_in_flight must be 1 to 1024");
  }
  if (options.requests_in_flight < 1 || options.requests_in_flight > 256) {
    return fail(Code::kInvalidArgument, "requests_in_flight must be 1 to 256");
  }
  if (options.large_bytes < kMaxValueBytes) {
    return fail(Code::kInvalidArgument, "large_bytes must be at least 16 MiB, the longest value");
  }
  if (options.timeout.count() < 1 || options.connect_timeout.count() < 1 ||
      options.first_backoff.count() < 1 || options.longest_backoff < options.first_backoff) {
    return fail(Code::kInvalidArgument, "timeouts and back-offs must be 1 ms or longer");
  }
  return {};
}

}  // namespace

Status check_key(Bytes key) {
  if (key.empty()) return fail(Code::kInvalidArgument, "the key is empty");
  if (key.size() > kMaxKeyBytes) {
    return fail(Code::kTooLarge, "the key is longer than 1024 bytes");
  }
  return {};
}

Status check_value(Bytes value) {
  if (value.size() > kMaxValueBytes) {
    return fail(Code::kTooLarge, "the value is longer than 16 MiB");
  }
  return {};
}

Engine::Engine(const ClientOptions& options, std::shared_ptr<rdma::Transport> transport,
               const Clock* clock, Arena arena)
    : transport_(std::move(transport)),
      clock_(clock),
      options_(options),
      arena_(std::move(arena)),
      large_(*transport_, options.large_bytes),
      cache_(options.cache_bytes - options.cache_bytes / kSlotsPart),
      slots_(options.cache_bytes / kSlotsPart),
      link_(*transport_, *clock, arena_,
            {.address = options.server,
             .name = options.name,
             .reads_in_flight = options.reads_in_flight,
             .requests_in_flight = options.requests_in_flight,
             .poll = poll_mode(options.polling)}),
      loader_(link_, *clock, arena_, map_),
      put_slots_(options.requests_in_flight),
      reconnect_backoff_(nanos(options.first_backoff), nanos(options.longest_backoff),
                         random_from_kernel()),
      busy_backoff_(kFirstBusyWait, kLongestBusyWait, random_from_kernel()),
      mark_wait_(random_from_kernel()) {
  description_ = transport_->describe();
  lanes_.reserve(options.reads_in_flight);
  while (lanes_.size() < options.reads_in_flight)
    lanes_.emplace_back(map_, cache_, slots_, *clock);
  free_lanes_.reserve(lanes_.size());
  batch_slots_.reserve(put_slots_.size());
  atomics_.reserve(kAtomicsAtOnce);
  batch_.reserve(2 * lanes_.size() + options.requests_in_flight);
}

Engine::~Engine() {
  link_.close();
}

Result<std::unique_ptr<Engine>> Engine::create(const ClientOptions& options,
                                               std::shared_ptr<rdma::Transport> transport,
                                               const Clock* clock, std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(auto engine,
                       create_unconnected(options, std::move(transport), clock, nullptr));
  const Deadline deadline = engine->deadline({});
  const Status connected =
      options.repeat_connect ? engine->ensure_connected(deadline) : engine->connect_once(deadline);
  if (refusal != nullptr) *refusal = engine->refusal_;
  if (!connected) return std::unexpected(connected.error());
  return engine;
}

Result<std::unique_ptr<Engine>> Engine::create_unconnected(
    const ClientOptions& options, std::shared_ptr<rdma::Transport> transport, const Clock* clock,
    ConnectPolicy* connect_policy) {
  static const SteadyClock steady;
  RKV_RETURN_IF_ERROR(check_options(options));
  RKV_ASSIGN_OR_RETURN(Arena arena,
                       Arena::create(*transport, gets_of(options), options.requests_in_flight));
  std::unique_ptr<Engine> engine(new Engine(options, std::move(transport),
                                            clock != nullptr ? clock : &steady, std::move(arena)));
  engine->connect_policy_ = connect_policy;
  return engine;
}

// ------------------------------------------------------------------------------- connection

Status Engine::attempt(const Deadline& deadline) {
  link_.close();
  acknowledged_.synced(map_.epoch(), map_.marks().sync());  // U1, before the map is cleared
  if (link_.read_refused()) {
    // A server never revokes a grant within an epoch, so our view of its memory is wrong.
    map_.clear();
    forget_places();
  }
  const Nanos latest = clock_->now() + nanos(options_.connect_timeout);
  const Status connected = link_.connect(Deadline(*clock_, std::min(latest, deadline.at())));
  refusal_ = link_.refusal();
  if (!connected) return connected;

  const ConnectAccept& accept = link_.accept();
  if (connect_policy_ != nullptr) {
    if (Status admitted = connect_policy_->admit(*this, accept.epoch); !admitted) {
      link_.close();
      return admitted;
    }
  }
  if (!map_.is_of(accept.epoch, accept.root)) {  // E2
    forget_places();
    map_.begin(accept.epoch, accept.root, accept.hints, static_cast<std::uint32_t>(accept.session));
    if (Status loaded = loader_.load(deadline); !loaded) {
      link_.close();
      return loaded;
    }
  }
  acknowledged_.connected(accept.epoch);
  if (connected_once_) ++stats_.reconnects;
  connected_once_ = true;
  return {};
}

bool Engine::worth_repeating(const Error& error) const {
  switch (error.code) {
    case Code::kRejected:
    case Code::kVersionMismatch:
    case Code::kPermission:
    case Code::kNoDevice:
    case Code::kUnsupported:
    case Code::kCorrupt:
    case Code::kInvalidArgument:
      return false;
    default:
      return true;
  }
}

Status Engine::ensure_connected(const Deadline& deadline) {
  link_.close();
  Status last = fail(Code::kDisconnected, "the connection is lost; waiting before the next try");
  for (;;) {
    const Nanos at = next_attempt(deadline);
    // The time left is too short for an attempt. Return without sleeping: the next operation has
    // it.
    if (at >= deadline.at()) return last;
    if (at > clock_->now()) link_.sleep_until(at);
    if (deadline.passed()) return last;
    last = connect_once(deadline);
    if (last || !worth_repeating(last.error())) return last;
  }
}

Nanos Engine::next_attempt(const Deadline& deadline) {
  if (reconnect_at_ == 0) reconnect_at_ = clock_->now() + reconnect_backoff_.next();
  if (reconnect_at_ < deadline.at()) return reconnect_at_;
  // One last attempt before the deadline, so that a server that came back during the wait is found.
  return std::min(reconnect_at_,
                  std::max(deadline.at(), attempted_at_ + 2 * kLastAttempt) - kLastAttempt);
}

Status Engine::connect_once(const Deadline& deadline) {
  reconnect_at_ = 0;
  const Status status = attempt(deadline);
  attempted_at_ = clock_->now();
  return status;
}

void Engine::check_link() {
  if (!link_.alive()) return;
  const Nanos now = clock_->now();
  if (now - looked_at_ > kIdle) {
    // Only wait() is sure to notice the end of an idle connection. With this deadline it returns at
    // once.
    link_.wait(Deadline(*clock_, now));
  }
  looked_at_ = now;
  for (const Event& event : link_.poll()) {
    if (event.kind == Event::Kind::kReply) link_.release(event.buffer);
  }
}

Status Engine::refresh_map(Next what, const Deadline& deadline) {
  const Nanos patience_end = std::min(deadline.at(), clock_->now() + kMapPatience);
  return what == Next::kRefreshExtents ? loader_.refresh_extents(deadline, patience_end)
                                       : loader_.refresh_directory(deadline, patience_end);
}

// --------------------------------------------------------------------------------------- GET

void Engine::give_back_large(Lane& lane) {
  arena_.give_back_large(lane.large);
  lane.large = {};
  large_.give_back(lane.value);
  lane.value = nullptr;
}

std::unexpected<Error> Engine::too_long(std::size_t needed) {
  needed_bytes_ = needed;
  return fail(Code::kTooLarge, "the value is longer than the buffer given");
}

// Gives a large value the caller's memory if it is registered, else the client's own.
Status Engine::give_value_buffer(Lane& lane, const Destination* into) {
  const std::size_t needed = lane.machine.value_bytes();
  if (into != nullptr && into->bytes.size() < needed) return too_long(needed);
  if (into != nullptr && into->local_key) {
    lane.machine.give_value_buffer(into->bytes, *into->local_key);
    return {};
  }
  large_.give_back(lane.value);  // of a shorter value that was overwritten since
  lane.value = nullptr;
  RKV_ASSIGN_OR_RETURN(lane.value, large_.take(needed));
  lane.machine.give_value_buffer(lane.value->bytes(), lane.value->region->local_key());
  return {};
}

void Engine::account(const GetMachine& machine) {
  stats_.rdma_reads += machine.counts().reads;
  stats_.retries += machine.counts().retries;
  stats_.pins += machine.counts().pins;
  stats_.tears_detected += machine.counts().tears;
}

Result<Next> Engine::run(Lane& lane, Next next, const Deadline& deadline, const Destination* into) {
  for (;;) {
    switch (next) {
      case Next::kRead:
        RKV_RETURN_IF_ERROR(link_.read(lane.machine.reads(), deadline));
        break;
      case Next::kRefreshExtents:
      case Next::kRefreshDirectory:
        if (const Status refreshed = refresh_map(next, deadline); !refreshed) [[unlikely]] {
          if (refreshed.error().code != Code::kBusy) return std::unexpected(refreshed.error());
          return lane.machine.ask_server();
        }
        break;
      case Next::kLargeBuffer:
        lane.large = arena_.take_large();
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

ValueView Engine::Got::view() const {
  return {.value = as_text(value),
          .version = version.bits,
          .expires_at_ms = expiry_ms,
          .is_counter = counter,
          .durability = durability};
}

// The version found stays the answer during the wait: it was the key's value within this call.
// Reading the key again might never end if the key is written all the time.
Result<Durability> Engine::await_mark(Version version, Durability level, const Deadline& deadline) {
  mark_wait_.begin();
  for (;;) {
    if (const Durability known = durability_of(version); known >= level) return known;
    if (!link_.alive()) return fail(Code::kDisconnected, "the connection is lost");
    RKV_ASSIGN_OR_RETURN(const bool seen, look_or_ask(level, deadline));
    if (const Durability known = durability_of(version); known >= level) return known;
    if (seen && map_.marks().none()) {
      return fail(Code::kUnsupported, "the server keeps its data in memory only");
    }
    const Nanos again_at = clock_->now() + mark_wait_.pause();
    if (again_at >= deadline.at()) {
      return fail(Code::kTimeout, "the value did not reach the requested durability in time");
    }
    link_.sleep_until(again_at);
  }
}

// A refused request (the disk has failed, the server is busy) carries the marks too. Its error is
// ignored: the mark may rise all the same.
Result<bool> Engine::look_or_ask(Durability level, const Deadline& deadline) {
  const Status looked = loader_.look_at_marks(deadline);
  if (!looked && looked.error().code != Code::kBusy) return std::unexpected(looked.error());
  if (!mark_wait_.asks_after_look()) return looked.has_value();
  const auto reply = link_.call({.opcode = MarkWait::request_for(level)}, deadline);
  if (!reply) return std::unexpected(Error{.code = reply.error().code, .text = reply.error().text});
  ++stats_.two_sided_requests;
  learn_marks(reply->response());
  return true;
}

Status Engine::read_marks(const Deadline& deadline) {
  for (;;) {
    if (!usable()) RKV_RETURN_IF_ERROR(ensure_connected(deadline));
    const Status read = loader_.refresh_marks(deadline);
    if (read) reconnect_backoff_.reset();
    if (read || read.error().code != Code::kDisconnected) return read;
  }
}

Result<Durability> Engine::await_mark(const Response& response, Durability level,
                                      const Deadline& deadline) {
  const Durability known = durability_of(response);
  if (known >= level) return known;
  if ((response.flags & Response::kInCell) == 0) {
    return await_mark(response.version, level, deadline);
  }
  return fail(Code::kUnsupported, kNumberInCell);
}

Result<Engine::Got> Engine::get(Bytes key, Durability at_least, const Deadline& deadline,
                                const Destination* into) {
  RKV_RETURN_IF_ERROR(check_key(key));
  ++stats_.gets;
  Lane& lane = lanes_.front();
  GetMemory& memory = arena_.get_memory(0);
  std::optional<Reply> told;  // the server's answer with the place of a large value
  for (std::uint32_t asked = 0;;) {
    if (!usable()) [[unlikely]] {
      told.reset();  // it may belong to another epoch
      RKV_RETURN_IF_ERROR(ensure_connected(deadline));
    }
    free_large(lane);
    const Next first =
        told ? lane.machine.start_at(key, memory, told->response().slot, told->response().version)
             : lane.machine.start(key, memory);
    told.reset();
    const Result<Next> end = run(lane, first, deadline, into);
    account(lane.machine);
    if (!end) [[unlikely]] {
      if (end.error().code == Code::kDisconnected) continue;  // E1
      return std::unexpected(end.error());
    }
    reconnect_backoff_.reset();
    if (*end == Next::kTwoSided) {
      if (++asked > kMaxAsked)
        return fail(Code::kBusy, "the value is rewritten faster than it can be read");
      auto reply = get_two_sided(key, deadline);
      if (!reply) return std::unexpected(reply.error());
      const Response& response = reply->response();
      if ((response.flags & Response::kByRead) != 0) {
        told.emplace(std::move(*reply));
        continue;
      }
      const auto safe = await_mark(response, at_least, deadline);
      if (!safe && safe.error().code == Code::kDisconnected) continue;
      if (!safe) return std::unexpected(safe.error());
      ++stats_.two_sided_gets;
      learn_slot(lane.machine.hash(), response);
      return Got{.value = response.value,
                 .version = response.version,
                 .expiry_ms = response.expiry_ms,
                 .counter = (response.flags & Response::kCounter) != 0,
                 .durability = *safe,
                 .reply = std::move(*reply)};
    }
    if (*end == Next::kFound) {
      const RecordFields& found = lane.machine.fields();
      Durability known = durability_of(found.version);
      if (known < at_least) [[unlikely]] {
        const auto safe = await_mark(found.version, at_least, deadline);
        if (!safe && safe.error().code == Code::kDisconnected) continue;
        if (!safe) return std::unexpected(safe.error());
        known = *safe;
      }
      used_.note(lane.machine.hash());
      ++(asked != 0 ? stats_.two_sided_gets : stats_.one_sided_gets);
      ++(lane.machine.used_cache() ? stats_.cache_hits : stats_.cache_misses);
      return Got{.value = found.value,
                 .version = found.version,
                 .expiry_ms = found.expiry_ms,
                 .counter = found.counter,
                 .durability = known};
    }
    ++(asked != 0 ? stats_.two_sided_gets : stats_.one_sided_gets);
    ++stats_.cache_misses;
    ++stats_.missing;
    return fail(Code::kNotFound, nullptr);
  }
}

Result<Reply> Engine::get_two_sided(Bytes key, const Deadline& deadline) {
  Request get{.opcode = Opcode::kGet, .key = key};
  get.value = used_.take();
  auto reply = ask_until_taken(get, true, deadline);
  if (!reply && reply.error().code == Code::kNotFound) {
    ++stats_.two_sided_gets;
    ++stats_.missing;
  }
  return reply;
}

Result<ValueSize> Engine::copy_out(const Got& got, MutableBytes out) {
  if (got.value.size() > out.size()) return too_long(got.value.size());
  if (!got.value.empty() && got.value.data() != out.data()) {
    std::memcpy(out.data(), got.value.data(), got.value.size());
  }
  return ValueSize{
      .bytes = got.value.size(), .version = got.version.bits, .durability = got.durability};
}

ClientStats Engine::stats() const {
  ClientStats stats = stats_;
  stats.map_reads = loader_.reads();
  stats.cached_groups = cache_.statistics().groups;
  return stats;
}

}  // namespace rkv::client
