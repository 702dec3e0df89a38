#include "server/replica/link_surroundings.h"

#include <fmt/format.h>

#include <cstdint>

#include "common/parse.h"

namespace rkv::server {

std::string replica_address(const std::string& clients) {
  const std::size_t colon = clients.rfind(':');
  const auto port = parse_number<std::uint16_t>(clients.substr(colon + 1), 1, 65534);
  return fmt::format("{}:{}", host_of(clients), port ? *port + 1 : 0);
}

std::string host_of(const std::string& clients) {
  return clients.substr(0, clients.rfind(':'));
}

}  // namespace rkv::server
