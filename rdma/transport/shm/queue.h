// ShmQueue: the connections of one thread, their completions, and how that thread sleeps.
//
// Invariants
//  SHMQ-1  Everything except wake(), room(), attach() and wake_for_control() runs on the queue's
//      thread. These functions touch only atomics and members guarded by `mutex_`.
//  SHMQ-2  `ready_` cannot overrun. A connection has at most sends_in_flight operations that are
//      posted and not polled, and one kDisconnected. Entries for those are reserved before the
//      connection exists.
//  SHMQ-3  A receive buffer is free (`free_`) or held by the user (`held_`). Without a free buffer,
//      messages stay in their rings, and full rings delay their senders.
//  SHMQ-4  A connection's completions go through `ready_` in the order posted. kDisconnected is
//      added last, and received messages are delivered before it is.
//  SHMQ-5  No wake-up is lost (Dekker). The sleeper stores its sleep word, then loads the rings;
//      the other side stores to the ring, then loads the sleep word. All four accesses are seq_cst,
//      so that at least one of the two loads sees the other side's store. The sleeper blocks only
//      in epoll_wait, which a byte in the socket ends.
//  SHMQ-6  The sleep word is odd while asleep and changes with every sleep. So one sleep costs each
//      peer at most one system call and one byte in the socket.
//  SHMQ-7  A peer cannot monopolize this thread. At most a few packets are taken from its socket at
//      a time. When its messages have filled a poll(), the next poll() begins with the next
//      connection.
#pragma once

#include <atomic>
#include <vector>

#include "common/mutex.h"
#include "rdma/transport/completion_reserve.h"
#include "rdma/transport/shm/shared.h"
#include "rdma/transport/spin_window.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::shm {

class ShmConnection;

class ShmQueue final : public Queue {
 public:
  static Result<std::unique_ptr<ShmQueue>> create(std::shared_ptr<Shared> shared,
                                                  const QueueOptions& options);
  ~ShmQueue() override;
  ShmQueue(const ShmQueue&) = delete;
  ShmQueue& operator=(const ShmQueue&) = delete;

  std::size_t poll(std::span<Completion> out) override;
  void wait(const Deadline& deadline) override;
  bool waits_asleep() const override {
    return options_.poll == PollMode::kEvent ||
           (options_.poll == PollMode::kAdaptive && spin_window_.length() == 0);
  }
  void wake() override;
  void release(std::span<const std::uint32_t> receive_buffers) override;
  bool is_ready() override;
  std::optional<int> begin_sleep() override;
  void end_sleep() override;

  // Entries in `ready_` for a connection; reserving fails with kBusy if there are too few. Any
  // thread.
  CompletionReserve& room() { return room_; }
  // Adds a complete connection. Any thread.
  void attach(ShmConnection& connection);
  // Makes the queue's thread check for connections that joined or were aborted. Any thread.
  void wake_for_control();

  // For ShmConnection, on the queue's thread.
  void process_control_events();
  void append(const Completion& one);
  void detach(ShmConnection& connection);
  void stop_watching(const ShmConnection& connection);
  void room_came_back() { room_came_back_ = true; }
  bool has_free_buffer() const { return !free_.empty(); }
  // REQUIRES: has_free_buffer(). take_buffer() gives next_buffer() to the user.
  MutableBytes next_buffer();
  std::uint32_t take_buffer();

  Shared& shared() const { return *shared_; }
  std::uint32_t receive_bytes() const { return options_.receive_bytes; }
  int page_fd() const { return page_.fd.get(); }

 private:
  ShmQueue(std::shared_ptr<Shared> shared, const QueueOptions& options, SharedMemory page,
           Mapping buffers);
  Status open_descriptors();
  std::size_t take_ready(std::span<Completion> out);
  bool anything() const;
  bool spin(const Deadline& deadline);
  void sleep(const Deadline& deadline);
  void set_sleep_words(std::uint64_t value);
  void read_sockets(int timeout_ms);

  std::shared_ptr<Shared> shared_;
  QueueOptions options_;
  std::size_t stride_;  // bytes from one receive buffer to the next
  SharedMemory page_;   // its first word is our sleep word, for accepted peers
  Mapping buffers_;
  Fd epoll_;
  Waker waker_;

  std::vector<Completion> ready_;  // a ring, a power of two long: [next, end)
  std::uint64_t ready_next_ = 0;
  std::uint64_t ready_end_ = 0;
  std::vector<std::uint32_t> free_;
  std::vector<bool> held_;
  std::vector<ShmConnection*> connections_;
  std::size_t turn_ = 0;  // index of the connection whose ring is checked first
  std::uint64_t sleep_number_ = 0;
  std::uint32_t polls_ = 0;
  std::uint32_t spins_ = 0;
  SpinWindow spin_window_;
  bool room_came_back_ = false;  // capacity freed by unreported completions; see wait()

  CompletionReserve room_;
  std::atomic<bool> attention_ = false;
  Mutex mutex_;
  std::vector<ShmConnection*> arrivals_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::rdma::shm
