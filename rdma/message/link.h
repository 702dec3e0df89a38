// What every message transport on verbs stands on: a connection with a completion queue for each
// direction, one descriptor to wait on, and the memory of how the connection ended.
//
// Fields are destroyed from the last to the first: the queue pair goes before its queues, and a
// transport declares its registered memory before its Link, so that nothing is deregistered while
// the device may still touch it.
//
// Thread safety: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "rdma/message/token.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma::detail {

// A descriptor of ours, closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct LinkOptions {
  std::uint32_t send_length = 0;     // requests posted and not reaped, at most
  std::uint32_t receive_length = 0;  // likewise
  std::uint32_t inline_bytes = 0;
  AccessFlags remote_access = AccessFlags::kNone;
  SendOps operations = SendOps::kSend;
};

class Link {
 public:
  // Queues and a queue pair that is not connected.
  static Result<Link> create(const Device& device, const LinkOptions& options);

  const ProtectionDomain& domain() const { return domain_; }
  const ConnectionParameters& parameters() const { return parameters_; }
  // Before the connection: for Connector::connect() and ConnectRequest::accept(), which give it
  // back in a connection.
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
  // Another descriptor that fd() shall wake for.
  Status watch(int fd);

  CompletionQueue& sends() { return sends_; }
  Result<std::size_t> poll_sends(std::span<WorkCompletion> out) { return sends_.poll(out); }
  Result<std::size_t> poll_receives(std::span<WorkCompletion> out) { return receives_.poll(out); }
  // The next completion of either queue makes fd() readable. The caller polls both afterwards:
  // what came before raises no event.
  Status arm();
  int fd() const { return poller_.get(); }

  // Reads what the connection manager has to say. True when the connection has ended in any way.
  bool ended();
  bool usable() const { return !closed_ && !gone_ && !failure_; }
  // Ended without a failure: by us, or by the peer's own will. What a failure cut off must not look
  // like the end of what the peer had to say. A peer whose process dies looks like one that leaves,
  // since its kernel says the same for it.
  bool ended_cleanly() const { return !failure_ && (closed_ || gone_); }
  // Keeps the first one, and moves the queue pair to the error state: all work is flushed.
  void fail(const Error& error);
  // Completions that failed. Once the peer has left, nothing can reach it, so what was posted
  // before ends with an error and means no failure; but a receive that ended by itself does.
  void note_send(const char* operation, ibv_wc_status status);
  void note_receive(ibv_wc_status status);
  // Why the connection cannot be used. REQUIRES: !usable().
  Error error() const;
  Status disconnect();

 private:
  void look_at_events();
  void note(const char* operation, ibv_wc_status status);
  Link(ProtectionDomain domain, CompletionChannel channel, CompletionQueue sends,
       CompletionQueue receives)
      : domain_(std::move(domain)),
        channel_(std::move(channel)),
        sends_(std::move(sends)),
        receives_(std::move(receives)) {}

  ProtectionDomain domain_;
  CompletionChannel channel_;
  CompletionQueue sends_;
  CompletionQueue receives_;
  Descriptor poller_;
  ConnectionParameters parameters_;
  std::optional<Error> failure_;
  bool gone_ = false;    // the connection manager says that it has ended
  bool closed_ = false;  // we have
  std::optional<PreparedQueuePair<>> fresh_;
  std::optional<CmConnection> connection_;
};

// The two ways to a connected State, which must offer kKind, make(device, options), link(),
// token(), meet(peer's token), post_receives() and begin(deadline), when all is done; nothing but
// these differs among transports.
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
  // From here on an error destroys the connection, which tells the peer.
  RKV_ASSIGN_OR_RETURN(const Token token, decode(reply.bytes(), State::kKind));
  RKV_RETURN_IF_ERROR(state->meet(token));
  RKV_RETURN_IF_ERROR(state->begin(deadline));
  return state;
}

template <class State, class Options>
auto answer(const Options& options, CmListener& listener, const Deadline& deadline)
    -> decltype(State::make(std::declval<Device&>(), options)) {
  RKV_ASSIGN_OR_RETURN(ConnectRequest request, listener.wait(deadline));
  const Result<Token> token = decode(request.private_data(), State::kKind);
  if (!token) {
    // An error means that the peer has given up meanwhile; ours is the one to tell.
    std::ignore = std::move(request).reject(refusal(token.error()));
    return std::unexpected(token.error());
  }
  // A request that is dropped on the way out is rejected.
  RKV_ASSIGN_OR_RETURN(auto state, State::make(request.device(), options));
  Link& link = state->link();
  RKV_RETURN_IF_ERROR(state->meet(*token));
  RKV_RETURN_IF_ERROR(request.prepare(link.fresh(), link.parameters()));
  RKV_RETURN_IF_ERROR(state->post_receives());
  RKV_ASSIGN_OR_RETURN(CmConnection connection,
                       std::move(request).accept(std::move(link.fresh()), link.parameters(),
                                                 encode(state->token())));
  RKV_RETURN_IF_ERROR(link.adopt(std::move(connection)));
  RKV_RETURN_IF_ERROR(link.connection().wait_established(deadline));
  RKV_RETURN_IF_ERROR(state->begin(deadline));
  return state;
}

}  // namespace rkv::rdma::detail
