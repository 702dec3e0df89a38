// ShmConnection: one link between two processes, bound to a ShmQueue.
//
// post() performs READs and atomics itself, on the mapping of the server's region. If the server
// READs, post() uses a system call on the client's memory instead (peer_regions.h). post() copies
// messages into the ring to the peer. If the ring is full, the message waits in `pending_` until a
// later poll(). Everything posted after it waits behind it, so that operations complete in the
// order posted.
//
// Only the connecting side has atomics: a server never maps memory that a client created.
//
// End of a connection: refused work, garbage, abort() and the destructor make it kDead. Pending
// operations are flushed, then kDisconnected is reported. If the peer has left (kPeerLeft), the
// messages that it had published are delivered first.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "rdma/transport/shm/peer_regions.h"
#include "rdma/transport/shm/queue.h"
#include "rdma/transport/shm/reaper.h"
#include "rdma/transport/shm/ring.h"
#include "rdma/transport/socket_at_fork.h"

namespace rkv::rdma::shm {

// The result of a handshake; see protocol.h.
struct Link {
  PeerSocket socket{};
  bool passive = false;        // this side accepted the connection
  Mapping memory{};            // of the rings
  Mapping peer_page{};         // page of the server's queue; empty if passive
  HostView host{};             // empty if passive
  RegionTable regions{};       // empty if passive
  PeerRegions peer_regions{};  // passive only: the client's regions that we may READ
  std::uint64_t to_server_bytes = 0;
  std::uint64_t to_client_bytes = 0;
  std::uint64_t peer_receive_bytes = 0;
  std::vector<std::byte> peer_data{};
  std::string peer{};
};

class ShmConnection final : public Connection {
 public:
  // A connection's entries in its queue; make() fails with kBusy if there are too few. Held by the
  // handshake, then by the connection.
  class Reservation {
   public:
    static Result<Reservation> make(ShmQueue& queue, const ConnectionOptions& options);
    ShmQueue& queue() const { return *queue_; }

   private:
    Reservation(ShmQueue& queue, CompletionReserve::Reservation room)
        : queue_(&queue), room_(std::move(room)) {}
    ShmQueue* queue_;
    CompletionReserve::Reservation room_;
  };

  ShmConnection(Reservation reservation, const ConnectionOptions& options, Link link);
  ~ShmConnection() override;
  ShmConnection(const ShmConnection&) = delete;
  ShmConnection& operator=(const ShmConnection&) = delete;
  // Call once, when the connection is complete.
  void attach();

  Result<std::size_t> post(std::span<const Operation> batch) override;
  bool read_at_once(MutableBytes to, std::uint64_t remote_address,
                    std::uint32_t remote_key) override;
  void prefetch(std::uint64_t remote_address, std::uint32_t remote_key,
                std::size_t length) override;
  ConnectionLimits limits() const override { return limits_; }
  Bytes private_data() const override { return link_.peer_data; }
  const std::string& peer() const override { return link_.peer; }
  bool alive() const override { return alive_.load(std::memory_order_relaxed); }
  void abort() override;

  // For ShmQueue, on its thread.
  enum class Ending : std::uint8_t { kNone, kPeerLeft, kDead };
  int socket() const { return link_.socket.get(); }
  // Delivers received messages and executes pending operations. Returns how many completions it put
  // into `out`.
  std::size_t advance(std::span<Completion> out);
  bool can_advance();
  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  void polled() { --unpolled_; }
  void read_socket();
  void end(Ending how);
  void tell_sleeping(std::uint64_t value) const;

 private:
  enum class Done : std::uint8_t { kYes, kNotYet, kRefused, kFailed };
  LinkHeader& header() const { return *link_.memory.as<LinkHeader>(); }
  Done execute(const Operation& operation);
  Done execute_send(const Operation& operation);
  Done execute_remote(const Operation& operation);
  Done execute_peer_read(const Operation& operation);
  std::byte* find_remote(const Operation& operation, std::uint64_t bytes);
  void report(const Operation& operation, Completion::Status status);
  void fail(const Operation& operation, Done how, std::span<const Operation> behind);
  void hold(const Operation& operation);
  void advance_pending();
  std::size_t receive(std::span<Completion> out);
  void report_end();
  void wake_peer();
  void read_news();
  void read_peer_news(int packets_max, int region_packets_max);
  bool take_peer_packet(bool* has_regions);
  void say_goodbye(const char* why);

  Reservation reservation_;
  ShmQueue* queue_;
  ConnectionLimits limits_;
  Link link_;
  RingWriter out_;
  RingReader in_;
  std::uint64_t regions_gone_ = 0;  // as last seen; see HostPage
  const std::uint64_t* peer_sleeps_;
  std::uint64_t woken_sleep_ = 0;  // the last sleep of the peer that this side ended

  std::vector<Operation> pending_;  // a ring, a power of two long: [first, end)
  std::uint64_t pending_first_ = 0;
  std::uint64_t pending_end_ = 0;
  std::vector<std::byte> inline_data_;  // of pending operations, indexed as `pending_`
  std::uint32_t unpolled_ = 0;          // completions of this connection in the queue
  Ending ending_ = Ending::kNone;
  bool reported_ = false;    // kDisconnected is in the queue
  bool peer_ended_ = false;  // its socket reported the end
  bool attached_ = false;
  std::atomic<bool> aborted_ = false;
  std::atomic<bool> alive_ = true;
  const SocketAtFork at_fork_{socket()};
};

}  // namespace rkv::rdma::shm
