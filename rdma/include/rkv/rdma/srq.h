// Shared receive queue: one pool of receive buffers for many queue pairs.
//
//   RKV_ASSIGN_OR_RETURN(SharedReceiveQueue srq, SharedReceiveQueue::create(pd, {.length = 256}));
//   RKV_RETURN_IF_ERROR(srq.post(requests));
//   RKV_RETURN_IF_ERROR(srq.arm_limit(64));   // IBV_EVENT_SRQ_LIMIT_REACHED below 64 buffers
//
// Keep it from running empty: a sender whose message finds no receive waits for the
// receiver-not-ready timer before it retries. Thread safety: any thread may call post(), which the
// provider serializes; one thread calls the rest.
// Source: ibv_create_srq(3), ibv_post_srq_recv(3), ibv_modify_srq(3), ibv_query_srq(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/pieces.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  // One span, or an array of at most 32 pieces that are filled in their order (pieces.h). The array
  // must live until the call that posts the request; the memory, which must be kLocalWrite, belongs
  // to the device until the completion. The device refuses more pieces than the options allow.
  Scatter buffer;
};

struct SharedReceiveQueueOptions {
  std::uint32_t length = 256;  // receives that may be posted
  std::uint32_t sge = 1;       // pieces of one receive, at most 32
};

struct SharedReceiveQueueAttributes {
  std::uint32_t length = 0;
  std::uint32_t sge = 0;
  std::uint32_t limit = 0;  // the armed limit; 0 if it has fired or was never armed
};

class RKV_EXPORT SharedReceiveQueue {
 public:
  // ibv_create_srq(3). kInvalidArgument names the field that exceeds the device's limits;
  // kUnsupported if the device has no shared receive queues.
  static Result<SharedReceiveQueue> create(const ProtectionDomain& pd,
                                           const SharedReceiveQueueOptions& options);
  SharedReceiveQueue(SharedReceiveQueue&&) = default;
  SharedReceiveQueue& operator=(SharedReceiveQueue&&) = default;

  // Posts all, in chains. On an error the requests before the failing one have been posted; their
  // number is written to `posted` if that is not null. Does not block or allocate.
  Status post(std::span<const ReceiveRequest> requests, std::size_t* posted = nullptr);
  // The same for one receive.
  Status post(std::uint64_t wr_id, const Scatter& buffer);
  // Requests one IBV_EVENT_SRQ_LIMIT_REACHED (Device::next_async_event) when fewer than `limit`
  // receives are left. The event fires once. Arm again after a refill, not before: if armed below
  // the limit, it fires only at the next receive. Some devices accept limits above the length; they
  // are refused here. Source: ibv_modify_srq(3).
  Status arm_limit(std::uint32_t limit);
  // Changes how many receives may be posted to at least `length`; those that are posted stay.
  // kInvalidArgument: more are posted, the armed limit is above `length`, or `length` is not from 1
  // to the device's max_srq_work_requests. kUnsupported naming ibv_modify_srq: the device does not
  // resize. REQUIRES: no thread posts meanwhile. Source: ibv_modify_srq(3), IBV_SRQ_MAX_WR.
  Status resize(std::uint32_t length);
  // ibv_query_srq(3), a system call.
  Result<SharedReceiveQueueAttributes> query() const;
  std::uint32_t length() const { return length_; }

  ibv_srq* raw() const { return queue_.get(); }
  const std::shared_ptr<ibv_srq>& shared() const { return queue_; }

 private:
  SharedReceiveQueue(std::shared_ptr<ibv_srq> queue, std::uint32_t length)
      : queue_(std::move(queue)), length_(length) {}
  std::shared_ptr<ibv_srq> queue_;
  std::uint32_t length_;
};

}  // namespace rkv::rdma
