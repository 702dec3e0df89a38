#include "client/link/choose.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/link/servers.h"
#include "rkv/fork.h"

namespace rkv::client {

namespace {

rdma::TransportKind kind_of(Transport transport) {
  switch (transport) {
    case Transport::kVerbs:
      return rdma::TransportKind::kVerbs;
    case Transport::kShm:
      return rdma::TransportKind::kShm;
    case Transport::kTcp:
      return rdma::TransportKind::kTcp;
    case Transport::kAuto:
      break;
  }
  return rdma::TransportKind::kAuto;
}

}  // namespace

Result<ChosenTransport> choose_transport(const ClientOptions& options,
                                         std::chrono::milliseconds patience) {
  patience = std::min({patience, options.connect_timeout, options.timeout});
  std::vector<std::string> servers = Servers::entries(options.server);
  RKV_ASSIGN_OR_RETURN(
      auto chosen,
      rdma::choose_for_client({.kind = kind_of(options.transport),
                               .verbs = {.device = options.device,
                                         .port = options.port,
                                         .gid_index = options.gid_index,
                                         .address = servers.front(),
                                         .find_ms = static_cast<int>(
                                             std::max(patience.count() / 2, 1L))},  // at most twice
                               .servers = std::move(servers)}));
  return ChosenTransport{.transport = ForkOwned<rdma::Transport>(std::move(chosen.transport)),
                         .reason = std::move(chosen.reason)};
}

}  // namespace rkv::client
