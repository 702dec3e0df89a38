// The transport for a server, as ClientOptions ask for it.
#pragma once

#include "rdma/choose.h"
#include "rkv/options.h"

namespace rkv::client {

// Blocks for connect_timeout at most.
Result<rdma::ClientTransport> choose_transport(const ClientOptions& options);

}  // namespace rkv::client
