// Two connected queue pairs of one device in one process: the base of examples about other topics.
// loopback.cc shows these steps one by one; two programs connect by address instead
// (connection_manager.cc).
//
//   RKV_ASSIGN_OR_RETURN(Pair pair, Pair::make({.inline_bytes = 64}));
//   Batch batch = pair.client.qp.batch();
#pragma once

#include <rkv/rdma/connect.h>
#include <rkv/rdma/queue_pair.h>

#include <chrono>
#include <cstdio>
#include <vector>

namespace example {

using namespace rkv::rdma;  // an example is short and uses this library only
using namespace std::chrono_literals;
using rkv::Deadline;
using rkv::Result;
using rkv::Status;

inline Deadline soon() {
  return Deadline::in(20s);
}

// The exit code of a program that ended with `status`.
inline int report(const Status& status) {
  if (status) return 0;
  std::fprintf(stderr, "%s\n", rkv::to_string(status.error()).c_str());
  return 1;
}

inline Result<SocketAddress> resolve_one(const HostPort& where) {
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, soon()));
  return all.front();
}
// An address of this machine's first active device, with port 0: a listener gets a free port.
inline Result<SocketAddress> address_of_first_active() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, device.first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, device.routable_gid(port));
  return resolve_one({.host = gid.to_string(), .port = 0});
}

inline constexpr AccessFlags kAll = AccessFlags::kLocalWrite | AccessFlags::kRemoteRead |
                                    AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic;

// The resources of one end: the completion queue and registered memory.
struct Room {
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;

  static Result<Room> make(const ProtectionDomain& pd) {
    RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(pd.device()));
    RKV_ASSIGN_OR_RETURN(CompletionQueue queue,
                         CompletionQueue::create(pd.device(), {.channel = &channel}));
    RKV_ASSIGN_OR_RETURN(MemoryRegion memory, MemoryRegion::allocate(pd, 65536, kAll));
    return Room{std::move(channel), std::move(queue), std::move(memory)};
  }
};
struct End : Room {
  QueuePair qp;
};

// Connects two queue pairs of one device. The first may READ, WRITE and use atomics on the second's
// memory; the second has no rights.
struct Both {
  QueuePair client;
  QueuePair server;
};
inline Result<Both> connect(PreparedQueuePair<> client, PreparedQueuePair<> server) {
  RKV_ASSIGN_OR_RETURN(const std::uint8_t port, client.device().first_active_port());
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, client.device().routable_gid(port));
  RKV_ASSIGN_OR_RETURN(const Endpoint a, client.endpoint(port, gid));
  RKV_ASSIGN_OR_RETURN(const Endpoint b, server.endpoint(port, gid));
  RKV_ASSIGN_OR_RETURN(QueuePair one, std::move(client).handshake(b));
  RKV_ASSIGN_OR_RETURN(QueuePair other, std::move(server).handshake(a, {.remote_access = kAll}));
  return Both{std::move(one), std::move(other)};
}

struct Pair {
  Device device;
  ProtectionDomain pd;
  End client;
  End server;

  static Result<Pair> make(const QueuePairOptions& options = {}) {
    RKV_ASSIGN_OR_RETURN(Device device, Device::open_first_active());
    RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
    RKV_ASSIGN_OR_RETURN(Room a, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(Room b, Room::make(pd));
    RKV_ASSIGN_OR_RETURN(PreparedQueuePair client,
                         QueuePair::create(pd, a.queue, a.queue, options));
    RKV_ASSIGN_OR_RETURN(PreparedQueuePair server,
                         QueuePair::create(pd, b.queue, b.queue, options));
    RKV_ASSIGN_OR_RETURN(Both both, connect(std::move(client), std::move(server)));
    return Pair{std::move(device),
                std::move(pd),
                {std::move(a), std::move(both.client)},
                {std::move(b), std::move(both.server)}};
  }
};

}  // namespace example
