// The objects that both kinds of links between replicas (primary_link.h, backup_links.h) work on.
#pragma once

#include <asio/io_context.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/group/connection/group_secret.h"
#include "server/group/connection/replica_connection.h"
#include "server/group/lane/lane_transports.h"
#include "server/group/rules/encoding.h"
#include "server/group/rules/membership.h"

namespace rkv::server {

// All members outlive the links.
struct LinkSurroundings {
  asio::io_context& io;
  const Clock& clock;
  Membership& membership;
  const Replica& me;
  const std::string& data_dir;
  const GroupSecret& secret;
  LaneTransports lanes{};  // none: all goes over TCP
};

// Returns the address at which a replica listens for others: its address for clients, with the next
// higher port.
std::string replica_address(const std::string& clients);
// Returns that port alone; 0: `clients` is not an address.
std::uint16_t replica_port(const std::string& clients);
// Returns the host of that address.
std::string host_of(const std::string& clients);
// Whether the other end is this process, which listens at that port. A connection within a host has
// the same address at both ends.
bool is_to_itself(const ReplicaConnection& connection, std::uint16_t own_port);

template <class Message>
ReplicaConnection::SharedBytes encoded(const Message& message) {
  return std::make_shared<const std::vector<std::byte>>(encode(message));
}

}  // namespace rkv::server
