#include "server/replica/link_surroundings.h"

#include <fmt/format.h>

#include <cstdint>

#include "common/parse.h"

namespace rkv::server {

std::string replica_address(const std::string& clients) {
  const std::size_t colon = clients.rfind(':');
  const auto port = parse_number<std::uint16_t>(clients.substr(colon + 1), 1, 65534);
  return fmt::format("{}:{}", clients.substr(0, colon), port ? *port + 1 : 0);
}

}  // namespace rkv::server
