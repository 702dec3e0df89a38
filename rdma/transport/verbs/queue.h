// VerbsQueue: one completion queue, one shared receive queue, and the events of the connections
// bound to it.
//
// Invariants
//  1. Everything except wake(), room(), connections(), attach(), forget(), wake_for_control() and
//     pair_failed() runs on the queue's thread. These functions touch only atomics and members
//     guarded by `mutex_`.
//  2. The completion queue cannot overrun. Before a connection exists, its sends_in_flight plus one
//     marker are reserved in the queue, and the receives before all connections. A reservation is
//     returned only when the connection has been drained.
//  3. A completion is matched to its connection by queue-pair number. The device reuses numbers, so
//     a dying connection removes its completions from `ready_` before it gives up the number. So
//     does one that failed during set-up: its queue pair lives until the queue has forgotten it.
//  4. A receive with an unknown number belongs to a connection that another thread is about to
//     attach(). The receive waits in `strays_`; it is neither lost nor given to another connection.
//  5. A receive buffer is with the device, or held by the user (`held_`), or its completion is
//     waiting to be polled. So a queue pair may be destroyed only when the device holds no buffer
//     of it. A queue pair in the error state may still complete the receive that it had taken from
//     the shared queue. Providers drop that completion with the queue pair, and the buffer with it.
//     Only LAST_WQE_REACHED announces the end of flushing, and SoftRoCE never raises it. So a queue
//     pair stays in `retired_` for kRetirement after its marker, polled like all others.
//  6. A broken or abandoned queue stops polling. Each connection on it, including connections that
//     join later, stays in `ended_` until the end of all its outstanding operations has been
//     reported. Its queue pairs are destroyed at once: their receive buffers are not reused.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"
#include "rdma/transport/completion_reserve.h"
#include "rdma/transport/spin_window.h"
#include "rdma/transport/verbs/roll.h"
#include "rdma/transport/verbs/shared.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::verbs {

class VerbsConnection;

class VerbsQueue final : public Queue {
 public:
  static Result<std::unique_ptr<VerbsQueue>> create(std::shared_ptr<const Shared> shared,
                                                    const QueueOptions& options);
  ~VerbsQueue() override;
  VerbsQueue(const VerbsQueue&) = delete;
  VerbsQueue& operator=(const VerbsQueue&) = delete;

  std::size_t poll(std::span<rdma::Completion> out) override;
  void wait(const Deadline& deadline) override;
  bool waits_asleep() const override {
    return options_.poll == PollMode::kEvent ||
           (options_.poll == PollMode::kAdaptive && spin_window_.length() == 0);
  }
  void wake() override;
  void release(std::span<const std::uint32_t> receive_buffers) override;
  bool is_ready() override;
  std::optional<int> begin_sleep() override;
  void end_sleep() override { take_events(0); }
  std::size_t connections() const override { return room_.is_unused() ? 0 : 1; }
  void abandon() override;
  bool is_broken() const { return broken_; }  // also true if abandoned
  bool is_soft_roce() const { return soft_roce_; }

  // Completion entries for a connection; reserving fails with kBusy if there are too few. Any
  // thread.
  CompletionReserve& room() { return room_; }
  // Adds a complete connection; its stray receives are delivered from now on. Any thread.
  void attach(VerbsConnection& connection);
  // Forgets a connection that failed during set-up: its strays are returned. Any thread.
  void forget(std::shared_ptr<ibv_qp> pair);
  // Makes the queue's thread check for dead connections. Any thread.
  void wake_for_control();
  // Reports that the device failed a queue pair, which may not belong to this queue. Any thread.
  void pair_failed(const void* queue_pair);

  // For VerbsConnection, on the queue's thread.
  // Processes the changes made by other threads: connections that joined, failed or were aborted.
  void process_control_events();
  // Polls until the marker of `qp_num` arrives. Returns false if the deadline passes first or the
  // queue breaks.
  bool drain(std::uint32_t qp_num, std::uint64_t marker, const Deadline& deadline);
  // Removes a connection. Its queue pair, in the error state and drained of sends, is destroyed
  // later (5).
  void retire(std::shared_ptr<ibv_qp> pair);
  // Drops all state of `qp_num`, whose queue pair is destroyed.
  void detach(std::uint32_t qp_num);
  // Called if a connection could not post its marker: reports its end when the completion queue is
  // empty.
  void report_when_empty(VerbsConnection& connection);

