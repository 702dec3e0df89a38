// TcpQueue: the connections of one thread, their completions, and how that thread sleeps.
//
// Invariants:
//  TCPQ-1  Completions of a connection are handed out in the order in which they were delivered.
//  TCPQ-2  A receive buffer is free, delivered (in a completion that was not polled), or held by
//      the user. A connection that is destroyed gives its delivered buffers back.
//  TCPQ-3  No news is missed by a sleep (Dekker): the sleeper sets `is_asleep_`, then looks for
//      news; a deliverer makes news, then looks at `is_asleep_`. All four accesses are sequentially
//      consistent.
//  TCPQ-4  Connections that this process has opened are read in poll() and wait(). While neither is
//      called, the SocketThread reads them.
//
// Thread safety: the queue's thread, except where said.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/mutex.h"
#include "rdma/transport/completion_reserve.h"
#include "rdma/transport/host_memory.h"
#include "rdma/transport/spin_window.h"
#include "rdma/transport/tcp/shared.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::tcp {

class TcpConnection;

class TcpQueue final : public Queue {
 public:
  static Result<std::unique_ptr<TcpQueue>> create(std::shared_ptr<Shared> shared,
                                                  const QueueOptions& options);
  ~TcpQueue() override;
  TcpQueue(const TcpQueue&) = delete;
  TcpQueue& operator=(const TcpQueue&) = delete;

  std::size_t poll(std::span<Completion> out) override;
  void wait(const Deadline& deadline) override;
  bool waits_asleep() const override {
    return options_.poll == PollMode::kEvent ||
           (options_.poll == PollMode::kAdaptive && spin_window_.length() == 0);
  }
  void wake() override { waker_.wake(); }
  void release(std::span<const std::uint32_t> receive_buffers) override;
  std::size_t connections() const override { return room_.is_unused() ? 0 : 1; }
  bool is_ready() override;
  std::optional<int> begin_sleep() override;
  void end_sleep() override;

  const std::shared_ptr<Shared>& shared() const { return shared_; }
  std::uint32_t receive_bytes() const { return options_.receive_bytes; }
  CompletionReserve& room() { return room_; }  // any thread
  // How often this thread has looked after its connections. Any thread.
  std::uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }

  // ---- for TcpConnection; any thread, unless it says otherwise

  void deliver(const Completion& one);
  // Call it when an unsignaled operation has ended: there is room to post.
  void room_came_back();
  // nullopt: no buffer is free. Then the queue calls TcpConnection::buffer_came_back() when one is
  // free.
  std::optional<std::uint32_t> take_buffer(TcpConnection& connection);
  void give_back(std::uint32_t buffer);
  MutableBytes buffer(std::uint32_t number) {
    return {buffers_.data() + number * stride_, options_.receive_bytes};
  }
  // Adds a connection that this process has opened (TCPQ-4). The queue's thread.
  Status look_after(TcpConnection& connection, int socket);
  // From now on such a connection's socket is watched for `events` of epoll; 0: it is not watched
  // any more.
  void watch(int socket, std::uint32_t events);
  // Drops the completions of a connection that is being destroyed. The queue's thread.
  void forget(TcpConnection& connection);

 private:
  TcpQueue(std::shared_ptr<Shared> shared, const QueueOptions& options, Mapping buffers,
           std::size_t stride);
  Status open_descriptors();
  void look();
  bool has_news() const { return has_news_.load(std::memory_order_seq_cst); }
  std::size_t take_ready(std::span<Completion> out);
  void fetch();
  void feed_the_starving();
  void drop_completions(TcpConnection& connection);

  const std::shared_ptr<Shared> shared_;
  const QueueOptions options_;
  const std::size_t stride_;  // from one receive buffer to the next
  Mapping buffers_;
  Fd epoll_;
  Waker waker_;
  CompletionReserve room_;
  SpinWindow spin_window_;

  std::vector<Completion> ready_;  // fetched
  std::size_t next_ = 0;           // index in ready_
  std::atomic<std::uint64_t> looks_{0};
  std::atomic<bool> has_news_{false};
  std::atomic<bool> has_room_{false};
  std::atomic<bool> is_asleep_{false};

  Mutex mutex_;
  std::vector<Completion> delivered_ RKV_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> free_ RKV_GUARDED_BY(mutex_);
  std::vector<bool> is_held_;                                    // by the user
  std::vector<TcpConnection*> starving_ RKV_GUARDED_BY(mutex_);  // they wait for a buffer
  std::vector<TcpConnection*> opened_;                           // TCPQ-4
};

}  // namespace rkv::rdma::tcp
