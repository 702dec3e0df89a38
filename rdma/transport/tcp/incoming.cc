#include "rdma/transport/tcp/incoming.h"

#include <algorithm>

#include "common/check.h"
#include "rdma/transport/tcp/connection.h"
#include "rdma/transport/tcp/socket.h"

namespace rkv::rdma {
namespace tcp {

namespace {

// Time limit for an answer, which fits into the socket of a caller that has just connected.
constexpr int kAnswerMs = 100;

class TcpIncoming final : public Incoming {
 public:
  TcpIncoming(Fd socket, const Hello& hello)
      : socket_(std::move(socket)),
        hello_(hello),
        peer_(name_of_peer(socket_.get())),
        called_(name_of_own_end(socket_.get())) {}
  ~TcpIncoming() override {
    if (socket_) reject({});
  }
  TcpIncoming(const TcpIncoming&) = delete;
  TcpIncoming& operator=(const TcpIncoming&) = delete;

  Bytes private_data() const override { return hello_.data; }
  const std::string& peer() const override { return peer_; }
  std::string called() const override { return called_; }

  void reject(Bytes reason) override {
    if (!socket_) return;
    Answer answer{.kind = Answer::Kind::kReject};
    reason = reason.first(std::min(reason.size(), kRejectDataBytes));
    answer.length = static_cast<std::uint32_t>(reason.size());
    std::ranges::copy(reason, answer.data.begin());
    const SteadyClock clock;
    (void)send_all(socket_.get(), encode(answer), Deadline::after_ms(clock, kAnswerMs));
    socket_.reset();
  }

  Result<std::unique_ptr<Connection>> accept(Queue& queue, const ConnectionOptions& options,
                                             Bytes private_data,
                                             const Deadline& deadline) override {
    auto* const bound = dynamic_cast<TcpQueue*>(&queue);
    RKV_CHECK(bound != nullptr, "the connection and its queue belong to different transports");
    if (private_data.size() > kAcceptDataBytes) {
      return fail(Code::kInvalidArgument,
                  "the private data of the answer to a connection request is at most 196 bytes");
    }
    if (!socket_) return fail(Code::kInvalidArgument, "the request has been answered already");
    RKV_ASSIGN_OR_RETURN(auto room, bound->room().reserve(options.sends_in_flight + 1));
    Answer answer{.length = bound->receive_bytes()};
    std::ranges::copy(private_data, answer.data.begin());
    RKV_RETURN_IF_ERROR(send_all(socket_.get(), encode(answer), deadline));
    Link link{.socket = std::move(socket_),
              .is_accepted = true,
              .peer_data = std::vector<std::byte>(hello_.data.begin(), hello_.data.end()),
              .peer = peer_};
    auto connection =
        std::make_unique<TcpConnection>(*bound, std::move(room), options, std::move(link));
    RKV_RETURN_IF_ERROR(connection->start());
    return std::unique_ptr<Connection>(std::move(connection));
  }

 private:
  Fd socket_;  // empty: answered
  const Hello hello_;
  const std::string peer_;
  const std::string called_;
};

Result<Fd> call_any(const std::string& address, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, deadline));
  Result<Fd> last = fail(Code::kUnreachable, "the name has no address");
  const SteadyClock clock;
  // An address that does not answer must leave time for the others.
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int part_ms = deadline.left_ms() / static_cast<int>(all.size() - i);
    last = call(all[i], Deadline::after_ms(clock, part_ms));
    if (last || deadline.passed()) break;
  }
  return last;
}

}  // namespace

std::unique_ptr<Incoming> make_incoming(Fd socket, const Hello& hello) {
  return std::make_unique<TcpIncoming>(std::move(socket), hello);
}

Result<std::unique_ptr<Connection>> connect(TcpQueue& queue, const ConnectionOptions& options,
                                            const std::string& address, Bytes private_data,
                                            const Deadline& deadline, Rejection* rejection) {
  if (private_data.size() > kRequestDataBytes) {
    return fail(Code::kInvalidArgument,
                "the private data of a connection request is at most 56 bytes");
  }
  RKV_ASSIGN_OR_RETURN(auto room, queue.room().reserve(options.sends_in_flight + 1));
  RKV_ASSIGN_OR_RETURN(Fd socket, call_any(address, deadline));
  Hello hello{.receive_bytes = queue.receive_bytes()};
  std::ranges::copy(private_data, hello.data.begin());
  std::array<std::byte, kAnswerBytes> bytes;
  if (const Status said = send_all(socket.get(), encode(hello), deadline); !said)
    return std::unexpected(said.error());
  if (const Status heard = receive_all(socket.get(), bytes, deadline); !heard) {
    if (heard.error().code == Code::kTimeout) return std::unexpected(heard.error());
    return fail(Code::kUnreachable,
                "the server closed the connection: it is shutting down, accepts no more clients, "
                "or is not a kvserver");
  }
  const auto answer = decode_answer(bytes);
  if (!answer) return fail(Code::kUnreachable, "what listens there is not a kvserver");
  if (answer->version != kVersion) {
    return fail(Code::kVersionMismatch,
                "the server uses another version of TCP: update the older of the two programs");
  }
  if (rejection != nullptr) rejection->called = name_of_peer(socket.get());
  if (answer->kind == Answer::Kind::kReject) {
    if (rejection != nullptr) {
      rejection->length = answer->length;
      std::copy_n(answer->data.begin(), answer->length, rejection->reason);
    }
    return fail(Code::kRejected, "the server refused the connection");
  }
  Link link{.socket = std::move(socket),
            .peer_data = std::vector<std::byte>(answer->data.begin(), answer->data.end()),
            .peer = address};
  auto connection =
      std::make_unique<TcpConnection>(queue, std::move(room), options, std::move(link));
  RKV_RETURN_IF_ERROR(connection->start());
  return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace tcp

bool listens_over_tcp(const std::string& address, const Deadline& deadline) {
  return tcp::call_any(address, deadline).has_value();
}

}  // namespace rkv::rdma
