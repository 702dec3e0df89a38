// ReplicaConnector: makes a connection to another replica: name, TCP, handshake.
//
//   auto connector = ReplicaConnector::connect(io, "n2.example.org:7472", secret, 2s, done);
//
// Thread safety: the thread of the io_context, which must outlive the connector. Nothing blocks,
// except that resolving a name delays the destructor of the io_context: Asio resolves on a thread
// of its own, as the C library blocks meanwhile.
#pragma once

#include <chrono>
#include <expected>
#include <functional>
#include <memory>
#include <string>

#include "server/group/connection/group_secret.h"
#include "server/group/connection/replica_connection.h"

namespace asio {
class io_context;
}

namespace rkv::server {

class ReplicaConnector {
 public:
  // The connection, not started yet.
  using Outcome = std::expected<std::unique_ptr<ReplicaConnection>, NoConnection>;
  using Done = std::function<void(Outcome)>;

  // Begins to connect to `address`, HOST:PORT. `done` is called once, later, after `limit` at the
  // latest. The handshake may take at most kHandshakeLimit of that.
  static std::unique_ptr<ReplicaConnector> connect(asio::io_context& io, const std::string& address,
                                                   const GroupSecret& secret,
                                                   std::chrono::steady_clock::duration limit,
                                                   Done done);
  ~ReplicaConnector();  // `done` is not called any more. May run in it
  ReplicaConnector(const ReplicaConnector&) = delete;
  ReplicaConnector& operator=(const ReplicaConnector&) = delete;

 private:
  class Impl;  // lives until its last handler has run
  explicit ReplicaConnector(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
