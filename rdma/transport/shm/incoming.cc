#include "rdma/transport/shm/incoming.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/check.h"

namespace rkv::rdma::shm {
namespace {

class ShmIncoming final : public Incoming {
 public:
  ShmIncoming(std::shared_ptr<Shared> shared, PeerSocket socket, const Hello& hello,
              std::string peer, std::string called)
      : shared_(std::move(shared)),
        socket_(std::move(socket)),
        hello_(hello),
        peer_(std::move(peer)),
        called_(std::move(called)) {}
  ~ShmIncoming() override {
    if (socket_) say_no({});
  }
  ShmIncoming(const ShmIncoming&) = delete;
  ShmIncoming& operator=(const ShmIncoming&) = delete;

  Bytes private_data() const override { return hello_.data; }
  const std::string& peer() const override { return peer_; }
  std::string called() const override { return called_; }
  void reject(Bytes reason) override {
    if (socket_) say_no(reason);
  }

  // Does not wait: the answer goes into the socket, and the client has either left or is there.
  Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                             Bytes private_data, const Deadline&) override {
    auto* bound = dynamic_cast<ShmQueue*>(&queue);
    RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
    if (private_data.size() > kAcceptDataBytes) {
      return fail(Code::kInvalidArgument,
                  "the private data of the answer to a connection request is at most 196 bytes");
    }
    if (!socket_) return fail(Code::kInvalidArgument, "the request has been answered already");
    if (shared_->budget->is_overdrawn()) {
      return fail(Code::kBusy,
                  "the server has no descriptors left for clients: raise its limit of open files "
                  "(ulimit -n)");
    }
    RKV_ASSIGN_OR_RETURN(auto reservation, ShmConnection::Reservation::make(*bound, options));
    // The client chooses its receive limit, we choose our send limit; the latter bounds our memory
    // (SHMLISTEN-3).
    const std::uint64_t longest =
        options.send_bytes == 0 ? hello_.receive_bytes
                                : std::min<std::uint64_t>(hello_.receive_bytes, options.send_bytes);
    Accept answer{.receive_bytes = bound->receive_bytes(),
                  .to_server_bytes = ring_bytes(bound->receive_bytes()),
                  .to_client_bytes = ring_bytes(longest)};
    std::ranges::copy(private_data, answer.data.begin());
    RKV_ASSIGN_OR_RETURN(
        SharedMemory memory,
        make_shared_memory("rkv-link", link_bytes(answer.to_server_bytes, answer.to_client_bytes),
                           Sealing::kOthersWrite));
    Link link{.socket = std::move(socket_),
              .passive = true,
              .memory = std::move(memory.memory),
              .peer_regions = PeerRegions(shared_.get()),
              .to_server_bytes = answer.to_server_bytes,
              .to_client_bytes = answer.to_client_bytes,
              .peer_receive_bytes = longest,
              .peer_data = std::vector<std::byte>(hello_.data.begin(), hello_.data.end()),
              .peer = peer_};
    auto connection =
        std::make_unique<ShmConnection>(std::move(reservation), options, std::move(link));
    RKV_RETURN_IF_ERROR(shared_->exporter.subscribe(connection->socket(), options.grant, answer,
                                                    {memory.fd.get(), bound->page_fd()}));
    connection->attach();
    return std::unique_ptr<Connection>(std::move(connection));
  }

 private:
  void say_no(Bytes reason) {
    Reject answer;
    reason = reason.first(std::min(reason.size(), answer.reason.size()));
    answer.length = static_cast<std::uint32_t>(reason.size());
    std::ranges::copy(reason, answer.reason.begin());
    send_packet(socket_.get(), packet_of(answer));
    socket_.reset();
  }

  std::shared_ptr<Shared> shared_;
  PeerSocket socket_;  // empty: answered
  Hello hello_;
  std::string peer_;
  std::string called_;
};

}  // namespace

std::unique_ptr<Incoming> make_incoming(std::shared_ptr<Shared> shared, PeerSocket socket,
                                        const Hello& hello, std::string peer, std::string called) {
  return std::make_unique<ShmIncoming>(std::move(shared), std::move(socket), hello, std::move(peer),
                                       std::move(called));
}

std::string called_text(std::uint16_t port) {
  return fmt::format("shm:{}", port);
}

}  // namespace rkv::rdma::shm
