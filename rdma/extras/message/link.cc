#include "rdma/extras/message/link.h"

namespace rkv::rdma::detail {

Link::Link(Link&&) noexcept = default;
Link::~Link() = default;

Result<Link> Link::create(const Device& device, const LinkOptions& options) {
  RKV_ASSIGN_OR_RETURN(ProtectionDomain domain, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(LinkQueues queues,
                       LinkQueues::create(device, options.send_length, options.receive_length));
  Link out(std::move(domain), std::move(queues));
  RKV_ASSIGN_OR_RETURN(out.fresh_,
                       QueuePair::create(out.domain_, out.queues_.sends(), out.queues_.receives(),
                                         {.send_length = options.send_length,
                                          .receive_length = options.receive_length,
                                          .inline_bytes = options.inline_bytes,
                                          .operations = options.operations}));
  out.parameters_.remote_access = options.remote_access;
  return out;
}

Status Link::adopt(CmConnection connection) {
  fresh_.reset();
  connection_.emplace(std::move(connection));
  return queues_.watch(connection_->channel.fd());
}

bool Link::ended() {
  look_at_events();
  return !usable();
}

void Link::look_at_events() {
  if (!connection_ || gone_) return;
  const Status alive = connection_->check();
  if (alive) return;
  gone_ = true;
  if (!connection_->peer_left && !closed_) fail(alive.error());
  // Answers the peer, which waits for the answer before it destroys its own end. The queue pair
  // stays in its state after the peer disconnected: received messages must still be delivered.
  std::ignore = connection_->id.disconnect();
}

void Link::fail(const Error& error) {
  if (failure_) return;
  failure_ = error;
  // An error here means that the queue pair is already in that state.
  std::ignore = queue_pair().to_error();
}

void Link::note_send(const char* operation, ibv_wc_status status) {
  look_at_events();
  // A send that was not flushed has failed by itself, perhaps before the peer disconnected. From
  // then on this side received nothing, so the peer's last messages may be missing.
  if (!gone_ || status != IBV_WC_WR_FLUSH_ERR) note(operation, status);
}

void Link::note_receive(ibv_wc_status status) {
  look_at_events();
  if (!gone_ || status != IBV_WC_WR_FLUSH_ERR) note("receive", status);
}

void Link::note(const char* operation, ibv_wc_status status) {
  if (closed_ || failure_) return;  // flushed by an end that is already known
  if (status == IBV_WC_WR_FLUSH_ERR) {
    fail({.code = Code::kDisconnected, .call = operation, .text = "the connection was lost"});
  } else {
    fail(wc_error(operation, status));
  }
}

Error Link::error() const {
  if (failure_) return *failure_;
  if (closed_) return {.code = Code::kDisconnected, .text = "the transport was disconnected"};
  return {.code = Code::kDisconnected, .text = "the peer has disconnected"};
}

Status Link::disconnect() {
  if (closed_) return {};
  closed_ = true;
  return connection_->disconnect();
}

}  // namespace rkv::rdma::detail
