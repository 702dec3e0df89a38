// Connecting and accepting as coroutines, over the steps of connect.h.
//
//   // Active side.
//   RKV_CO_ASSIGN_OR_RETURN(Connector connector, co_await resolve(executor, peer, {}, deadline));
//   ... make a queue pair on connector.device(), prepare() it, post receives ...
//   RKV_CO_ASSIGN_OR_RETURN(CmConnection link,
//       co_await connect(executor, std::move(connector), std::move(qp), {}, hello, deadline));
//
//   // Passive side: each request is answered at once, and waits for its peer separately.
//   RKV_CO_ASSIGN_OR_RETURN(ConnectRequest request, co_await next_request(executor, listener));
//   ... make a queue pair on request.device(), prepare() it, post receives ...
//   RKV_CO_ASSIGN_OR_RETURN(CmConnection link,
//       std::move(request).accept(std::move(qp), parameters, {}));    // does not wait
//   RKV_CO_RETURN_IF_ERROR(co_await established(executor, link, deadline));
//   // Or a message transport: its builder answers.
//   RKV_CO_ASSIGN_OR_RETURN(auto accepting, builder.start_accept(std::move(request)));
//   RKV_CO_ASSIGN_OR_RETURN(auto transport,
//       co_await accepted(executor, std::move(accepting), deadline));
//
// The active side of a message transport blocks in the connect() of its builder. It has no
// coroutine here.
//
// Invariants:
//   SETUP-1  No connection waits for another one. Each has its own event channel, and accept() does
//       not wait for its peer. A peer that never finishes its handshake delays only the coroutine
//       that waits for it.
//   SETUP-2  The objects that a wait owns end with it. If connect() is stopped, timed out or
//       destroyed, its queue pair and id are destroyed, and the kernel tells the peer. A request is
//       taken from the listener only to be returned; a ConnectRequest that is not answered is
//       rejected (connect.h).
//
// Each function returns a value to await at once. Arguments that are references must live until the
// result. Errors: those of connect.h; kTimeout: `until` ended the wait, and is_stopped() recognizes
// a stop.
//
// Thread safety: one thread at a time, the executor's. Source: rdma_cm(7).
#pragma once

#include <algorithm>
#include <coroutine>
#include <expected>
#include <optional>
#include <utility>
#include <variant>

#include "rkv/rdma/connect.h"
#include "rkv/rdma/message/accepting.h"
#include "rkv/rdma/message/executor.h"

namespace rkv::rdma {

namespace detail {

// Waits for a descriptor that stays readable while there are events, until `Try` has a result.
// Try: int fd(); Result<std::optional<T>> attempt().
template <class T, class Try>
class DescriptorWaiter final : public LimitedWaiter {
 public:
  DescriptorWaiter(Executor& executor, Try tries, Until until)
      : LimitedWaiter(std::move(until)), executor_(executor), try_(std::move(tries)) {}
  bool await_ready() { return attempt(); }
  void await_suspend(std::coroutine_handle<> continuation) { suspend(executor_, continuation); }
  Result<T> await_resume() {
    if (error_) return std::unexpected(*error_);
    return std::move(*result_);
  }

  int fd() const override { return try_.fd(); }
  Result<bool> arm() override { return !error_; }
  void fail(const Error& error) override { error_ = error; }
  bool attempt() override {
    if (error_ || result_) return true;
    Result<std::optional<T>> got = try_.attempt();
    if (!got) {
      error_ = got.error();
    } else if (*got) {
      result_.emplace(std::move(**got));
    } else {
      error_ = over();
    }
    return error_ || result_;
  }

 private:
  Executor& executor_;
  Try try_;
  std::optional<T> result_;
  std::optional<Error> error_;
};

// An error at the start is the result of the first attempt.
struct Resolving {
  Result<Connector> connector;

  int fd() const { return connector ? connector->fd() : -1; }
  Result<std::optional<Connector>> attempt() {
    if (!connector) return std::unexpected(connector.error());
    RKV_ASSIGN_OR_RETURN(const bool done, connector->try_resolve());
    return done ? std::optional(std::move(*connector)) : std::nullopt;
  }
};

struct Connecting {
  Connector connector;
  Status started;
  PrivateData* rejection;

