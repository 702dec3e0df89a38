// What the parts of one verbs transport have in common. Kept alive by every region, queue and
// connection made from it.
#pragma once

#include <optional>
#include <string>

#include "rdma/transport.h"
#include "rdma/verbs/anchor.h"
#include "rdma/verbs/roll.h"
#include "rkv/rdma/connect.h"

namespace rkv::rdma::verbs {

struct Shared {
  // First, so that it goes last: librdmacm closes the context of a device that was removed when
  // the last of its ids ends.
  std::shared_ptr<Anchor> anchor;
  Device device;
  ProtectionDomain pd;
  std::uint8_t port = 0;
  GidEntry gid;
  std::optional<SocketAddress> source;  // where a GID was chosen: its address
  std::string description;
  std::shared_ptr<Roll> queues = std::make_shared<Roll>();
};

// What a region's access means to the device. Local writes are always allowed, since READ results
// and receives land in regions; remote writes never are.
constexpr AccessFlags region_flags(Access access) {
  switch (access) {
    case Access::kRemoteRead:
      return AccessFlags::kLocalWrite | AccessFlags::kRemoteRead;
    case Access::kRemoteReadAtomic:
      return AccessFlags::kLocalWrite | AccessFlags::kRemoteRead | AccessFlags::kRemoteAtomic;
    case Access::kLocal:
      break;
  }
  return AccessFlags::kLocalWrite;
}

// What a peer may do over a connection.
constexpr AccessFlags grant_flags(Access access) {
  switch (access) {
    case Access::kRemoteRead:
      return AccessFlags::kRemoteRead;
    case Access::kRemoteReadAtomic:
      return AccessFlags::kRemoteRead | AccessFlags::kRemoteAtomic;
    case Access::kLocal:
      break;
  }
  return AccessFlags::kNone;
}

}  // namespace rkv::rdma::verbs
