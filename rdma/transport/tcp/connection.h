// TcpConnection: a TCP socket on which both ends send frames (protocol.h).
//
// One thread at a time reads the socket, and holds `in_`. For an accepted connection that is the
// SocketThread, so that a peer's READs are answered whatever the queue's thread does. For a
// connection that this process has opened, it is the queue's thread, with the SocketThread as its
// stand-in.
//
// Invariants:
//  TCPCONN-1  `operations_` holds the posted operations that have not ended, in order. An answer
//      belongs to the oldest READ or atomic, and the messages before that are sent. Operations end
//      in this order. A message ends when the kernel has all of it, so sends_in_flight bounds the
//      operations that wait here.
//  TCPCONN-2  Once the connection is dead, nothing is posted, and nothing is delivered behind
//      kDisconnected. Only a reader ends the connection, and delivers the remaining operations as
//      kFlushed.
//  TCPCONN-3  A peer's input is checked before it has any effect. Input that breaks the protocol
//      ends the connection, and so does one refused READ or atomic. Behind kRefused nothing is
//      sent, and the peer has kLeaves to close its end. An answer to a request that has not been
//      sent yet breaks the protocol: it would end operations before it, whose memory is still to be
//      sent.
//  TCPCONN-4  Locks are taken in this order: in_, out_, state_, then the queue's or a Regions'.
//  TCPCONN-5  Once abort() has returned, no atomic of the peer changes memory.
//
// Thread safety: as Connection.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "rdma/transport/socket_at_fork.h"
#include "rdma/transport/tcp/out_stream.h"
#include "rdma/transport/tcp/queue.h"

namespace rkv::rdma::tcp {

// A socket whose two ends have agreed to be connected.
struct Link {
  Fd socket{};
  bool is_accepted = false;
  std::vector<std::byte> peer_data{};
  std::string peer{};
};

class TcpConnection final : public Connection, private Watched {
 public:
  static constexpr Nanos kLeaves = kNanosPerSecond;
  // If nothing more of a begun message comes for this long, the connection ends: the message
  // occupies a receive buffer.
  static constexpr Nanos kMessagePauses = 10 * kNanosPerSecond;

  TcpConnection(TcpQueue& queue, CompletionReserve::Reservation room,
                const ConnectionOptions& options, Link link);
  ~TcpConnection() override;
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // Call once. kBusy: the system has no descriptor left.
  Status start();

  Result<std::size_t> post(std::span<const Operation> batch) override;
  ConnectionLimits limits() const override;
  Bytes private_data() const override { return link_.peer_data; }
  const std::string& peer() const override { return link_.peer; }
  bool alive() const override { return !is_dead_.load() && !is_aborted_.load(); }
  std::uint64_t bytes_passed() const override;
  void abort() override;

  // ---- for TcpQueue, on its thread

