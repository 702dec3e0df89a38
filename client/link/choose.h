// Chooses the transport for a server according to ClientOptions. Only this part of the client knows
// which transports there are.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "rdma/choose.h"
#include "rkv/options.h"

namespace rkv::client {

struct ChosenTransport {
  // In a forked child its last owner does not destroy it (FORK-2).
  std::shared_ptr<rdma::Transport> transport;
  std::string reason;
};
// Blocks for `patience`, connect_timeout or timeout at most, whichever is least.
Result<ChosenTransport> choose_transport(const ClientOptions& options,
                                         std::chrono::milliseconds patience);

}  // namespace rkv::client
