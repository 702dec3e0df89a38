// Draining a queue pair: moves it to the error state and waits until everything posted on it has
// completed. Only then may its buffers be reused, and the queue pair be destroyed without leaving
// completions.
//
//   QueuePairWork work({.generation = 1, .send_slots = qp.send_length(), .receive_slots = 64});
//   const auto ticket = work.take_send();                  // wr_id and whether to signal
//   batch.send(ticket.wr_id, ticket.flags(), message);
//   ... work.complete(completion) for each completion ...
//   RKV_RETURN_IF_ERROR(drain(qp, work, sends, receives, deadline,
//                             [](const WorkCompletion& own) { ... },
//                             [&](const WorkCompletion& others) { keep(others); }));
//
// The completion queues may be shared: completions of other queue pairs are polled too and passed
// to a callback, so none is lost. Completions of a predecessor with the same number have another
// generation and go to the same callback.
//
// Not covered: receives of a shared receive queue. Receives that the queue pair took from it may
// still complete. Devices report IBV_EVENT_QP_LAST_WQE_REACHED after the last of them
// (supervisor.h), but SoftRoCE does not. Without that event, destroy the queue pair and poll once
// more. Keep the buffers until then.
//
// No other thread may poll these queues meanwhile. drain() arms nothing and takes no events, so
// other queues of the channel are not disturbed: it polls, with growing pauses of up to a
// millisecond.
//
// Thread safety: one thread. Source: InfiniBand specification 10.3.1.7 and 11.4.2.1 (requests
// complete in order, all are flushed in the error state).
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/accounting.h"
#include "rkv/rdma/completion.h"
#include "rkv/rdma/completion_router.h"
#include "rkv/rdma/error.h"
#include "rkv/rdma/flags.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct QueuePairWorkOptions {
  // From CompletionRouter::add(), or any that differs from the predecessor's.
  std::uint16_t generation = 1;
  std::uint32_t send_slots = 128;   // QueuePair::send_length()
  std::uint32_t receive_slots = 1;  // at least 1; not used with a shared receive queue
  // Above 1, one send slot is reserved for the marker of drain(): see send_free().
  std::uint32_t signal_every = 1;
};

// The outstanding work of one queue pair. Generates wr_ids, which identify the queue pair and the
// request.
class QueuePairWork {
 public:
  explicit QueuePairWork(const QueuePairWorkOptions& options)
      : sends_({.slots = options.send_slots, .signal_every = options.signal_every}),
        receives_({.slots = options.receive_slots}),
        generation_(options.generation),
        kept_(options.signal_every > 1 ? 1 : 0) {
    RKV_CHECK(options.send_slots > kept_, "a send queue of one slot signals every request");
  }

  struct Ticket {
    std::uint64_t wr_id;
    bool signaled;
    OpFlags flags() const { return signaled ? OpFlags::kSignaled : OpFlags::kNone; }
  };
  // REQUIRES: send_free() > 0.
  Ticket take_send(bool signal = false) {
    RKV_CHECK(send_free() != 0, "more requests than the send queue has slots");
    return take_last_send(signal);
  }
  // REQUIRES: receive_free() > 0.
  std::uint64_t take_receive() {
    return WorkId{.generation = generation_, .receive = true, .number = receives_.take().number}
        .wr_id();
  }
  // The last `count` requests were not posted: dropped, or refused with an error.
  void give_back_sends(std::uint32_t count) { sends_.give_back(count); }
  void give_back_receives(std::uint32_t count) { receives_.give_back(count); }

  // Counts a completion. Returns false if it belongs to another queue pair or to a predecessor of
  // this number.
  bool complete(const WorkCompletion& completion) {
    const WorkId id = WorkId::from(completion.wr_id);
    if (id.generation != generation_) return false;
    return (id.receive ? receives_ : sends_).complete(id.number) != 0;
  }

