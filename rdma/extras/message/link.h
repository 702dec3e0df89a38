// The common base of the message transports over verbs: a connection with its completion queues,
// one descriptor to wait for, and a record of how the connection ended.
//
// Fields are destroyed from the last to the first, so the queue pair is destroyed before its
// queues. A transport declares its registered memory before its Link: no memory is deregistered
// while the device may still access it.
//
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "rdma/extras/message/link_queues.h"
#include "rdma/extras/message/token.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma::detail {

struct LinkOptions {
  std::uint32_t send_length = 0;     // the most requests posted and not reaped
  std::uint32_t receive_length = 0;  // likewise
  std::uint32_t inline_bytes = 0;
  AccessFlags remote_access = AccessFlags::kNone;
  SendOps operations = SendOps::kSend;
};

class Link {
 public:
  // Creates the queues and a queue pair that is not connected.
  static Result<Link> create(const Device& device, const LinkOptions& options);
  Link(Link&&) noexcept;
  Link& operator=(Link&&) = delete;
  ~Link();

  const ProtectionDomain& domain() const { return domain_; }
  const ConnectionParameters& parameters() const { return parameters_; }
  // Before the connection. Connector::connect() and ConnectRequest::accept() take the queue pair
  // and return it in a connection.
  PreparedQueuePair<>& fresh() { return *fresh_; }
  // REQUIRES: adopt().
  QueuePair& queue_pair() { return connection_->qp; }
  const QueuePair& queue_pair() const { return connection_->qp; }
  Status post_receives(std::span<const ReceiveRequest> requests) {
    return connection_ ? connection_->qp.post_receives(requests) : fresh_->post_receives(requests);
  }
  Status adopt(CmConnection connection);
  CmConnection& connection() { return *connection_; }
  SocketAddress local_address() const { return connection_->id.local_address(); }
  SocketAddress peer_address() const { return connection_->id.peer_address(); }

  CompletionQueue& sends() { return queues_.sends(); }
  Result<std::size_t> poll_sends(std::span<WorkCompletion> out) {
    return queues_.sends().poll(out);
  }
  Result<std::size_t> poll_receives(std::span<WorkCompletion> out) {
    return queues_.receives().poll(out);
  }
  int fd() const { return queues_.fd(); }
  // A transport's arm(): `look` polls both queues and returns whether nothing is there. Returns
  // true if the caller may sleep.
  template <class Look>
  Result<bool> arm(Look look) {
    RKV_RETURN_IF_ERROR(queues_.arm());
    return look();
  }

  // Processes pending events of the connection manager. Returns true if the connection has ended in
  // any way.
  bool ended();
  bool usable() const { return !closed_ && !gone_ && !failure_; }
  // True if the connection ended without a failure: disconnected by this side or by the peer. A
  // connection cut by a failure must not look like the end of the peer's data. A peer whose process
  // dies looks like a peer that disconnects, since its kernel sends the same message.
  bool ended_cleanly() const { return !failure_ && (closed_ || gone_); }
  // Keeps the first error, and moves the queue pair to the error state, which flushes all work.
  void fail(const Error& error);
  // Report a failed completion. After the peer has disconnected, sends and receives are flushed;
  // this is not a failure. Any other error is, whether the event or the completion is seen first.
  void note_send(const char* operation, ibv_wc_status status);
  void note_receive(ibv_wc_status status);
  // The reason why the connection cannot be used. REQUIRES: !usable().
  Error error() const;
  Status disconnect();

 private:
  void look_at_events();
  void note(const char* operation, ibv_wc_status status);
  Link(ProtectionDomain domain, LinkQueues queues)
      : domain_(std::move(domain)), queues_(std::move(queues)) {}

  ProtectionDomain domain_;
  LinkQueues queues_;
  ConnectionParameters parameters_;
  std::optional<Error> failure_;
  bool gone_ = false;    // the connection manager reported the end
  bool closed_ = false;  // this side disconnected
  std::optional<PreparedQueuePair<>> fresh_;
  std::optional<CmConnection> connection_;
};