  // Reads the bytes that have come. Returns false if the connection is dead, and need not be looked
  // at again.
  bool look();
  void buffer_came_back();
  void polled() { in_use_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  enum class Expects : std::uint8_t {
    kHeader,
    kRoom,     // for the answer to the next request
    kBuffer,   // for the next message
    kPayload,  // the rest of a message, or of the answer to a READ or an atomic
    kLeave,    // nothing but the end
  };
  struct Posted {
    Operation::Kind kind = Operation::Kind::kRead;
    bool signaled = true;
    MutableBytes local{};
    std::uint64_t context = 0;
    std::uint64_t end = 0;  // it is sent when the stream has sent this many bytes
  };

  void on_socket() override;
  std::uint64_t looks() const override { return queue_.looks(); }

  // ---- reading
  void read() RKV_REQUIRES(in_);
  bool waits_in_vain() const RKV_REQUIRES(in_);
  bool take_what_is_there() RKV_REQUIRES(in_);
  bool receive(std::size_t* taken, bool* is_empty) RKV_REQUIRES(in_);
  bool take_frames() RKV_REQUIRES(in_);
  bool begin(const Header& header, const std::byte* fixed) RKV_REQUIRES(in_);
  bool begin_message() RKV_REQUIRES(in_);
  bool begin_answer() RKV_REQUIRES(in_);
  bool take_refusal() RKV_REQUIRES(in_);
  bool is_message_stuck() RKV_REQUIRES(in_);
  bool answer_read(const Target& target, std::uint32_t length) RKV_REQUIRES(in_);
  bool change_word(Kind kind, const AtomicRequest& request) RKV_REQUIRES(in_);
  void take_payload(std::size_t bytes) RKV_REQUIRES(in_);
  void end_payload() RKV_REQUIRES(in_);
  void flush_answers() RKV_REQUIRES(in_);
  void end() RKV_REQUIRES(in_);

  // ---- writing
  void add(const Operation& operation) RKV_REQUIRES(out_);
  bool has_room_for_answers() RKV_REQUIRES(in_);
  void refuse() RKV_REQUIRES(in_, out_);
  OutStream::Flushed flush() RKV_REQUIRES(out_);
  void watch() RKV_REQUIRES(out_);
  void break_off();

  // ---- what was posted
  Posted* oldest_request() RKV_REQUIRES(out_, state_);
  void end_oldest(Completion::Status status) RKV_REQUIRES(state_);
  void end_request() RKV_REQUIRES(state_);
  void end_sent() RKV_REQUIRES(state_);
  Posted& at(std::uint64_t number) RKV_REQUIRES(state_) {
    return operations_[number & (operations_.size() - 1)];
  }

  TcpQueue& queue_;
  const std::shared_ptr<Shared> shared_;
  const CompletionReserve::Reservation room_;
  const ConnectionOptions options_;
  const Link link_;
  std::uint64_t number_ = 0;  // with the SocketThread
  bool is_started_ = false;
  std::atomic<bool> is_dead_{false};
  std::atomic<bool> is_aborted_{false};
  std::atomic<std::uint32_t> in_use_{0};  // operations that were posted and not polled

  Mutex in_;
  Expects expects_ RKV_GUARDED_BY(in_) = Expects::kHeader;
  Header header_ RKV_GUARDED_BY(in_){};
  MutableBytes payload_ RKV_GUARDED_BY(in_){};  // destination of the rest of the frame
  std::optional<std::uint32_t> message_buffer_ RKV_GUARDED_BY(in_){};
  std::vector<std::byte> input_ RKV_GUARDED_BY(in_);
  std::size_t input_begin_ RKV_GUARDED_BY(in_) = 0;
  std::size_t input_end_ RKV_GUARDED_BY(in_) = 0;
  std::uint64_t messages_ RKV_GUARDED_BY(in_) = 0;  // number of messages that have begun
  std::atomic<std::uint64_t> received_{0};          // bytes; written with in_
  // For is_message_stuck(): when to look next, and the message under way at the last look.
  Nanos watched_until_ RKV_GUARDED_BY(in_) = 0;
  std::uint64_t watched_message_ RKV_GUARDED_BY(in_) = 0;
  std::size_t watched_left_ RKV_GUARDED_BY(in_) = 0;

  mutable Mutex out_;
  OutStream stream_ RKV_GUARDED_BY(out_);
  std::atomic<Nanos> leaves_at_{0};  // until when the peer may leave after a refusal; 0: none
  std::uint32_t events_ RKV_GUARDED_BY(out_) =
      EPOLLIN | EPOLLERR;                             // the socket is watched for them
  std::atomic<std::uint32_t> input_events_{EPOLLIN};  // those needed to continue reading

  Mutex state_;
  std::vector<Posted> operations_ RKV_GUARDED_BY(state_);  // a ring
  std::uint64_t oldest_ RKV_GUARDED_BY(state_) = 0;
  std::uint64_t posted_ RKV_GUARDED_BY(state_) = 0;
  std::uint64_t sent_ RKV_GUARDED_BY(state_) = 0;  // bytes sent by the stream, as noted last

  const SocketAtFork at_fork_{link_.socket.get()};
};

}  // namespace rkv::rdma::tcp
