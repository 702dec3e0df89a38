#include "rkv/rdma/group/node.h"

#include <fmt/format.h>

namespace rkv::rdma {
namespace {

void name_rank(std::string* problem, std::uint32_t rank) {
  if (problem != nullptr) *problem = fmt::format("rank {}", rank);
}

Result<std::vector<Endpoint>> exchange_endpoints(Exchange& exchange,
                                                 const std::vector<PreparedChannel>& mine,
                                                 const Deadline& deadline, std::string* problem) {
  std::vector<Endpoint::Wire> encoded;
  for (const PreparedChannel& channel : mine) {
    RKV_ASSIGN_OR_RETURN(const Endpoint::Wire wire, channel.endpoint().to_bytes());
    encoded.push_back(wire);
  }
  std::vector<Bytes> to_each(exchange.size());
  for (std::uint32_t rank = 0; rank < exchange.size(); ++rank) {
    if (rank == exchange.rank()) continue;
    to_each[rank] = encoded[rank < exchange.rank() ? rank : rank - 1].bytes();
  }
  RKV_ASSIGN_OR_RETURN(const std::vector<Payload> got,
                       exchange.all_to_all(to_each, deadline, problem));
  std::vector<Endpoint> out;
  for (std::uint32_t rank = 0; rank < exchange.size(); ++rank) {
    if (rank == exchange.rank()) continue;
    const Result<Endpoint> one = Endpoint::from_bytes(got[rank]);
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
  // A message to a queue pair that is not connected yet would be lost, so wait for all ranks.
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
      return fail(Code::kCorrupt, "the rank's description of its shared memory is malformed");
    }
    out.push_back(RemoteSpan::from_bytes(
        std::span<const std::byte, RemoteSpan::kWireBytes>(all[from].data(), all[from].size())));
  }
  return out;
}

}  // namespace rkv::rdma
