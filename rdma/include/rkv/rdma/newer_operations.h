// Operations that headers of older rdma-core lack. A program compiled with those headers cannot
// post them: a queue pair that names them is refused with kUnsupported (QueuePair::create).
//
//   RKV_ASSIGN_OR_RETURN(auto prepared, QueuePair::create(pd, cq, cq,
//       {.operations = kAllSendOps | SendOps::kFlush}));
//   ...
//   batch.write(1, OpFlags::kNone, record, place);
//   batch.flush(2, OpFlags::kSignaled, place, FlushTo::kPersistent);
//
// Thread safety: as the batch. Source: ibv_wr_post(3) of rdma-core 44 (atomic write) and later
// (flush).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/memory.h"

namespace rkv::rdma {

// The placement that a FLUSH guarantees for data.
enum class FlushTo : std::uint8_t {
  kVisible = 1,     // visible to every processor and device of the peer
  kPersistent = 2,  // in memory that keeps it without power
};

namespace detail {

template <class Queue>
concept KnowsAtomicWrite = requires(Queue queue) { queue.wr_atomic_write; };
template <class Queue>
concept KnowsFlush = requires(Queue queue) { queue.wr_flush; };

template <class Queue>
void atomic_write(Queue* queue, const RemoteSpan& word, std::uint64_t value) {
  if constexpr (KnowsAtomicWrite<Queue>) {
    RKV_CHECK(queue->wr_atomic_write != nullptr, "the queue pair was made without kAtomicWrite");
    queue->wr_atomic_write(queue, word.rkey, word.address, &value);
  } else {
    RKV_CHECK(false, "compiled with an rdma-core that has no ibv_wr_atomic_write");
  }
}
template <class Queue>
void flush(Queue* queue, const RemoteSpan& range, FlushTo placement) {
  if constexpr (KnowsFlush<Queue>) {
    constexpr std::uint8_t kRange = 0;  // IBV_FLUSH_RANGE: not the whole region
    RKV_CHECK(queue->wr_flush != nullptr, "the queue pair was made without kFlush");
    queue->wr_flush(queue, range.rkey, range.address, range.length, std::to_underlying(placement),
                    kRange);
  } else {
    RKV_CHECK(false, "compiled with an rdma-core that has no ibv_wr_flush");
  }
}

}  // namespace detail

}  // namespace rkv::rdma
