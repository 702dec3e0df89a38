#include "server/request/reply_sender.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace rkv::server {

namespace {

// One completion per this many inline replies. Must be well below kRepliesInFlight: otherwise a
// connection could fill up with replies that no completion ever reports. Must also be below a
// quarter of the connection's limit, where the transport would request completions itself.
constexpr std::uint32_t kSignalEvery = 4;
static_assert(2 * kSignalEvery <= kRepliesInFlight && 4 * kSignalEvery < kOperationsInFlight);
// The context of a send: how many replies its completion covers, and the buffer to give back.
constexpr std::uint32_t kNoBuffer = 0xFFFFFFFFU;
std::uint64_t make_context(std::uint32_t covered, std::uint32_t buffer) {
  return (std::uint64_t{covered} << 32) | buffer;
}

}  // namespace

ReplySender::ReplySender(const Parts& parts, SendPool pool, std::uint32_t clients)
    : parts_(parts), pool_(std::move(pool)) {
  dirty_.reserve(clients);
}

bool ReplySender::has_large(const Session& session) {
  if (is_large_free(session)) return true;
  if (session.large_held == 0 && !large_wanted_) {
    large_wanted_ = true;
    drop_slow_taker();
  }
  return false;
}

void ReplySender::drop_slow_taker() {
  Session* slowest = nullptr;
  for (const auto& session : parts_.sessions.all()) {
    if (session->ending || session->large_held == 0) continue;
    if (slowest == nullptr || session->large_since < slowest->large_since) slowest = session.get();
  }
  if (slowest == nullptr || parts_.clock.now() - slowest->large_since < kLongestReply) return;
  parts_.sessions.drop(*slowest, DropReason::kReplies);
}

void ReplySender::give_back(Session& session, std::uint32_t buffer) {
  if (pool_.is_large(buffer)) {
    --session.large_held;
    session.large_since = parts_.clock.now();
  } else {
    --session.small_held;
  }
  pool_.give_back(buffer);
}

bool ReplySender::send(Session& session, const Response& response, Nanos taken,
                       const Answered& answered) {
  const std::size_t length = kResponseHeaderBytes + response.value.size();
  if (length > SendPool::kSmallBytes && !has_large(session)) return false;
  const auto buffer = pool_.take(length);
  RKV_CHECK(buffer, "SERVE-3, SERVE-8");
  if (!pool_.is_large(buffer->index)) {
    ++session.small_held;
  } else if (session.large_held++ == 0) {
    session.large_since = parts_.clock.now();
  }
  (void)encode(parts_.handler.marked(response), buffer->bytes);
  auto operation = rdma::Operation::send(buffer->bytes.first(length), buffer->local_key,
                                         make_context(0, buffer->index));
  operation.inline_data = length <= session.connection->limits().inline_bytes;
  if (session.replies.empty()) dirty_.push_back(&session);
  session.replies.push_back(operation);
  --session.unanswered;
  count(response, taken, answered);
  return true;
}

// If the disk failed, a pack has one code for all its operations.
void ReplySender::count(const Response& response, Nanos taken, const Answered& answered) {
  parts_.counters.answered(response.opcode, response.code);
  parts_.timings.answered(response.opcode, taken);
  if (!answered.packed.empty()) {
    parts_.counters.add(WorkerCounters::kPacked, answered.packed.size());
    for (const RequestHandler::Outcome& one : answered.packed)
      parts_.counters.answered(one.opcode, response.code != 0 ? response.code : one.code);
  }
  if (answered.level == Durability::kMemory || response.code != 0 ||
      response.opcode == Opcode::kFlush) {
    return;
  }
  parts_.counters.add(
      answered.level == Durability::kWal ? WorkerCounters::kWalWrites : WorkerCounters::kSyncWrites,
      answered.writes);
}

void ReplySender::post() {
  for (Session* const session : dirty_)
    post(*session);
  dirty_.clear();
}

void ReplySender::post(Session& session) {
  for (rdma::Operation& operation : session.replies) {
    ++session.unsignaled;
    // A buffer returns with its reply's completion, so that reply is signaled. Inline bytes are
    // copied by the post.
    operation.signaled =
        !operation.inline_data || session.unsignaled >= kSignalEvery || signals_all_;
    const auto buffer = static_cast<std::uint32_t>(operation.context);
    if (operation.inline_data) give_back(session, buffer);  // nothing reuses it before the post
    const std::uint32_t covered = operation.signaled ? std::exchange(session.unsignaled, 0U) : 0;
    operation.context = make_context(covered, operation.inline_data ? kNoBuffer : buffer);
  }
  std::size_t posted = 0;
  if (!session.ending) {
    const auto taken = session.connection->post(session.replies);
    if (taken) posted = *taken;
    if (posted < session.replies.size()) {
      parts_.sessions.drop(session, taken ? std::optional(DropReason::kReplies) : std::nullopt);
    }
  }
  session.in_flight += static_cast<std::uint32_t>(posted);
  for (const rdma::Operation& operation : std::span(session.replies).subspan(posted)) {
    const auto buffer = static_cast<std::uint32_t>(operation.context);
    if (buffer != kNoBuffer) give_back(session, buffer);
  }
  session.replies.clear();
}

void ReplySender::discard(Session& session) {
  RKV_CHECK(session.ending, "replies to a connected client are posted");
  post(session);  // only gives the buffers back
  std::erase(dirty_, &session);
}

void ReplySender::on_sent(const rdma::Completion& completion, Session& session) {
  const auto buffer = static_cast<std::uint32_t>(completion.context);
  const auto covered = static_cast<std::uint32_t>(completion.context >> 32);
  if (buffer != kNoBuffer) give_back(session, buffer);
  session.in_flight -= std::min(session.in_flight, covered);
  if (completion.status != rdma::Completion::Status::kOk && !session.ending) {
    session.ending = true;  // kDisconnected follows
    log_debug(EventName("reply_lost"), "client {}: a reply did not arrive: {} (provider status {})",
              session.connection->peer(), rdma::to_string(completion.status),
              completion.provider_status);
  }
}

bool ReplySender::has_unsent() const {
  return std::ranges::any_of(parts_.sessions.all(), [](const auto& session) {
    return !session->ending && session->in_flight > session->unsignaled;
  });
}

}  // namespace rkv::server
