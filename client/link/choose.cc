#include "client/link/choose.h"

#include <algorithm>

namespace rkv::client {

namespace {

rdma::TransportKind kind_of(Transport transport) {
  switch (transport) {
    case Transport::kVerbs:
      return rdma::TransportKind::kVerbs;
    case Transport::kShm:
      return rdma::TransportKind::kShm;
    case Transport::kAuto:
      break;
  }
  return rdma::TransportKind::kAuto;
}

}  // namespace

Result<rdma::ClientTransport> choose_transport(const ClientOptions& options,
                                               std::chrono::milliseconds patience) {
  patience = std::min({patience, options.connect_timeout, options.timeout});
  return rdma::choose_for_client(
      {.kind = kind_of(options.transport),
       .verbs = {.device = options.device,
                 .port = options.port,
                 .gid_index = options.gid_index,
                 .address = options.server.substr(0, options.server.find(',')),
                 .find_ms = static_cast<int>(std::max(patience.count(), 1L))}});
}

}  // namespace rkv::client