  std::uint32_t send_free() const { return sends_.free() > kept_ ? sends_.free() - kept_ : 0; }
  std::uint32_t receive_free() const { return receives_.free(); }
  bool idle() const { return sends_.outstanding() == 0 && receives_.outstanding() == 0; }
  // Whether the last requests produce no completion: they are not signaled, and no later request
  // is.
  bool has_silent_end() const { return sends_.outstanding() != 0 && sends_.unsignaled() != 0; }
  const SendSlots& sends() const { return sends_; }
  const SendSlots& receives() const { return receives_; }
  std::uint16_t generation() const { return generation_; }
  // For drain(): may use the reserved slot. REQUIRES: sends().free() > 0.
  Ticket take_last_send(bool signal) {
    const SendSlots::Slot slot = sends_.take(signal);
    return {.wr_id = WorkId{.generation = generation_, .number = slot.number}.wr_id(),
            .signaled = slot.signaled};
  }

 private:
  SendSlots sends_;
  SendSlots receives_;
  std::uint16_t generation_;
  std::uint32_t kept_;
};

struct DrainReport {
  std::uint32_t own = 0;      // completions of this queue pair
  std::uint32_t flushed = 0;  // flushed ones among `own`
  std::uint32_t others = 0;   // completions passed to the other callback
};

namespace detail {
// A callback by reference: the caller keeps it alive for the call.
struct CompletionSink {
  void* object;
  void (*call)(void*, const WorkCompletion&);
  void operator()(const WorkCompletion& completion) const { call(object, completion); }
};
template <class F>
CompletionSink sink_of(F& function) {
  return {&function, [](void* object, const WorkCompletion& completion) {
            (*static_cast<F*>(object))(completion);
          }};
}
RKV_EXPORT Result<DrainReport> drain(ibv_qp* queue_pair, QueuePairWork& work,
                                     std::span<CompletionQueue* const> queues,
                                     const Deadline& deadline, CompletionSink own,
                                     CompletionSink others);
}  // namespace detail

// Drains the queue pair. Blocks until work.idle() or the deadline has passed. kTimeout: `work` has
// the outstanding requests. The queue pair may already be in the error state, or may never have
// been connected. `own` is called after `work` has counted. kUnsupported if the last request of a
// datagram queue pair, or of one on iWARP, is unsignaled: nothing reports its completion, so signal
// the last request. The queue pair still works then: post a signaled request and drain again.
// REQUIRES: no batch is open; all of the queue pair's work was taken from `work`.
template <class Qp, class Own, class Others>
Result<DrainReport> drain(Qp& qp, QueuePairWork& work, CompletionQueue& sends,
                          CompletionQueue& receives, const Deadline& deadline, Own&& own,
                          Others&& others) {
  CompletionQueue* const both[] = {&sends, &receives};
  const std::size_t count = sends.raw() == receives.raw() ? 1 : 2;
  return detail::drain(qp.raw(), work, std::span(both, count), deadline, detail::sink_of(own),
                       detail::sink_of(others));
}

// Drains in its destructor, before objects declared earlier are destroyed: the queue pair, its
// buffers, its queues. An error is passed to the handler of set_teardown_handler(). Own completions
// are only counted. After a time-out the device may use the buffers until the queue pair is
// destroyed: declare the buffers before the queue pair.
template <class Qp, class Others>
class [[nodiscard]] DrainOnExit {
 public:
  // All are held by reference. `limit` counts from the start of the destructor.
  DrainOnExit(Qp& qp, QueuePairWork& work, CompletionQueue& sends, CompletionQueue& receives,
              std::chrono::milliseconds limit, Others others)
      : qp_(qp),
        work_(work),
        sends_(sends),
        receives_(receives),
        limit_(limit),
        others_(std::move(others)) {}
  DrainOnExit(const DrainOnExit&) = delete;
  DrainOnExit& operator=(const DrainOnExit&) = delete;
  ~DrainOnExit() {
    const auto drained = drain(
        qp_, work_, sends_, receives_, Deadline::in(limit_), [](const WorkCompletion&) {}, others_);
    if (!drained) report_teardown(std::unexpected(drained.error()));
  }

 private:
  Qp& qp_;
  QueuePairWork& work_;
  CompletionQueue& sends_;
  CompletionQueue& receives_;
  std::chrono::milliseconds limit_;
  Others others_;
};

}  // namespace rkv::rdma
