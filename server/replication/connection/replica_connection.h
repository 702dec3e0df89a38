// ReplicaConnection: whole messages (encoding.h) to another replica and from it: over TCP and TLS,
// and once there is a lane (lane/README.md), by that.
//
//   connection->start({.on_message = ..., .on_end = ...});
//   connection->send(std::make_shared<const std::vector<std::byte>>(encode(hello)));
//
// Invariants:
//  REPCON-1  A message arrives whole, and in the order of send(); or the connection ends.
//  REPCON-2  on_end is called exactly once, and no other callback follows it. None is called from
//      within a call of this class, nor once the destructor has begun.
//  REPCON-3  A peer's bytes are bounded before memory is allocated for them. The memory of a
//      message that has not arrived whole is at most twice what has arrived of it, and 64 KiB;
//      each connection has 16 KiB more.
//  REPCON-4  What goes by the lane is delivered behind all that went over TCP before: the other end
//      takes nothing from the lane before it has read a LaneSwitch, and nothing but the end from
//      TCP after it.
//
// A message is as long as encoding.h allows, so the next one waits for one message at most.
//
// Thread safety: the thread of the io_context, which must outlive the connection. Nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rkv::server {

struct EncryptedStream;
class ReplicaLane;

// NoConnection: the reason why a connection was not made.
struct NoConnection {
  std::string why;  // a sentence that names the other end
  // The other end says that it is a replica, and speaks another version. It may have proved
  // nothing.
  bool is_of_another_version = false;
};

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
    // What had arrived was given to on_message: one answer to all of it is enough. Of a backlog of
    // small messages many come at a time. May be empty.
    std::function<void()> on_delivered = {};
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
  // Who changes to a lane first. The end that called knows that there is one, the other does not.
  enum class Change : std::uint8_t { kNow, kAfterTheOtherEnd };
  // Sends what is not on its way yet by this lane, and what comes later, once it has changed. From
  // the first change of an end on, the end of the lane is that of the connection; before, the lane
  // is forgotten. After the end, and with a lane, it does nothing. REQUIRES: started.
  void use(std::unique_ptr<ReplicaLane> lane, Change change);
  bool has_lane() const;
  // In all, also of a message that is not whole yet.
  std::uint64_t received_bytes() const;
  // Of messages that the kernel or the lane has not taken whole.
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
