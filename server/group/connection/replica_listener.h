// ReplicaListener: takes connections from other replicas, and hands over those whose handshake has
// succeeded.
//
// At most kMaxHandshakes are under way. One more ends the oldest of them. So a stranger that opens
// connections without a handshake cannot keep out a replica, which needs two round trips only.
//
// Thread safety: the thread of the io_context, which must outlive the listener.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rkv/result.h"
#include "server/group/connection/group_secret.h"
#include "server/group/connection/replica_connection.h"

namespace asio {
class io_context;
}

namespace rkv::server {

// How long a handshake may take.
inline constexpr std::chrono::milliseconds kHandshakeLimit{2000};

class ReplicaListener {
 public:
  static constexpr std::size_t kMaxHandshakes = 64;
  struct Callbacks {
    std::function<void(std::unique_ptr<ReplicaConnection>)> on_connection;
    // A sentence for the log. A stranger can cause as many as it likes. May be empty.
    std::function<void(const std::string& why)> on_refusal = {};
  };

  // Listens on `address`, HOST:PORT. Port 0 takes any free port. A name is resolved, which may
  // block. On failure `*problem` is a sentence that names the address and says what to do.
  static Result<std::unique_ptr<ReplicaListener>> listen(
      asio::io_context& io, const std::string& address, const GroupSecret& secret,
      Callbacks callbacks, std::string* problem,
      std::chrono::milliseconds handshake_limit = kHandshakeLimit);
  ~ReplicaListener();  // ends handshakes; no callback follows
  ReplicaListener(const ReplicaListener&) = delete;
  ReplicaListener& operator=(const ReplicaListener&) = delete;

  std::uint16_t port() const;
  std::size_t handshakes() const;  // under way

 private:
  class Impl;  // lives until its last handler has run
  explicit ReplicaListener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
