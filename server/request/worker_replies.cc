// Worker: replies. Which client may use which send buffer (K3, K8), and how replies are posted
// (K4).
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "server/request/worker.h"

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

bool Worker::has_room_for_reply(const Session& session) const {
  return session.in_flight + session.replies.size() < kRepliesInFlight &&
         session.small_held < kSmallRepliesPerClient && pool_.small_free() != 0;
}

// The client that has waited longest gets the next large buffer. A client that already holds some
// makes no other client wait (K8).
bool Worker::has_large_for(const Session& session) {
  if (session.large_held >= kLargeRepliesPerClient || large_wanted_) return false;
  if (pool_.large_free() > session.large_held) return true;
  if (session.large_held == 0) {
    large_wanted_ = true;
    drop_slow_taker();
  }
  return false;
}

void Worker::drop_slow_taker() {
  Session* slowest = nullptr;
  for (const auto& session : sessions_) {
    if (session->ending || session->large_held == 0) continue;
    if (slowest == nullptr || session->large_since < slowest->large_since) slowest = session.get();
  }
  if (slowest == nullptr || clock_.now() - slowest->large_since < kLongestReply) return;
  drop(*slowest, DropReason::kReplies);
}

void Worker::give_back(Session& session, std::uint32_t buffer) {
  if (pool_.is_large(buffer)) {
    --session.large_held;
    session.large_since = clock_.now();
  } else {
    --session.small_held;
  }
  pool_.give_back(buffer);
}

// Encodes the reply and queues it for this turn's post. False: no large buffer is free.
bool Worker::reply(Session& session, const Response& response) {
  const std::size_t length = kResponseHeaderBytes + response.value.size();
  if (length > SendPool::kSmallBytes && !has_large_for(session)) return false;
  const auto buffer = pool_.take(length);
  RKV_CHECK(buffer, "K3, K8");
  if (!pool_.is_large(buffer->index)) {
    ++session.small_held;
  } else if (session.large_held++ == 0) {
    session.large_since = clock_.now();
  }
  (void)encode(handler_.marked(response), buffer->bytes);
  auto operation = rdma::Operation::send(buffer->bytes.first(length), buffer->local_key,
                                         make_context(0, buffer->index));
  operation.inline_data = length <= session.connection->limits().inline_bytes;
  if (session.replies.empty()) dirty_.push_back(&session);
  session.replies.push_back(operation);
  --session.unanswered;
  return true;
}

void Worker::post_replies() {
  for (Session* const session : dirty_)
    post_replies(*session);
  dirty_.clear();
}

void Worker::post_replies(Session& session) {
  for (rdma::Operation& operation : session.replies) {
    ++session.unsignaled;
    // A buffer returns with its reply's completion, so that reply is signaled. Inline bytes are
    // copied by the post. When the worker stops, all replies are signaled: the last ones must have
    // arrived before their connection ends.
    operation.signaled = !operation.inline_data || session.unsignaled >= kSignalEvery || !taking_;
    const auto buffer = static_cast<std::uint32_t>(operation.context);
    if (operation.inline_data) give_back(session, buffer);  // nothing reuses it before the post
    const std::uint32_t covered = operation.signaled ? std::exchange(session.unsignaled, 0U) : 0;
    operation.context = make_context(covered, operation.inline_data ? kNoBuffer : buffer);
  }
  std::size_t posted = 0;
  if (!session.ending) {
    const auto taken = session.connection->post(session.replies);
    if (taken) posted = *taken;
    if (posted < session.replies.size()) drop(session, taken ? Why(DropReason::kReplies) : Why());
  }
  session.in_flight += static_cast<std::uint32_t>(posted);
  for (const rdma::Operation& operation : std::span(session.replies).subspan(posted)) {
    const auto buffer = static_cast<std::uint32_t>(operation.context);
    if (buffer != kNoBuffer) give_back(session, buffer);
  }
  session.replies.clear();
}

void Worker::on_sent(const rdma::Completion& completion, Session& session) {
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

}  // namespace rkv::server
