// Requests of the engine (PUT, DELETE and others), one at a time.
#include <algorithm>
#include <cstring>

#include "client/engine/engine.h"

namespace rkv::client {

namespace {

// An operation whose answers mean "later" makes its last try this long before its deadline.
constexpr Nanos kLastTry = 20 * kNanosPerMs;

// What an answer with this code says about the write. Empty: this client does not know the code.
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
    case Code::kTimeout:  // not begun, and never will be
    case Code::kPermission:
    case Code::kUnsupported:
    case Code::kIo:       // the server makes no write while its disk fails
    case Code::kCorrupt:  // the key's record on disk is read before it is changed
      return WriteOutcome::kNotApplied;
    case Code::kDisconnected:
    case Code::kStale:
    case Code::kUnreachable:
    case Code::kVersionMismatch:
    case Code::kNoDevice:
    case Code::kRejected:
    case Code::kInternal:
      return WriteOutcome::kMayHaveHappened;
  }
  return std::nullopt;
}

// Requests that promise something about every acknowledged write (E5).
bool is_save(Opcode opcode) {
  return opcode == Opcode::kFlush || opcode == Opcode::kBackup;
}

bool is_write(Opcode opcode) {
  return opcode == Opcode::kPut || opcode == Opcode::kPutLarge || opcode == Opcode::kRemove ||
         opcode == Opcode::kAdd || opcode == Opcode::kSwap || opcode == Opcode::kOpenCounter ||
         opcode == Opcode::kBackup;
}

}  // namespace

Error Engine::refused(const Response& response) {
  refusal_ = std::string(as_text(response.value));
  const auto code = static_cast<Code>(response.code);
  const std::optional<WriteOutcome> outcome = outcome_of(code);
  const bool in_doubt =
      (response.flags & Response::kMayHaveHappened) != 0 || outcome != WriteOutcome::kNotApplied;
  return {.code = outcome ? code : Code::kInternal,
          .write = is_write(response.opcode) && in_doubt ? WriteOutcome::kMayHaveHappened
                                                         : WriteOutcome::kNotApplied,
          .text = outcome ? to_string(code) : "the server answered with an unknown error"};
}

Nanos Engine::busy_wait(const Response& response) {
  return std::max<Nanos>(busy_backoff_.next(), response.retry_after_ms * kNanosPerMs);
}

std::optional<Nanos> Engine::again_at(Nanos wait, const Deadline& deadline) const {
  const Nanos now = clock_->now();
  if (now + wait < deadline.at()) return now + wait;
  const Nanos last = deadline.at() - kLastTry;
  if (last <= now) return std::nullopt;
  return last;
}

void Engine::Source::describe(Bytes key, std::uint64_t of_epoch) {
  if (epoch == of_epoch) return;
  epoch = of_epoch;
  encode(ValueSource{.address = reinterpret_cast<std::uint64_t>(value.data()),
                     .remote_key = remote_key,
                     .length = static_cast<std::uint32_t>(value.size()),
                     .digest = value_digest(key, value, epoch)},
         encoded);
}

Result<Reply> Engine::ask_until_taken(Request request, bool repeat, const Deadline& deadline,
                                      Source* source) {
  busy_backoff_.reset();
  for (;;) {
    check_link();  // if the end of the connection is noticed now, no write is lost with it
    if (!usable()) RKV_RETURN_IF_ERROR(ensure_connected(deadline));
    if (is_save(request.opcode) && acknowledged_.take_lost()) {
      return fail(
          Code::kStale,
          "the server has restarted: acknowledged writes that were not on disk may be lost");
    }
    request.begin_by_us = link_.begin_by_us(deadline);
    if (source != nullptr) {
      source->describe(request.key, map_.epoch());
      request.value = source->encoded;
    }
    auto reply = link_.call(request, deadline);
    if (!reply) {
      Error error = reply.error();
      const bool left = error.write == WriteOutcome::kMayHaveHappened;
      if (left) ++stats_.two_sided_requests;
      if (error.code == Code::kDisconnected && (repeat || !left)) continue;  // E1
      if (!is_write(request.opcode)) error.write = WriteOutcome::kNotApplied;
      return std::unexpected(error);
    }
    ++stats_.two_sided_requests;
    reconnect_backoff_.reset();
    const Response& response = reply->response();
    learn_marks(response);
    if (response.code == 0) {
      note_write(response, request.durability);
      return reply;
    }
    const Error error = refused(response);
    // By our estimate of the server's clock the request was late. Its answer has corrected the
    // estimate (ServerTime).
    if (error.code == Code::kTimeout && !deadline.passed()) continue;
    if (!is_later(request.opcode, error.code)) return std::unexpected(error);
    ++stats_.busy_answers;
    const auto again = again_at(busy_wait(response), deadline);
    if (!again) return std::unexpected(error);
    link_.sleep_until(*again);
  }
}

