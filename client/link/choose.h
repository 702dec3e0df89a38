// Chooses the transport for a server, as ClientOptions request.
#pragma once

#include <chrono>

#include "rdma/choose.h"
#include "rkv/options.h"

namespace rkv::client {

// Blocks for `patience`, connect_timeout or timeout at most, whichever is least.
Result<rdma::ClientTransport> choose_transport(const ClientOptions& options,
                                               std::chrono::milliseconds patience);

}  // namespace rkv::client
