#include "server/group/replica/link_surroundings.h"

#include <fmt/format.h>

#include "common/parse.h"

namespace rkv::server {

std::string replica_address(const std::string& clients) {
  return fmt::format("{}:{}", host_of(clients), replica_port(clients));
}

std::uint16_t replica_port(const std::string& clients) {
  const auto port = parse_number<std::uint16_t>(clients.substr(clients.rfind(':') + 1), 1, 65534);
  return port ? static_cast<std::uint16_t>(*port + 1) : 0;
}

std::string host_of(const std::string& clients) {
  return clients.substr(0, clients.rfind(':'));
}

bool is_to_itself(const ReplicaConnection& connection, std::uint16_t own_port) {
  const std::string& peer = connection.peer();
  const std::size_t colon = peer.rfind(':');
  return peer.substr(colon + 1) == std::to_string(own_port) &&
         connection.local().starts_with(peer.substr(0, colon + 1));
}

}  // namespace rkv::server
