// VerbsQueue: one completion queue, one shared receive queue, and the events of the connections
// bound to it.
//
// Invariants
//  1. Everything but wake(), room(), connections(), attach(), forget(), call_attention() and
//     pair_failed() runs on the queue's thread. Those others touch only atomics and what `mutex_`
//     guards.
//  2. The completion queue cannot overrun: the receives and, for every connection, its
//     sends_in_flight plus one marker are reserved in it before the connection exists. A
//     reservation is returned only when the connection has been drained.
//  3. A completion is found its connection by queue-pair number. Numbers are reused by the device,
//     so a dying connection takes its completions out of `ready_` before it gives up the number.
//  4. A receive whose number is unknown belongs to a connection that another thread is about to
//     attach(): it waits in `strays_` and is neither lost nor given to anybody else.
//  5. A receive buffer is either with the device or held by the user (`held_`), or its completion
//     is waiting to be polled. So a queue pair is destroyed only when the device has nothing of it
//     any more: one in the error state may still complete the receive that it had taken from the
//     shared queue, and providers drop such a completion with the queue pair, the buffer with it.
//     The end of flushing is announced by LAST_WQE_REACHED alone, which SoftRoCE never raises; so a
//     queue pair stays in `retired_` for kRetirement behind its marker, polled as all others.
//  6. A queue that is broken or abandoned polls no more. Each connection on it, those included that
//     join later, is among `ended_` until it has been told the end of all that it had outstanding.
//     Its queue pairs are destroyed at once: no buffer of it goes to anybody else.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rdma/completion_room.h"
#include "rdma/verbs/roll.h"
#include "rdma/verbs/shared.h"
#include "rdma/waker.h"

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
  void wake() override;
  void release(std::span<const std::uint32_t> receive_buffers) override;
  bool is_ready() override;
  std::optional<int> begin_sleep() override;
  void end_sleep() override { take_events(0); }
  std::size_t connections() const override { return room_.is_unused() ? 0 : 1; }
  void abandon() override;
  bool is_broken() const { return broken_; }  // or abandoned

  // Room in the completion queue for a connection; kBusy where there is none. Any thread.
  CompletionRoom& room() { return room_; }
  // A complete connection joins; its stray receives are delivered from now on. Any thread.
  void attach(VerbsConnection& connection);
  // A connection that failed while it was being set up: its strays go back. Any thread.
  void forget(std::uint32_t qp_num);
  // Makes the queue's thread look for connections that died. Any thread.
  void call_attention();
  // The device has said that this queue pair works no more; it may not be one of ours. Any thread.
  void pair_failed(const void* queue_pair);

  // For VerbsConnection, on the queue's thread.
  // Takes in what other threads have left: connections that joined, failed or were aborted.
  void look_around();
  // Polls until the marker of `qp_num` has come or the deadline has passed.
  bool drain(std::uint32_t qp_num, std::uint64_t marker, const Deadline& deadline);
  // A connection leaves. Its queue pair, in the error state and drained of sends, is destroyed
  // later (5).
  void retire(QueuePair pair);
  // Drops what is left of `qp_num`, whose queue pair is gone.
  void detach(std::uint32_t qp_num);
  // The connection could post no marker: report its end when the completion queue is empty.
  void report_when_empty(VerbsConnection& connection);

  const Shared& shared() const { return *shared_; }
  const CompletionQueue& completions() const { return completions_; }
  const SharedReceiveQueue& receives() const { return receives_; }
  const EventChannel& events() const { return events_; }

 private:
  struct Arrival {
    std::uint32_t qp_num;
    VerbsConnection* connection;  // nullptr: forget
  };

  VerbsQueue(std::shared_ptr<const Shared> shared, const QueueOptions& options,
             CompletionChannel channel, CompletionQueue completions, SharedReceiveQueue receives,
             MemoryRegion buffers, EventChannel events);
  Status open_descriptors();
  std::size_t refill();
  void append(const WorkCompletion& one);
  void make_room(std::size_t count);
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

  // Declaration order is the order in which things must outlive each other.
  std::shared_ptr<const Shared> shared_;
  QueueOptions options_;
  std::size_t stride_;  // bytes from one receive buffer to the next
  CompletionChannel channel_;
  CompletionQueue completions_;
  MemoryRegion buffers_;
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
  bool room_came_back_ = false;  // by completions nobody is told of; see wait()
  bool armed_ = false;
  bool broken_ = false;

  CompletionRoom room_;
  Waker waker_;
  std::atomic<bool> attention_ = false;
  std::mutex mutex_;
  std::vector<Arrival> arrivals_;          // guarded by mutex_
  std::vector<const void*> failed_pairs_;  // guarded by mutex_

  struct Retired {
    QueuePair pair;
    Nanos until;
  };
  std::deque<Retired> retired_;  // oldest first; ends before all that its queue pairs use
  Roll::Entry on_roll_;          // last: whoever calls pair_failed() finds a whole queue
};

}  // namespace rkv::rdma::verbs