// The functions that make a connected State: dial() and answer(), which wait for the peer, and
// admit() with try_finish(), which do not. A State provides kKind, make(device, options), link(),
// token(), meet(peer's token) and post_receives(). It also provides begin(deadline) or
// try_begin(deadline), the last step, which returns whether the peer has done its part. The
// transports differ only in these.
template <class State, class Options>
auto dial(const Options& options, const SocketAddress& peer, const Deadline& deadline)
    -> decltype(State::make(std::declval<Device&>(), options)) {
  RKV_ASSIGN_OR_RETURN(Connector connector, Connector::resolve(peer, {}, deadline));
  RKV_ASSIGN_OR_RETURN(auto state, State::make(connector.device(), options));
  Link& link = state->link();
  RKV_RETURN_IF_ERROR(connector.prepare(link.fresh(), link.parameters()));
  RKV_RETURN_IF_ERROR(state->post_receives());
  PrivateData rejection;
  Result<CmConnection> connection = std::move(connector).connect(
      std::move(link.fresh()), link.parameters(), encode(state->token()), deadline, &rejection);
  if (!connection) {
    return std::unexpected(understand_refusal(connection.error(), rejection.bytes()));
  }
  const PrivateData reply = connection->peer_data;
  RKV_RETURN_IF_ERROR(link.adopt(std::move(*connection)));
  // From here on an error destroys the connection, which notifies the peer.
  RKV_ASSIGN_OR_RETURN(const Token token, decode(reply.bytes(), State::kKind));
  RKV_RETURN_IF_ERROR(state->meet(token));
  RKV_RETURN_IF_ERROR(state->begin(deadline));
  return state;
}

// Answers the request.
template <class State, class Options>
auto admit(const Options& options, ConnectRequest request)
    -> decltype(State::make(std::declval<Device&>(), options)) {
  const Result<Token> token = decode(request.private_data(), State::kKind);
  if (!token) {
    // An error of reject() means that the peer has already given up. Report the error of the token.
    std::ignore = std::move(request).reject(refusal(token.error()));
    return std::unexpected(token.error());
  }
  // A request that is destroyed on an error path is rejected.
  RKV_ASSIGN_OR_RETURN(auto state, State::make(request.device(), options));
  Link& link = state->link();
  RKV_RETURN_IF_ERROR(state->meet(*token));
  RKV_RETURN_IF_ERROR(request.prepare(link.fresh(), link.parameters()));
  RKV_RETURN_IF_ERROR(state->post_receives());
  RKV_ASSIGN_OR_RETURN(CmConnection connection,
                       std::move(request).accept(std::move(link.fresh()), link.parameters(),
                                                 encode(state->token())));
  RKV_RETURN_IF_ERROR(link.adopt(std::move(connection)));
  return state;
}

template <class State, class Options>
auto answer(const Options& options, CmListener& listener, const Deadline& deadline)
    -> decltype(State::make(std::declval<Device&>(), options)) {
  RKV_ASSIGN_OR_RETURN(ConnectRequest request, listener.wait(deadline));
  RKV_ASSIGN_OR_RETURN(auto state, admit<State>(options, std::move(request)));
  RKV_RETURN_IF_ERROR(state->link().connection().wait_established(deadline));
  RKV_RETURN_IF_ERROR(state->begin(deadline));
  return state;
}

// The limit for the device to bind a window, which does not depend on the peer.
inline constexpr std::chrono::seconds kBindLimit{1};

// Call it after admit(). Returns true when the State can be used, else false: then call again when
// fd() is readable.
template <class State>
Result<bool> try_finish(State& state) {
  Link& link = state.link();
  for (bool established = false; !established;) {
    RKV_ASSIGN_OR_RETURN(const bool quiet, link.arm([&]() -> Result<bool> {
      RKV_ASSIGN_OR_RETURN(established, link.connection().try_established());
      return !established;
    }));
    if (quiet) return false;
  }
  return state.try_begin(Deadline::in(kBindLimit));
}

}  // namespace rkv::rdma::detail
