// Client::connect with options. Only this file of the client chooses a backend.
#include <algorithm>
#include <utility>

#include "client/link/choose.h"
#include "rkv/client.h"

namespace rkv {

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

namespace client {

Result<rdma::ClientTransport> choose_transport(const ClientOptions& options,
                                               std::chrono::milliseconds patience) {
  patience = std::min({patience, options.connect_timeout, options.timeout});
  return rdma::choose_for_client(
      {.kind = kind_of(options.transport),
       .verbs = {.device = options.device,
                 .port = options.port,
                 .gid_index = options.gid_index,
                 .address = options.server,
                 .find_ms = static_cast<int>(std::max(patience.count(), 1L))}});
}

}  // namespace client

Result<Client> Client::connect(const ClientOptions& options, std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(auto chosen, client::choose_transport(options, options.timeout));
  auto client = connect(options, std::shared_ptr<rdma::Transport>(std::move(chosen.transport)),
                        nullptr, refusal);
  if (client) client->set_description(std::move(chosen.reason));
  return client;
}

}  // namespace rkv
