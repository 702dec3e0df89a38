// Client::connect over verbs: the only place of the client that names a backend.
#include <utility>

#include "rdma/transport.h"
#include "rkv/client.h"

namespace rkv {

Result<Client> Client::connect(const ClientOptions& options, std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(auto transport, rdma::open_verbs({.device = options.device,
                                                         .port = options.port,
                                                         .gid_index = options.gid_index,
                                                         .address = options.server}));
  return connect(options, std::shared_ptr<rdma::Transport>(std::move(transport)), nullptr, refusal);
}

}  // namespace rkv
