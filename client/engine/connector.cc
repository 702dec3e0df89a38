#include "client/engine/connector.h"

#include <utility>

#include "common/random.h"

namespace rkv::client {

namespace {

Nanos nanos(std::chrono::milliseconds ms) {
  return ms.count() * kNanosPerMs;
}

constexpr Nanos kIdle = 10 * kNanosPerMs;  // an idle link is checked before a write after this time
// If the next attempt to connect would be due after the operation's deadline, a last attempt is
// made this long before the deadline. An attempt takes some milliseconds. It also starts at least
// this long after the previous attempt. So a client with timeouts shorter than its back-off makes
// at most 20 attempts a second.
constexpr Nanos kLastAttempt = 50 * kNanosPerMs;
// In a group another server takes over within seconds. So no attempt and no wait is long.
constexpr Nanos kAttemptInGroup = 500 * kNanosPerMs;
constexpr Nanos kWaitInGroup = 100 * kNanosPerMs;

}  // namespace

Connector::Connector(Session& session, ConnectPolicy* policy)
    : session_(session),
      policy_(policy),
      watch_(session),
      backoff_(nanos(session.options.first_backoff), nanos(session.options.longest_backoff),
               random_from_kernel()) {}

Status Connector::attempt(const Deadline& deadline) {
  session_.link.close();
  session_.acknowledged.synced(session_.map.epoch(),
                               session_.map.marks().sync());  // ACK-1, before the map is cleared
  if (session_.link.read_refused()) {
    // A server never revokes a grant within an epoch, so this client's view of its memory is wrong.
    // Where a refusal looks like any other end of the connection, the view may be right.
    session_.map.clear();
    session_.forget_places();
  }
  Nanos patience = nanos(session_.options.connect_timeout);
  if (session_.servers.are_several()) patience = std::min(patience, kAttemptInGroup);
  const Nanos latest = session_.clock.now() + patience;
  has_less_time_ = deadline.at() < latest;
  session_.link.set_address(session_.servers.current());
  session_.trust.connected(false);
  const Status connected =
      session_.link.connect(Deadline(session_.clock, std::min(latest, deadline.at())));
  session_.refusal = session_.link.refusal();
  if (!connected) return connected;

  const ConnectAccept& accept = session_.link.accept();
  session_.trust.connected(accept.in_group);
  if (accept.in_group) watch_.begin();
  if (Status same = session_.home->admit(accept, session_.refusal); !same) {
    session_.link.close();
    session_.servers.is_of_another_store();
    return same;
  }
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
    if (Status loaded = session_.loader.load(deadline, patience_for_lines(deadline)); !loaded) {
      session_.link.close();
      return loaded;
    }
  }
  session_.map.set_hints(accept.hints);
  session_.reports.set_wanted(session_.map.wants_reports());
  if (accept.in_group) RKV_RETURN_IF_ERROR(watch_.believe(deadline));
  session_.home->settle(accept, session_.servers.current());
  session_.acknowledged.connected(accept.epoch);
  if (connected_once_) ++session_.stats.reconnects;
  connected_once_ = true;
  return {};
}

// In a group another server may serve: this server's thread may have been stopped for good.
Nanos Connector::patience_for_lines(const Deadline& deadline) const {
  if (!session_.trust.in_group()) return deadline.at();
  return std::min(deadline.at(), session_.clock.now() + GroupWatch::kPatience);
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
  Status last = std::unexpected(kWaits);
  for (;;) {
    const Nanos at = next_attempt(deadline);
    // The time left is too short for an attempt. Return without sleeping: the next operation makes
    // the attempt.
    if (at >= deadline.at()) return last;
    if (at > session_.clock.now()) session_.link.sleep_until(at);
    if (deadline.passed()) return last;
    last = connect_once(deadline);
    if (last || !worth_repeating(last.error())) return last;
  }
}

// A call is covered if its server is believed at any time after the call began. So the time is read
// here, not by the callers.
Status Connector::make_ready(const Deadline& deadline) {
  for (;;) {
    if (!session_.usable()) RKV_RETURN_IF_ERROR(ensure_connected(deadline));
    const Status believed = believe(deadline);
    if (believed || believed.error().code != Code::kDisconnected) return believed;
  }
}

Status Connector::believe(const Deadline& deadline) {
  if (!session_.trust.in_group()) [[likely]]
    return {};
  if (session_.trust.believes(session_.group_clock->passed())) return {};
  const Status believed = watch_.believe(deadline);
  if (!believed) distrust();
  return believed;
}

Status Connector::await_replicated(Version version, const Deadline& deadline, Nanos patience_end) {
  const Status replicated = watch_.await_replicated(version, deadline, patience_end);
  if (!replicated && !session_.link.alive()) distrust();
  return replicated;
}

void Connector::distrust() {
  session_.servers.distrusted();
  session_.refusal = session_.servers.tried();
}

// The server could not be connected to: chooses the next one.
void Connector::move_on(const Error& error) {
  const std::string& primary = session_.link.named_primary();
  if (!session_.servers.are_several() && primary.empty()) return;
  const std::string said = session_.refusal.empty() ? to_string(error) : session_.refusal;
  const bool was_cut = error.code == Code::kTimeout && has_less_time_;
  at_once_ = session_.servers.failed(said, primary, was_cut);
  session_.refusal = session_.servers.tried();
}

Nanos Connector::wait_before_attempt() {
  if (std::exchange(at_once_, false)) return 0;
  session_.servers.waited();
  const Nanos wait = backoff_.next();
  return session_.servers.are_several() ? std::min(wait, kWaitInGroup) : wait;
}

Nanos Connector::next_attempt(const Deadline& deadline) {
  if (reconnect_at_ == 0) reconnect_at_ = session_.clock.now() + wait_before_attempt();
  if (reconnect_at_ < deadline.at()) return reconnect_at_;
  // Makes one last attempt before the deadline, to find a server that came back during the wait.
  return std::min(reconnect_at_,
                  std::max(deadline.at(), attempted_at_ + 2 * kLastAttempt) - kLastAttempt);
}

Status Connector::connect_once(const Deadline& deadline) {
  reconnect_at_ = 0;
  const Status status = attempt(deadline);
  attempted_at_ = session_.clock.now();
  if (status) {
    session_.servers.connected();
    return status;
  }
  move_on(status.error());
  if (session_.servers.may_be_another()) {
    return fail(Code::kNotPrimary, "a server of the list has another store: others are tried");
  }
  if (at_once_ && !worth_repeating(status.error())) {
    return fail(Code::kUnreachable, "a server of the group refuses clients: another one is tried");
  }
  return status;
}

Status Connector::connect_without_wait(const Deadline& deadline) {
  for (;;) {
    const Status status = connect_once(deadline);
    if (status || !at_once_ || deadline.passed()) return status;
  }
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
  session_.link.keep_events();
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
