// ReplicaConnection: whole messages (encoding.h) to another replica and from it, over TCP and TLS.
//
//   connection->start({.on_message = ..., .on_end = ...});
//   connection->send(std::make_shared<const std::vector<std::byte>>(encode(hello)));
//
// Invariants:
//  REPCON-1  A message arrives whole, and in the order of send(); or the connection ends.
//  REPCON-2  on_end is called exactly once, and no other callback follows it. None is called from
//      within a call of this class, nor once the destructor has begun.
//  REPCON-3  A peer's bytes are bounded before memory is allocated for them. The memory of a
//      message that has not arrived whole is at most twice what has arrived of it, and 64 KiB.
//
// A message is as long as encoding.h allows, so the next one waits for one message at most.
//
// Thread safety: the thread of the io_context, which must outlive the connection. Nothing blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rkv::server {

struct EncryptedStream;

class ReplicaConnection {
 public:
  using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;
  struct Callbacks {
    // A whole message, its head included. Its head has been checked, not its body.
    std::function<void(std::vector<std::byte> message)> on_message;
    // `why`: a sentence that names the other end.
    std::function<void(std::string why)> on_end;
    // queued_bytes() has fallen. May be empty.
    std::function<void()> on_sent = {};
  };

  // Of a stream whose handshake has succeeded. Nothing is read before start().
  explicit ReplicaConnection(std::unique_ptr<EncryptedStream> stream);
  ~ReplicaConnection();  // closes; no callback follows. May run in a callback
  ReplicaConnection(const ReplicaConnection&) = delete;
  ReplicaConnection& operator=(const ReplicaConnection&) = delete;

  // REQUIRES: called once.
  void start(Callbacks callbacks);
  // Gives the connection to another owner's callbacks, which get what comes next. May be called in
  // a callback. REQUIRES: started.
  void hand_over(Callbacks callbacks);
  // Queues a message, without a copy. After the end it does nothing.
  void send(SharedBytes message);
  void send(std::span<const SharedBytes> messages);
  // Of messages that the kernel has not taken whole.
  std::size_t queued_bytes() const;
  // Ends the connection at once: what is queued is lost. on_end is called later.
  void close();
  const std::string& peer() const;   // HOST:PORT
  const std::string& local() const;  // HOST:PORT of this end

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
