// One process of a group: its rank, and a channel to every other rank.
//
//   RKV_ASSIGN_OR_RETURN(Cluster cluster, Cluster::load("cluster.txt"));
//   RKV_ASSIGN_OR_RETURN(Node node, Node::join(pd, cluster, rank, deadline));
//   RKV_RETURN_IF_ERROR(node.channel(0).send(message, deadline));
//   RKV_ASSIGN_OR_RETURN(std::vector<RemoteSpan> tables, node.share(region.remote(), deadline));
//
// join() exchanges endpoints over TCP (exchange.h), connects a queue pair with each rank, and
// returns when all ranks have done so. So a message sent right after join() is not lost. All ranks
// call join(), share() and the other collective operations in the same order.
//
// Thread safety: one thread at a time, the channels included.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rkv/export.h"
#include "rkv/rdma/group/exchange.h"
#include "rkv/rdma/group/multi_channel.h"

namespace rkv::rdma {

struct NodeOptions {
  ChannelOptions channel = {};
  // `remote_access` is the upper limit of the peers' rights. The access flags of each region
  // restrict them further.
  ConnectionParameters link = {.remote_access = AccessFlags::kRemoteRead |
                                                AccessFlags::kRemoteWrite |
                                                AccessFlags::kRemoteAtomic};
  ExchangeOptions exchange = {};
};

class RKV_EXPORT Node {
 public:
  // Opens a port at the cluster's address of `rank`, or takes a port that is already open. Blocks.
  // Errors are those of the exchange and of creating channels; `problem`, if not null, names the
  // rank.
  static Result<Node> join(const ProtectionDomain& pd, const Cluster& cluster, std::uint32_t rank,
                           const Deadline& deadline, const NodeOptions& options = {},
                           std::string* problem = nullptr);
  static Result<Node> join(const ProtectionDomain& pd, const Cluster& cluster, std::uint32_t rank,
                           ExchangeListener listener, const Deadline& deadline,
                           const NodeOptions& options = {}, std::string* problem = nullptr);

  std::uint32_t rank() const { return exchange_->rank(); }
  std::uint32_t size() const { return exchange_->size(); }
  const ProtectionDomain& domain() const { return *pd_; }
  // REQUIRES: `rank` is another rank of the group.
  Channel& channel(std::uint32_t rank) { return (*peers_)[peer_of(rank)]; }
  // All other ranks in rank order: a rank below this one has its rank as index, a rank above has
  // its rank minus one.
  MultiChannel& peers() { return *peers_; }
  std::uint32_t peer_of(std::uint32_t rank) const;
  std::uint32_t rank_of(std::uint32_t peer) const { return peer < rank() ? peer : peer + 1; }

  // Collective. Returns the span that each rank shares, by rank. Blocks. Errors are those of
  // Exchange::all_gather().
  Result<std::vector<RemoteSpan>> share(const RemoteSpan& mine, const Deadline& deadline,
                                        std::string* problem = nullptr);
  Exchange& exchange() { return *exchange_; }

 private:
  Node(const ProtectionDomain& pd, Exchange exchange, std::vector<Channel> peers);
  // Behind pointers, so that a Node may be moved while one of its Barriers lives.
  std::unique_ptr<ProtectionDomain> pd_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<MultiChannel> peers_;
};

}  // namespace rkv::rdma
