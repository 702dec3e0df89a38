// The transport for a server, as ClientOptions ask for it.
#pragma once

#include <chrono>

#include "rdma/choose.h"
#include "rkv/options.h"

namespace rkv::client {

// Blocks for `patience` at most, nor longer than connect_timeout or timeout.
Result<rdma::ClientTransport> choose_transport(const ClientOptions& options,
                                               std::chrono::milliseconds patience);

}  // namespace rkv::client