  int fd() const { return connector.fd(); }
  Result<std::optional<CmConnection>> attempt() {
    RKV_RETURN_IF_ERROR(started);
    return connector.try_connect(rejection);
  }
};

struct Accepting {
  CmListener& listener;

  int fd() const { return listener.fd(); }
  Result<std::optional<ConnectRequest>> attempt() { return listener.next(); }
};

template <class T>
struct Finishing {
  AcceptingTransport<T> accepting;

  int fd() const { return accepting.fd(); }
  Result<std::optional<T>> attempt() { return accepting.try_accept(); }
};

// std::monostate stands for an event without a value.
struct Established {
  CmConnection& connection;

  int fd() const { return connection.channel.fd(); }
  Result<std::optional<std::monostate>> attempt() {
    RKV_ASSIGN_OR_RETURN(const bool done, connection.try_established());
    return done ? std::optional(std::monostate{}) : std::nullopt;
  }
};

struct Left {
  CmConnection& connection;

  int fd() const { return connection.channel.fd(); }
  Result<std::optional<std::monostate>> attempt() {
    const Status alive = connection.check();
    if (alive) return std::optional<std::monostate>{};
    if (!connection.peer_left) return std::unexpected(alive.error());
    return std::optional(std::monostate{});
  }
};

// The limit of one step of the kernel, for a wait without a deadline.
inline constexpr int kLongestStepMs = 60'000;
inline int step_ms(const Until& until) {
  return until.deadline() != nullptr ? std::max(1, until.deadline()->left_ms()) : kLongestStepMs;
}

}  // namespace detail

// Finds device and path: a Connector, as from Connector::resolve(). Without a deadline the kernel
// gives up after a minute.
inline auto resolve(Executor& executor, const SocketAddress& peer,
                    const ResolveOptions& options = {}, Until until = {}) {
  const int timeout_ms = detail::step_ms(until);
  return detail::DescriptorWaiter<Connector, detail::Resolving>(
      executor, {Connector::start(peer, options, timeout_ms)}, std::move(until));
}

// Connects: a CmConnection, as from Connector::connect(). The private data is sent at once.
// `rejection`, if not null, gets the bytes of a peer that refuses.
inline auto connect(Executor& executor, Connector connector, PreparedQueuePair<> qp,
                    const ConnectionParameters& parameters, Bytes private_data, Until until = {},
                    PrivateData* rejection = nullptr) {
  Status started = connector.start_connect(std::move(qp), parameters, private_data);
  return detail::DescriptorWaiter<CmConnection, detail::Connecting>(
      executor, {std::move(connector), std::move(started), rejection}, std::move(until));
}

// The listener's next request: a ConnectRequest, as from CmListener::wait().
inline auto next_request(Executor& executor, CmListener& listener, Until until = {}) {
  return detail::DescriptorWaiter<ConnectRequest, detail::Accepting>(executor, {listener},
                                                                     std::move(until));
}

// Passive side: a message transport of start_accept(), which is destroyed if the wait ends early.
template <class T>
auto accepted(Executor& executor, AcceptingTransport<T> accepting, Until until = {}) {
  return detail::DescriptorWaiter<T, detail::Finishing<T>>(executor, {std::move(accepting)},
                                                           std::move(until));
}

// Passive side: the end of the handshake, as CmConnection::wait_established().
inline auto established(Executor& executor, CmConnection& connection, Until until = {}) {
  return detail::DescriptorWaiter<std::monostate, detail::Established>(executor, {connection},
                                                                       std::move(until));
}

// Waits for the peer's disconnect. An error: the connection ended in another way.
inline auto peer_left(Executor& executor, CmConnection& connection, Until until = {}) {
  return detail::DescriptorWaiter<std::monostate, detail::Left>(executor, {connection},
                                                                std::move(until));
}

}  // namespace rkv::rdma
