// What the links between replicas (primary_link.h, backup_links.h) work on, and what both need.
#pragma once

#include <asio/io_context.hpp>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "server/replication/connection/group_secret.h"
#include "server/replication/connection/replica_connection.h"
#include "server/replication/encoding.h"
#include "server/replication/lane/lane_transports.h"
#include "server/replication/membership.h"

namespace rkv::server {

// All of it outlives the links.
struct LinkSurroundings {
  asio::io_context& io;
  const Clock& clock;
  Membership& membership;
  const Replica& me;
  const std::string& data_dir;
  const GroupSecret& secret;
  LaneTransports lanes{};  // none: all goes over TCP
};

// Where a replica listens for others, of the address that it has for clients: the port above.
std::string replica_address(const std::string& clients);
// The host of that address.
std::string host_of(const std::string& clients);

template <class Message>
ReplicaConnection::SharedBytes encoded(const Message& message) {
  return std::make_shared<const std::vector<std::byte>>(encode(message));
}

}  // namespace rkv::server
