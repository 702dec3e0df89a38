// ReplicaHandshake: the handshake of one connection, which succeeds, fails or is too late.
//
// Thread safety: the thread of the io_context.
#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <expected>
#include <functional>
#include <memory>
#include <string>

#include "server/group/connection/replica_connection.h"
#include "server/group/connection/replica_tls.h"

namespace rkv::server {

class ReplicaHandshake : public std::enable_shared_from_this<ReplicaHandshake> {
 public:
  using Done = std::function<void(std::expected<std::unique_ptr<EncryptedStream>, NoConnection>)>;

  ReplicaHandshake(std::unique_ptr<EncryptedStream> stream, Done done);
  // Calls `done` once, later, after `limit` at the latest.
  void start(std::chrono::steady_clock::duration limit);
  // Fails now, and calls `done`.
  void refuse(std::string why);
  // `done` is not called any more.
  void cancel();

 private:
  void finish(NoConnection failure);  // without a sentence: it has succeeded

  std::unique_ptr<EncryptedStream> stream_;
  asio::steady_timer timer_;
  std::string peer_;
  Done done_;
};

}  // namespace rkv::server
