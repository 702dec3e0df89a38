#include "client/engine/requester.h"

#include <algorithm>
#include <cstring>

#include "common/random.h"

namespace rkv::client {

namespace {

constexpr Nanos kFirstBusyWait = kNanosPerMs / 4;
constexpr Nanos kLongestBusyWait = 50 * kNanosPerMs;
// An operation whose answers mean "later" makes its last try this long before its deadline.
constexpr Nanos kLastTry = 20 * kNanosPerMs;

// Returns what an answer with this code says about the write. nullopt: this client does not know
// the code.
std::optional<WriteOutcome> outcome_of(Code code) {
  switch (code) {
    case Code::kNotFound:
    case Code::kInvalidArgument:
    case Code::kTooLarge:
    case Code::kConflict:
    case Code::kWrongType:
    case Code::kOutOfRange:
    case Code::kValueChanged:
    case Code::kOutOfMemory:
    case Code::kBusy:
    case Code::kTimeout:  // the request was not begun, and never will be
    case Code::kPermission:
    case Code::kUnsupported:
    case Code::kIo:       // the server makes no write while its disk fails
    case Code::kCorrupt:  // the key's record on disk is read before it is changed
      return WriteOutcome::kNotApplied;
    case Code::kDisconnected:
    case Code::kStale:
    case Code::kNotPrimary:
    case Code::kUnreachable:
    case Code::kVersionMismatch:
    case Code::kNoDevice:
    case Code::kRejected:
    case Code::kInternal:
    case Code::kUnauthenticated:
    case Code::kCancelled:
      return WriteOutcome::kMayHaveHappened;
  }
  return std::nullopt;
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

Status check_durability(Durability level) {
  if (level > kLastDurability)
    return fail(Code::kInvalidArgument, "a durability is kDefault, kMemory, kWal or kSync");
  return {};
}

Result<Request> put_request(std::string_view key, std::string_view value,
                            const PutOptions& options) {
  if (options.if_absent && options.if_version) {
    return fail(Code::kInvalidArgument, "a put has at most one condition: if_absent or if_version");
  }
  const std::int64_t ttl_ms = options.ttl.count();
  if (ttl_ms < 0 || static_cast<std::uint64_t>(ttl_ms) > kMaxTtlMs) {
    return fail(Code::kInvalidArgument, "a time to live is 1 ms to 2^42 ms, or 0 for no expiry");
  }
  if ((ttl_ms != 0 && options.expires_at_ms != 0) || options.expires_at_ms > kMaxTtlMs) {
    return fail(Code::kInvalidArgument,
                "a put has at most one of ttl and expires_at_ms; each is at most 2^42 ms");
  }
  if (options.keep_value && (options.if_absent || !value.empty())) {
    return fail(Code::kInvalidArgument,
                "a touch keeps the value of a key that exists: it takes neither a value nor "
                "if_absent");
  }
  Request put{.opcode = options.keep_value ? Opcode::kTouch : Opcode::kPut, .key = as_bytes(key)};
  put.value = as_bytes(value);
  put.until = options.expires_at_ms != 0;
  put.ttl_ms = put.until ? options.expires_at_ms : static_cast<std::uint64_t>(ttl_ms);
  put.durability = options.durability;
  if (options.if_absent) put.condition = Condition::kIfAbsent;
  if (options.if_version) {
    put.condition = Condition::kIfVersion;
    put.expected = {*options.if_version};
  }
  return put;
}

Requester::Requester(Session& session, Connector& connector)
    : session_(session),
      connector_(connector),
      outcomes_(session, connector),
      busy_backoff_(kFirstBusyWait, kLongestBusyWait, random_from_kernel()) {}

Error Requester::refused(const Response& response) {
  session_.refusal = std::string(as_text(response.value));
  const auto code = static_cast<Code>(response.code);
  const std::optional<WriteOutcome> outcome = outcome_of(code);
  const bool in_doubt =
      (response.flags & Response::kMayHaveHappened) != 0 || outcome != WriteOutcome::kNotApplied;
  return {.code = outcome ? code : Code::kInternal,
          .write = traits_of(response.opcode).may_change && in_doubt
                       ? WriteOutcome::kMayHaveHappened
                       : WriteOutcome::kNotApplied,
          .text = outcome ? to_string(code) : "the server answered with an unknown error"};
}

Nanos Requester::busy_wait(const Response& response) {
  ++session_.stats.busy_answers;
  return std::max<Nanos>(busy_backoff_.next(), response.retry_after_ms * kNanosPerMs);
}

std::optional<Nanos> Requester::again_at(Nanos wait, const Deadline& deadline) const {
  const Nanos now = session_.clock.now();
  if (now + wait < deadline.at()) return now + wait;
  const Nanos last = deadline.at() - kLastTry;
  if (last <= now) return std::nullopt;
  return last;
}

void LargeSource::describe(Bytes key, std::uint64_t of_epoch) {
  if (epoch == of_epoch) return;
  epoch = of_epoch;
  encode(ValueSource{.address = reinterpret_cast<std::uint64_t>(value.data()),
                     .remote_key = remote_key,
                     .length = static_cast<std::uint32_t>(value.size()),
                     .digest = value_digest(key, value, epoch)},
         encoded);
}

bool Requester::wait_busy(const Response& response, const Deadline& deadline) {
  const auto again = again_at(busy_wait(response), deadline);
  if (again) session_.link.sleep_until(*again);
  return again.has_value();
}

std::optional<Result<Reply>> Requester::call(const Request& request, AfterLoss after_loss,
                                             const Deadline& deadline) {
  auto reply = session_.link.call(request, deadline);
  if (reply) {
    ++session_.stats.two_sided_requests;
    connector_.progressed();
    return reply;
  }
  Error error = reply.error();
  const bool left = error.write == WriteOutcome::kMayHaveHappened;
  const OpcodeTraits& traits = traits_of(request.opcode);
  if (left) ++session_.stats.two_sided_requests;
  if (!traits.may_change) error.write = WriteOutcome::kNotApplied;
  if (error.code != Code::kDisconnected) return std::unexpected(error);
  if (left && traits.kept && after_loss != AfterLoss::kRepeat) {  // ENG-1
    auto found = outcomes_.find(outcomes_.last_sent(), request.opcode, deadline);
    if (!found) return std::unexpected(found.error());
    if (*found) return std::move(**found);
    error.write = WriteOutcome::kNotApplied;
  }
  const bool is_over =
      after_loss == AfterLoss::kFail ||
      (after_loss == AfterLoss::kRepeatUnsent && error.write == WriteOutcome::kMayHaveHappened);
  if (is_over) return std::unexpected(error);
  return std::nullopt;
}

Result<Reply> Requester::ask_until_taken(Request request, AfterLoss after_loss,
                                         const Deadline& deadline, LargeSource* source) {
  busy_backoff_.reset();
  for (;;) {
    connector_
        .check_link();  // if the end of the connection is noticed now, no write is lost with it
    if (!session_.usable()) {
      if (after_loss == AfterLoss::kFail) {
        return fail(Code::kDisconnected, "the connection to the server is lost");
      }
      RKV_RETURN_IF_ERROR(connector_.ensure_connected(deadline));
    }
    // Any answer may show data, a refusal too. So the server must be trusted before it is asked.
    if (session_.trust.in_group()) {
      const Status believed = connector_.believe(deadline);
      const bool again = !believed && believed.error().code == Code::kDisconnected;
      if (again && after_loss != AfterLoss::kFail) continue;
      RKV_RETURN_IF_ERROR(believed);
    }
    if (traits_of(request.opcode).saves && session_.acknowledged.take_lost()) {  // ENG-5
      return fail(
          Code::kStale,
          "the server has restarted: acknowledged writes that were not on disk may be lost");
    }
    request.begin_by_us = session_.link.begin_by_us(deadline);
    if (source != nullptr) {
      source->describe(request.key, session_.map.epoch());
      request.value = source->encoded;
    }
    auto answered = call(request, after_loss, deadline);
    if (!answered) continue;
    Result<Reply>& reply = *answered;
    if (!reply) return std::move(reply);
    const Response& response = reply->response();
    session_.learn_marks(response);
    if (response.code == 0) {
      note_write(response, request.durability);
      return std::move(reply);
    }
    const Error error = refused(response);
    // The server found the request late, because this client's estimate of the server's clock was
    // off. The answer has corrected the estimate (ServerTime).
    if (error.code == Code::kTimeout && !deadline.passed()) continue;
    if (!is_later(request.opcode, error.code)) return std::unexpected(error);
    if (!wait_busy(response, deadline)) return std::unexpected(error);
  }
}

void Requester::note_write(const Response& response, Durability asked) {
  if (response.opcode == Opcode::kFlush) return session_.acknowledged.flushed();
  // kOpenCounter is noted by CounterOps, which knows whether it was a write.
  if (!traits_of(response.opcode).acknowledges) return;
  const bool swapped = (response.flags & Response::kSwapped) != 0;
  if (response.opcode == Opcode::kSwap && !swapped) return;
  if (asked == Durability::kSync) return;
  if ((response.flags & Response::kInCell) != 0)
    return session_.acknowledged.change_of_cell(session_.map.epoch());
  note_write(response.version);
}

void Requester::note_write(Version version) {
  if (version > session_.map.marks().sync())
    session_.acknowledged.write(session_.map.epoch(), version);
}

Result<Reply> Requester::ask(const Request& request, const Deadline& deadline) {
  return ask_until_taken(request, AfterLoss::kRepeat, deadline);
}

Result<Reply> Requester::ask_once(const Request& request, const Deadline& deadline) {
  return ask_until_taken(request, AfterLoss::kRepeatUnsent, deadline);
}

Result<Reply> Requester::ask_here(const Request& request, const Deadline& deadline) {
  return ask_until_taken(request, AfterLoss::kFail, deadline);
}

Result<Reply> Requester::write(const Request& request, const Deadline& deadline,
                               std::uint32_t remote_key) {
  RKV_RETURN_IF_ERROR(check_key(request.key));
  RKV_RETURN_IF_ERROR(check_value(request.value));
  RKV_RETURN_IF_ERROR(check_durability(request.durability));
  auto reply = is_large(request.value.size())
                   ? write_large(request, deadline, remote_key)
                   : ask_until_taken(request, AfterLoss::kRepeatUnsent, deadline);
  if (reply) session_.learn_place(request.key, reply->response());
  return reply;
}

// A staged buffer is reused only after the answer, or after the connection was closed (LINK-1).
Result<Reply> Requester::write_large(Request request, const Deadline& deadline,
                                     std::uint32_t remote_key) {
  LargeSource source{.value = request.value, .remote_key = remote_key};
  LargeBuffers::Buffer* staged = nullptr;
  if (remote_key == 0) {
    RKV_ASSIGN_OR_RETURN(staged, session_.large.take(request.value.size()));
    std::memcpy(staged->bytes().data(), request.value.data(), request.value.size());
    source.value = staged->bytes().first(request.value.size());
    source.remote_key = staged->region->remote_key();
  }
  request.opcode = Opcode::kPutLarge;
  auto reply = ask_until_taken(request, AfterLoss::kRepeatUnsent, deadline, &source);
  session_.large.give_back(staged);
  return reply;
}

}  // namespace rkv::client
