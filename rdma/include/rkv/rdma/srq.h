// Shared receive queue: one pool of receive buffers for many queue pairs.
//
//   RKV_ASSIGN_OR_RETURN(SharedReceiveQueue srq, SharedReceiveQueue::create(pd, {.length = 256}));
//   RKV_RETURN_IF_ERROR(srq.post(requests));
//   RKV_RETURN_IF_ERROR(srq.arm_limit(64));   // IBV_EVENT_SRQ_LIMIT_REACHED below 64 buffers
//
// Keep it from running dry: a sender that meets an empty queue waits for the receiver-not-ready
// timer, and that wait is what users notice first. Thread safety: post() by any thread (libibverbs
// locks); the rest by one.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "rkv/export.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct ReceiveRequest {
  std::uint64_t wr_id = 0;
  RegisteredSpan buffer;  // must be kLocalWrite; belongs to the device until its completion
};

struct SharedReceiveQueueOptions {
  std::uint32_t length = 256;  // receives that may be posted
  std::uint32_t sge = 1;       // pieces of one receive, 32 at most: post() of pieces
};

class RKV_EXPORT SharedReceiveQueue {
 public:
  // ibv_create_srq(3). kInvalidArgument names the field that is outside the device's limits;
  // kUnsupported where the device has none.
  static Result<SharedReceiveQueue> create(const ProtectionDomain& pd,
                                           const SharedReceiveQueueOptions& options);
  SharedReceiveQueue(SharedReceiveQueue&&) = default;
  SharedReceiveQueue& operator=(SharedReceiveQueue&&) = default;

  // Posts all, in chains. On an error those before it have been posted; how many is written to
  // `posted` when that is not null. Does not block, allocates nothing.
  Status post(std::span<const ReceiveRequest> requests, std::size_t* posted = nullptr);
  // One receive whose message is scattered over several pieces, in their order; at most the
  // options' sge, which the device refuses otherwise. REQUIRES: at most 32.
  Status post(std::uint64_t wr_id, std::span<const RegisteredSpan> pieces);
  // Asks for one IBV_EVENT_SRQ_LIMIT_REACHED (Device::next_async_event) when fewer than `limit`
  // receives are left. It fires once; arm again after a refill, not before: armed while already
  // below, it fires at the next receive only. Limits above the length are accepted by some devices
  // and refused here. Source: ibv_modify_srq(3).
  Status arm_limit(std::uint32_t limit);
  // The armed limit, 0 when it has fired or was never armed (ibv_query_srq(3)).
  Result<std::uint32_t> armed_limit() const;
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