void Engine::note_write(const Response& response, Durability asked) {
  const bool swapped = (response.flags & Response::kSwapped) != 0;
  switch (response.opcode) {
    case Opcode::kFlush:
      return acknowledged_.flushed();
    case Opcode::kPut:
    case Opcode::kPutLarge:
    case Opcode::kRemove:
    case Opcode::kAdd:
      break;
    case Opcode::kSwap:
      if (!swapped) return;
      break;
    default:
      return;
  }
  if (asked == Durability::kSync) return;
  if ((response.flags & Response::kInCell) != 0) return acknowledged_.change_of_cell(map_.epoch());
  if (response.version > map_.marks().sync()) acknowledged_.write(map_.epoch(), response.version);
}

Result<Reply> Engine::ask(const Request& request, const Deadline& deadline) {
  return ask_until_taken(request, true, deadline);
}

Result<Reply> Engine::ask_once(const Request& request, const Deadline& deadline) {
  return ask_until_taken(request, false, deadline);
}

void Engine::forget_places() {
  cache_.clear();
  slots_.clear();
}

// Caches the place of a record that was written, so that the next GET is one READ. A hint, as
// everything in the caches (G5). It also serves keys that only the server finds. Such a key's group
// is full, so patch() adds nothing to it unless the cached copy is old. An answer without a slot:
// the key is no longer at its cached place.
void Engine::learn_place(Bytes key, const Response& response) {
  const KeyHash hash = map_.hash(key);
  if (response.slot.fingerprint() != hash.fingerprint()) return slots_.forget(hash);
  slots_.put(hash, response.slot);
  const auto home = map_.home(hash);
  if (!home) return;
  const bool in_neighbour = (response.flags & Response::kInNeighbour) != 0;
  cache_.patch(in_neighbour ? home->neighbour() : *home, response.slot);
}

Result<Reply> Engine::write(const Request& request, const Deadline& deadline,
                            std::uint32_t remote_key) {
  RKV_RETURN_IF_ERROR(check_key(request.key));
  RKV_RETURN_IF_ERROR(check_value(request.value));
  auto reply = is_large(request.value.size()) ? write_large(request, deadline, remote_key)
                                              : ask_until_taken(request, false, deadline);
  if (reply) learn_place(request.key, reply->response());
  return reply;
}

// A staged buffer is reused after the answer, or after the connection was closed (K1), not before.
Result<Reply> Engine::write_large(Request request, const Deadline& deadline,
                                  std::uint32_t remote_key) {
  Source source{.value = request.value, .remote_key = remote_key};
  LargeBuffers::Buffer* staged = nullptr;
  if (remote_key == 0) {
    free_large(lanes_.front());  // frees the buffers of the last GET's result
    RKV_ASSIGN_OR_RETURN(staged, large_.take(request.value.size()));
    std::memcpy(staged->bytes().data(), request.value.data(), request.value.size());
    source.value = staged->bytes().first(request.value.size());
    source.remote_key = staged->region->remote_key();
  }
  request.opcode = Opcode::kPutLarge;
  auto reply = ask_until_taken(request, false, deadline, &source);
  large_.give_back(staged);
  return reply;
}

}  // namespace rkv::client
