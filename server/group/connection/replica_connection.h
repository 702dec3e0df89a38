// ReplicaConnection: sends whole messages (encoding.h) to another replica and receives them, over
// TCP and TLS, or by a lane (lane/README.md) once there is one.
//
//   connection->start({.on_message = ..., .on_end = ...});
//   connection->send(std::make_shared<const std::vector<std::byte>>(encode(hello)));
//
// Invariants:
//  REPCON-1  Messages arrive whole, and in the order of send(), or the connection ends.
//  REPCON-2  on_end is called exactly once, and no other callback follows it. None is called from
//      within a call of this class, nor once the destructor has begun.
//  REPCON-3  A peer's bytes are bounded before memory is allocated for them. The memory of a
//      message that has not arrived whole is at most twice its arrived bytes, plus 64 KiB. Each
//      connection has 16 KiB more.
//  REPCON-4  Messages by the lane are delivered behind all that went over TCP before. The other end
//      takes nothing from the lane before it has read a LaneSwitch. After that it takes only a
//      LaneEnd, or the connection's end, from TCP.
//  REPCON-5  A lane that ends takes no message with it. Each end keeps what it has sent until the
//      other one has certainly taken it from the lane. A LaneEnd says how many messages have come.
//      The others are sent again, over TCP.
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
  // The other end says that it is a replica, and speaks another version. It may not have proved
  // that it knows the secret.
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
    // All messages that had arrived were given to on_message: one answer to all of them is enough.
    // From a backlog of small messages, many come at a time. May be empty.
    std::function<void()> on_delivered = {};
    // The lane has ended, and all goes over TCP again. May be empty.
    std::function<void(std::string why)> on_lane_end = {};
  };

  // Takes a stream whose handshake has succeeded. Nothing is read before start().
  explicit ReplicaConnection(std::unique_ptr<EncryptedStream> stream);
  ~ReplicaConnection();  // closes; no callback follows. May run in a callback
  ReplicaConnection(const ReplicaConnection&) = delete;
  ReplicaConnection& operator=(const ReplicaConnection&) = delete;

  // REQUIRES: called once.
  void start(Callbacks callbacks);
  // Gives the connection to another owner's callbacks, which get the next messages. May be called
  // in a callback. REQUIRES: started.
  void hand_over(Callbacks callbacks);
  // Queues a message, without a copy. After the end it does nothing.
  void send(SharedBytes message);
  void send(std::span<const SharedBytes> messages);
  // Which end changes to a lane first. The end that made the lane knows of it, the other one does
  // not.
  enum class Change : std::uint8_t { kNow, kAfterTheOtherEnd };
  // Changes to this lane when `change` says. Then messages that are not on their way yet, and later
  // ones, go by it. When the lane ends, all goes over TCP again; on_lane_end is called if an end
  // had changed to it. After the end, and while has_lane(), it does nothing. REQUIRES: started.
  void use(std::unique_ptr<ReplicaLane> lane, Change change);
  // Ends the lane, if there is one: all goes over TCP again. on_lane_end is not called here, but
  // may be at the other end.
  void drop_lane();
  // Whether there is a lane. Also true while the ends exchange their LaneEnds.
  bool has_lane() const;
  // All bytes received so far, including those of a message that is not whole yet.
  std::uint64_t received_bytes() const;
  // The bytes of messages that the kernel or the lane has not taken whole.
  std::size_t queued_bytes() const;
  // Ends the connection at once: queued messages are lost. on_end is called later.
  void close();
  const std::string& peer() const;   // HOST:PORT
  const std::string& local() const;  // HOST:PORT of this end

 private:
  class Impl;  // lives until its last handler has run
  std::shared_ptr<Impl> impl_;
};

}  // namespace rkv::server
