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
  bool atomics = false;  // the device has them
  // Work posted in the error state is never flushed there (VerbsConnection).
  bool iwarp = false;
  std::shared_ptr<Roll> queues = std::make_shared<Roll>();
};

// The access flags of a connection: what its peer may do. `atomics`: the device has them.
constexpr AccessFlags grant_flags(Access access, bool atomics) {
  switch (access) {
    case Access::kRemoteRead:
      return AccessFlags::kRemoteRead;
    case Access::kRemoteReadAtomic:
      return AccessFlags::kRemoteRead | (atomics ? AccessFlags::kRemoteAtomic : AccessFlags::kNone);
    case Access::kLocal:
      break;
  }
  return AccessFlags::kNone;
}

// The verbs access flags of a region. Local writes are always allowed, because READ results and
// receives land in regions; remote writes never are. Relaxed ordering never is either: clients
// verify what they READ by versions and checksums.
constexpr AccessFlags region_flags(Access access, bool atomics) {
  return AccessFlags::kLocalWrite | grant_flags(access, atomics);
}

}  // namespace rkv::rdma::verbs
