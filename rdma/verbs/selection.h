// Which device, port and GID a transport uses. open_verbs() asks here, and so does what explains
// the choice to people (rdma/diagnosis.h).
#pragma once

#include <cstdint>

#include "rdma/transport.h"
#include "rkv/rdma/device.h"

namespace rkv::rdma::verbs {

struct Selection {
  Device device;
  std::uint8_t port = 0;
  // The one asked for, else Device::routable_gid(). Connections by address start from the GID of
  // their route unless one was asked for.
  GidEntry gid;
};
// Blocks for options.find_ms at most. As open_verbs().
Result<Selection> select(const VerbsOptions& options);

}  // namespace rkv::rdma::verbs
