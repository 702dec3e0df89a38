// Selection of the device, port and GID of a transport. Used by open_verbs() and by the code that
// explains the choice to people (rdma/diagnosis/diagnosis.h).
#pragma once

#include <cstdint>

#include "rdma/transport/transport.h"
#include "rkv/rdma/device.h"

namespace rkv::rdma::verbs {

struct Selection {
  Device device;
  std::uint8_t port = 0;
  // The requested GID, else Device::routable_gid(). Connections by address start from the GID of
  // their route unless a GID was requested.
  GidEntry gid;
};
// Blocks for options.find_ms at most. Errors as open_verbs().
Result<Selection> select(const VerbsOptions& options);

}  // namespace rkv::rdma::verbs
