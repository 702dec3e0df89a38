// Chooses the transport for a server, as ClientOptions request. Only this part of the client knows
// which transports there are.
#pragma once

#include <chrono>

#include "rdma/choose.h"
#include "rkv/options.h"

namespace rkv::client {

// Blocks for `patience`, connect_timeout or timeout at most, whichever is least.
Result<rdma::ClientTransport> choose_transport(const ClientOptions& options,
                                               std::chrono::milliseconds patience);

}  // namespace rkv::client
