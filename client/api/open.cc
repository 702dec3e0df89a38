// Client::connect with options.
#include <utility>

#include "client/link/choose.h"
#include "rkv/client.h"

namespace rkv {

Result<Client> Client::connect(const ClientOptions& options, std::string* refusal) {
  RKV_ASSIGN_OR_RETURN(auto chosen, client::choose_transport(options, options.timeout));
  auto client = connect(options, std::move(chosen.transport), nullptr, refusal);
  if (client) client->set_description(std::move(chosen.reason));
  return client;
}

}  // namespace rkv
