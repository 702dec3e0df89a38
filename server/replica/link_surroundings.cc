#include "server/replica/link_surroundings.h"

#include <fmt/format.h>

#include <cstdint>

#include "common/parse.h"

namespace rkv::server {

namespace {

// The one above the clients'; 0: there is none.
std::uint16_t replica_port(const std::string& clients) {
  const auto port = parse_number<std::uint16_t>(clients.substr(clients.rfind(':') + 1), 1, 65534);
  return port ? static_cast<std::uint16_t>(*port + 1) : std::uint16_t{0};
}

}  // namespace

std::string replica_address(const std::string& clients) {
  return fmt::format("{}:{}", host_of(clients), replica_port(clients));
}

std::string host_of(const std::string& clients) {
  return clients.substr(0, clients.rfind(':'));
}

LaneListener::Address lane_address(const std::string& clients) {
  return {.host = host_of(clients), .shm_port = replica_port(clients)};
}

}  // namespace rkv::server
