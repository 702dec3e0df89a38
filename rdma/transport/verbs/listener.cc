#include "rdma/transport/verbs/listener.h"

#include <poll.h>

#include <array>
#include <tuple>

#include "common/check.h"
#include "rdma/transport/verbs/connection.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::verbs {
namespace {

class VerbsIncoming final : public Incoming {
 public:
  VerbsIncoming(ConnectRequest request, const Shared& shared)
      : request_(std::move(request)),
        peer_(request_.peer_address().to_string()),
        called_(request_.local_address().to_string()),
        same_device_(request_.device().raw() == shared.device.raw()) {}

  Bytes private_data() const override { return request_.private_data(); }
  const std::string& peer() const override { return peer_; }
  std::string called() const override { return called_; }

  // Does not wait for the handshake's last message. Its outcome arrives on the queue, so a client
  // that never sends it cannot delay other clients.
  Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                             Bytes private_data, const Deadline&) override {
    auto* bound = dynamic_cast<VerbsQueue*>(&queue);
    RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
    if (!same_device_) {  // our memory is registered with the other device
      return fail(Code::kNoDevice,
                  "the request came over another RDMA device than the server's: connect to an "
                  "address of the server's device");
    }
    RKV_ASSIGN_OR_RETURN(std::unique_ptr<VerbsConnection> connection,
                         VerbsConnection::create(*bound, options));
    request_.set_owner(connection->handle());
    auto link = std::move(request_).accept(connection->take_queue_pair(), connection->parameters(),
                                           private_data, &bound->events());
    if (!link) {
      Error error = link.error();
      // The arguments were checked before, so the error means that the id cannot be accepted any
      // more: the peer has left.
      const bool gone = error.code == Code::kInvalidArgument && private_data.size() <= 196;
      if (gone) error.code = Code::kDisconnected;
      return std::unexpected(error);
    }
    connection->adopt(std::move(*link), peer_);
    return std::unique_ptr<Connection>(std::move(connection));
  }

  void reject(Bytes reason) override {
    std::ignore = std::move(request_).reject(reason);  // fails if the peer has given up
  }

 private:
  ConnectRequest request_;
  std::string peer_;
  std::string called_;
  bool same_device_;
};

}  // namespace

Result<std::unique_ptr<Listener>> VerbsListener::listen(std::shared_ptr<const Shared> shared,
                                                        const SocketAddress& address) {
  RKV_ASSIGN_OR_RETURN(CmListener listener, CmListener::listen(address));
  std::unique_ptr<VerbsListener> out(new VerbsListener(std::move(shared), std::move(listener)));
  RKV_RETURN_IF_ERROR(out->waker_.open());
  return std::unique_ptr<Listener>(std::move(out));
}

void VerbsListener::wake() {
  waker_.wake();
}

Result<std::unique_ptr<Incoming>> VerbsListener::next(const Deadline& deadline) {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(std::optional<ConnectRequest> request, listener_.next());
    if (request) {
      return std::unique_ptr<Incoming>(new VerbsIncoming(std::move(*request), *shared_));
    }
    std::array<pollfd, 2> waiting = {pollfd{.fd = listener_.fd(), .events = POLLIN, .revents = 0},
                                     pollfd{.fd = waker_.fd(), .events = POLLIN, .revents = 0}};
    const int ready = ::poll(waiting.data(), waiting.size(), deadline.left_ms());
    if (ready < 0 && errno != EINTR) return verb_error("poll", errno);
    if ((waiting[1].revents & POLLIN) != 0) {
      waker_.drain();
      if (waker_.consume()) return std::unique_ptr<Incoming>();
    }
    if (ready == 0 && deadline.passed()) return std::unique_ptr<Incoming>();
  }
}

}  // namespace rkv::rdma::verbs
