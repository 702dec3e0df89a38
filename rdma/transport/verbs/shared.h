// State that the parts of a verbs transport share. Every region, queue and connection created from
// the transport keeps it alive.
#pragma once

#include <optional>
#include <string>

#include "rdma/transport/transport.h"
#include "rdma/transport/verbs/anchor.h"
#include "rdma/transport/verbs/roll.h"
#include "rkv/rdma/connect.h"

namespace rkv::rdma::verbs {

struct Shared {
  // First member, so that it is destroyed last: librdmacm closes the context of a removed device
  // when the last of its ids ends.
  std::shared_ptr<Anchor> anchor;
  Device device;
  ProtectionDomain pd;
  std::uint8_t port = 0;
  GidEntry gid;
  std::optional<SocketAddress> source;  // the address of the requested GID, if any
  std::string description;
  std::shared_ptr<Roll> queues = std::make_shared<Roll>();
};

// The verbs access flags of a region. Local writes are always allowed, because READ results and
// receives land in regions; remote writes never are.
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

// The access flags of a connection: what its peer may do.
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
