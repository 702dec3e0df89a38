#include "rkv/rdma/group/node.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace rkv::rdma {
namespace {

void name_rank(std::string* problem, std::uint32_t rank) {
  if (problem != nullptr) *problem = fmt::format("rank {}", rank);
}

// The endpoint as it travels between ranks of one version of this library: numbers big-endian.
constexpr std::size_t kEndpointBytes = 4 + 4 + 1 + 2 + 16 + 4 + 1 + 1 + 2;

class Writer {
 public:
  explicit Writer(std::byte* to) : at_(to) {}
  template <class T>
  void number(T value) {
    for (int shift = 8 * (static_cast<int>(sizeof value) - 1); shift >= 0; shift -= 8)
      *at_++ = static_cast<std::byte>(value >> shift);
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* from) : at_(from) {}
  template <class T>
  T number() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i)
      value = static_cast<T>(value << 7 << 1 | std::to_integer<T>(*at_++));
    return value;
  }

 private:
  const std::byte* at_;
};

std::array<std::byte, kEndpointBytes> to_bytes(const Endpoint& endpoint) {
  std::array<std::byte, kEndpointBytes> out;
  Writer to(out.data());
  to.number(endpoint.qp_num);
  to.number(endpoint.packet_sequence.number());
  to.number(static_cast<std::uint8_t>(endpoint.link_layer));
  to.number(endpoint.lid);
  for (const std::uint8_t byte : endpoint.gid)
    to.number(byte);
  to.number(static_cast<std::uint32_t>(bytes_of(endpoint.mtu)));
  to.number(endpoint.depths.initiator);
  to.number(endpoint.depths.responder);
  to.number(std::uint16_t{0});
  return out;
}

Result<Endpoint> from_bytes(Bytes bytes) {
  if (bytes.size() != kEndpointBytes) return fail(Code::kCorrupt, "an endpoint of another length");
  Reader from(bytes.data());
  Endpoint out;
  out.qp_num = from.number<std::uint32_t>();
  const auto sequence = PacketSequence::make(from.number<std::uint32_t>());
  const auto layer = from.number<std::uint8_t>();
  out.lid = from.number<std::uint16_t>();
  for (std::uint8_t& byte : out.gid)
    byte = from.number<std::uint8_t>();
  const auto mtu = mtu_of_bytes(from.number<std::uint32_t>());
  out.depths.initiator = from.number<std::uint8_t>();
  out.depths.responder = from.number<std::uint8_t>();
  if (!sequence || !mtu || layer < 1 || layer > 2 || from.number<std::uint16_t>() != 0) {
    return fail(Code::kCorrupt, "an endpoint that cannot be");
  }
  out.packet_sequence = *sequence;
  out.mtu = *mtu;
  out.link_layer = static_cast<LinkLayer>(layer);
  return out;
}

Result<std::vector<Endpoint>> exchange_endpoints(Exchange& exchange,
                                                 const std::vector<PreparedChannel>& mine,
                                                 const Deadline& deadline, std::string* problem) {
  std::vector<std::array<std::byte, kEndpointBytes>> encoded;
  for (const PreparedChannel& channel : mine)
    encoded.push_back(to_bytes(channel.endpoint()));
  std::vector<Bytes> to_each(exchange.size());
  for (std::uint32_t rank = 0; rank < exchange.size(); ++rank) {
    if (rank != exchange.rank()) to_each[rank] = encoded[rank < exchange.rank() ? rank : rank - 1];
  }
  RKV_ASSIGN_OR_RETURN(const std::vector<Payload> got,
                       exchange.all_to_all(to_each, deadline, problem));
  std::vector<Endpoint> out;
  for (std::uint32_t rank = 0; rank < exchange.size(); ++rank) {
    if (rank == exchange.rank()) continue;
    const Result<Endpoint> one = from_bytes(got[rank]);
    if (!one) {
      name_rank(problem, rank);
      return std::unexpected(one.error());
    }
    out.push_back(*one);
  }
  return out;
}

}  // namespace

Node::Node(const ProtectionDomain& pd, Exchange exchange, std::vector<Channel> peers)
    : pd_(std::make_unique<ProtectionDomain>(pd.share())),
      exchange_(std::make_unique<Exchange>(std::move(exchange))),
      peers_(std::make_unique<MultiChannel>(std::move(peers))) {}

Result<Node> Node::join(const ProtectionDomain& pd, const Cluster& cluster, std::uint32_t rank,
                        const Deadline& deadline, const NodeOptions& options,
                        std::string* problem) {
  RKV_RETURN_IF_ERROR(cluster.check_self(rank));
  RKV_ASSIGN_OR_RETURN(ExchangeListener listener, ExchangeListener::open(cluster[rank], deadline));
  return join(pd, cluster, rank, std::move(listener), deadline, options, problem);
}

Result<Node> Node::join(const ProtectionDomain& pd, const Cluster& cluster, std::uint32_t rank,
                        ExchangeListener listener, const Deadline& deadline,
                        const NodeOptions& options, std::string* problem) {
  RKV_RETURN_IF_ERROR(cluster.check_self(rank));
  std::vector<PreparedChannel> prepared;
  for (std::uint32_t peer = 0; peer + 1 < cluster.size(); ++peer) {
    RKV_ASSIGN_OR_RETURN(PreparedChannel one, PreparedChannel::create(pd, options.channel));
    prepared.push_back(std::move(one));
  }
  RKV_ASSIGN_OR_RETURN(Exchange exchange, Exchange::connect(cluster, rank, std::move(listener),
                                                            deadline, options.exchange, problem));
  RKV_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints,
                       exchange_endpoints(exchange, prepared, deadline, problem));
  std::vector<Channel> channels;
  for (std::size_t peer = 0; peer < prepared.size(); ++peer) {
    Result<Channel> channel = std::move(prepared[peer]).connect(endpoints[peer], options.link);
    if (!channel) {
      name_rank(problem, static_cast<std::uint32_t>(peer < rank ? peer : peer + 1));
      return std::unexpected(channel.error());
    }
    channels.push_back(std::move(*channel));
  }
  // What is sent to a queue pair that is not connected yet would be lost.
  RKV_RETURN_IF_ERROR(exchange.meet(deadline, problem));
  return Node(pd, std::move(exchange), std::move(channels));
}

std::uint32_t Node::peer_of(std::uint32_t other) const {
  RKV_CHECK(other < size() && other != rank(), "no channel leads to that rank");
  return other < rank() ? other : other - 1;
}

Result<std::vector<RemoteSpan>> Node::share(const RemoteSpan& mine, const Deadline& deadline,
                                            std::string* problem) {
  const auto bytes = mine.to_bytes();
  RKV_ASSIGN_OR_RETURN(const std::vector<Payload> all,
                       exchange_->all_gather(bytes, deadline, problem));
  std::vector<RemoteSpan> out;
  for (std::uint32_t from = 0; from < all.size(); ++from) {
    if (all[from].size() != RemoteSpan::kWireBytes) {
      name_rank(problem, from);
      return fail(Code::kCorrupt, "shared memory in another form");
    }
    out.push_back(RemoteSpan::from_bytes(
        std::span<const std::byte, RemoteSpan::kWireBytes>(all[from].data(), all[from].size())));
  }
  return out;
}

}  // namespace rkv::rdma
