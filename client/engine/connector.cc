#include "client/engine/connector.h"

#include "common/random.h"

namespace rkv::client {

namespace {

Nanos nanos(std::chrono::milliseconds ms) {
  return ms.count() * kNanosPerMs;
}

constexpr Nanos kIdle = 10 * kNanosPerMs;  // an idle link is checked before a write after this time
// If the next attempt to connect would be due after the operation's deadline, a last attempt is
// made this long before the deadline. An attempt takes some milliseconds. It also starts at least
// this long after the attempt before. So a client with timeouts shorter than its back-off makes at
// most 20 attempts a second.
constexpr Nanos kLastAttempt = 50 * kNanosPerMs;

}  // namespace

Connector::Connector(Session& session, ConnectPolicy* policy)
    : session_(session),
      policy_(policy),
      backoff_(nanos(session.options.first_backoff), nanos(session.options.longest_backoff),
               random_from_kernel()) {}

Status Connector::attempt(const Deadline& deadline) {
  session_.link.close();
  session_.acknowledged.synced(session_.map.epoch(),
                               session_.map.marks().sync());  // ACK-1, before the map is cleared
  if (session_.link.read_refused()) {
    // A server never revokes a grant within an epoch, so our view of its memory is wrong. It may be
    // right where a refusal looks like any other end of the connection.
    session_.map.clear();
    session_.forget_places();
  }
  const Nanos latest = session_.clock.now() + nanos(session_.options.connect_timeout);
  const Status connected =
      session_.link.connect(Deadline(session_.clock, std::min(latest, deadline.at())));
  session_.refusal = session_.link.refusal();
  if (!connected) return connected;

  const ConnectAccept& accept = session_.link.accept();
  if (policy_ != nullptr) {
    if (Status admitted = policy_->admit(session_, accept.epoch); !admitted) {
      session_.link.close();
      return admitted;
    }
  }
  if (!session_.map.is_of(accept.epoch, accept.root)) {  // ENG-2
    session_.forget_places();
    session_.map.begin(accept.epoch, accept.root, accept.hints,
                       static_cast<std::uint32_t>(accept.session));
    if (Status loaded = session_.loader.load(deadline); !loaded) {
      session_.link.close();
      return loaded;
    }
  }
  session_.map.set_hints(accept.hints);
  session_.acknowledged.connected(accept.epoch);
  if (connected_once_) ++session_.stats.reconnects;
  connected_once_ = true;
  return {};
}

bool Connector::worth_repeating(const Error& error) {
  switch (error.code) {
    case Code::kRejected:
    case Code::kUnauthenticated:
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

Status Connector::ensure_connected(const Deadline& deadline) {
  session_.link.close();
  Status last = fail(Code::kDisconnected, "the connection is lost; waiting before the next try");
  for (;;) {
    const Nanos at = next_attempt(deadline);
    // The time left is too short for an attempt. Return without sleeping: the next operation has
    // it.
    if (at >= deadline.at()) return last;
    if (at > session_.clock.now()) session_.link.sleep_until(at);
    if (deadline.passed()) return last;
    last = connect_once(deadline);
    if (last || !worth_repeating(last.error())) return last;
  }
}

Nanos Connector::next_attempt(const Deadline& deadline) {
  if (reconnect_at_ == 0) reconnect_at_ = session_.clock.now() + backoff_.next();
  if (reconnect_at_ < deadline.at()) return reconnect_at_;
  // One last attempt before the deadline, so that a server that came back during the wait is found.
  return std::min(reconnect_at_,
                  std::max(deadline.at(), attempted_at_ + 2 * kLastAttempt) - kLastAttempt);
}

Status Connector::connect_once(const Deadline& deadline) {
  reconnect_at_ = 0;
  const Status status = attempt(deadline);
  attempted_at_ = session_.clock.now();
  return status;
}

void Connector::check_link() {
  if (!session_.link.alive()) return;
  const Nanos now = session_.clock.now();
  if (now - looked_at_ > kIdle) {
    // Only wait() is sure to notice the end of an idle connection. With this deadline it returns at
    // once.
    session_.link.wait(Deadline(session_.clock, now));
  }
  looked_at_ = now;
  for (const Event& event : session_.link.poll()) {
    if (event.kind == Event::Kind::kReply) session_.link.release(event.buffer);
  }
}

Status Connector::read_marks(const Deadline& deadline) {
  for (;;) {
    if (!session_.usable()) RKV_RETURN_IF_ERROR(ensure_connected(deadline));
    const Status read = session_.loader.refresh_marks(deadline);
    if (read) backoff_.reset();
    if (read || read.error().code != Code::kDisconnected) return read;
  }
}

}  // namespace rkv::client
