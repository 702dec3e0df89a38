#include "client/cli/each_server.h"

namespace rkv::cli {

std::vector<std::string> addresses(const Cluster& client) {
  std::vector<std::string> all;
  for (const ShardServer& server : client.map().servers())
    all.push_back(server.address);
  return all;
}

std::string said_by(Cluster& client, std::size_t server, const Error& error) {
  if (exit_code_of(error) == kNoServer || error.code == Code::kTimeout) return {};
  const auto one = client.client_at(server);
  if (!one || (*one)->last_refusal().empty()) return {};
  return fmt::format(" (the server says: {})", (*one)->last_refusal());
}

}  // namespace rkv::cli