  const Shared& shared() const { return *shared_; }
  const CompletionQueue& completions() const { return completions_; }
  const SharedReceiveQueue& receives() const { return receives_; }
  const EventChannel& events() const { return events_; }
  // How many of the `bytes` that a peer lets this side READ a probe READs, and their destination,
  // which nobody reads.
  std::size_t probed_bytes(std::size_t bytes) const;
  RegisteredSpan probe_sink(std::size_t bytes) const;

 private:
  struct Arrival {
    std::uint32_t qp_num;
    VerbsConnection* connection;  // nullptr: forget() was called
    std::shared_ptr<ibv_qp> forgotten;
  };

  VerbsQueue(std::shared_ptr<const Shared> shared, const QueueOptions& options,
             CompletionChannel channel, CompletionQueue completions, SharedReceiveQueue receives,
             MemoryRegion buffers, EventChannel events);
  Status open_descriptors();
  std::size_t refill();
  void append(const WorkCompletion& one);
  void compact(std::size_t count);
  bool has_ready() const { return ready_next_ != ready_end_; }
  void admit(const Arrival& arrival);
  void read_events();
  bool translate(const WorkCompletion& from, rdma::Completion& out);
  bool translate_receive(const WorkCompletion& from, rdma::Completion& out);
  VerbsConnection* find(std::uint32_t qp_num);
  void give_back(std::uint32_t buffer);
  bool spin(const Deadline& deadline);
  void take_events(int timeout_ms);
  void break_down(const Error& error);
  void forget_connection(std::uint32_t qp_num);
  void take_back(std::uint32_t qp_num);
  bool is_retired(std::uint32_t qp_num) const;
  void bury(bool all);
  void end_without_device(VerbsConnection& connection);
  void look_at_silence(Nanos now);
  int sleep_ms(const Deadline& deadline, Nanos now) const;

  // Declaration order is the order in which things must outlive each other.
  std::shared_ptr<const Shared> shared_;
  QueueOptions options_;
  std::size_t stride_;  // bytes from one receive buffer to the next
  CompletionChannel channel_;
  CompletionQueue completions_;
  MemoryRegion buffers_;
  std::optional<MemoryRegion> probe_sink_;  // on iWARP
  SharedReceiveQueue receives_;
  EventChannel events_;
  int epoll_ = -1;

  std::vector<WorkCompletion> ready_;  // polled, not yet given to the user: [next, end)
  std::size_t ready_next_ = 0;
  std::size_t ready_end_ = 0;
  std::vector<WorkCompletion> strays_;
  std::vector<bool> held_;
  std::unordered_map<std::uint32_t, VerbsConnection*> connections_;
  std::uint32_t last_number_ = 0;  // one-entry cache in front of connections_
  VerbsConnection* last_ = nullptr;
  std::vector<VerbsConnection*> ended_;  // see report_when_empty
  std::uint32_t polls_ = 0;
  std::uint32_t spins_ = 0;
  Nanos next_look_ = 0;  // when to look at silent connections
  SpinWindow spin_window_;
  bool room_came_back_ = false;  // capacity freed by unreported completions; see wait()
  bool armed_ = false;
  bool broken_ = false;
  bool soft_roce_ = false;

  CompletionReserve room_;
  Waker waker_;
  std::atomic<bool> attention_ = false;
  Mutex mutex_;
  std::vector<Arrival> arrivals_ RKV_GUARDED_BY(mutex_);
  std::vector<const void*> failed_pairs_ RKV_GUARDED_BY(mutex_);

  struct Retired {
    std::shared_ptr<ibv_qp> pair;
    Nanos until;
  };
  // Oldest first; destroyed before everything that its queue pairs use.
  std::deque<Retired> retired_;
  Roll::Entry on_roll_;  // last: pair_failed() must find a fully constructed queue
};

}  // namespace rkv::rdma::verbs
