#include "rkv/rdma/srq.h"

#include <algorithm>
#include <cerrno>

#include "rdma/core/checked/checked_hooks.h"
#include "rdma/core/queue/receive_chain.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

namespace {

// Checked here because the kernel would return only EINVAL, and some devices treat 0 as 1.
Status check_options(const DeviceAttributes& limits, const SharedReceiveQueueOptions& options) {
  if (limits.max_srq == 0) return verb_error("ibv_create_srq", EOPNOTSUPP);
  if (options.length == 0 || options.length > limits.max_srq_work_requests) {
    return fail_call(Code::kInvalidArgument, "ibv_create_srq", 0,
                     "SharedReceiveQueueOptions::length is not from 1 to the device's "
                     "max_srq_work_requests (DeviceAttributes)");
  }
  if (options.sge == 0 || options.sge > std::min<std::uint32_t>(limits.max_srq_sge, kMaxPieces)) {
    return fail_call(Code::kInvalidArgument, "ibv_create_srq", 0,
                     "SharedReceiveQueueOptions::sge is not from 1 to 32 and the device's "
                     "max_srq_sge (DeviceAttributes)");
  }
  return {};
}

}  // namespace

Result<SharedReceiveQueue> SharedReceiveQueue::create(const ProtectionDomain& pd,
                                                      const SharedReceiveQueueOptions& options) {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, pd.device().attributes());
  RKV_RETURN_IF_ERROR(check_options(limits, options));
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = options.length;
  wanted.attr.max_sge = options.sge;
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_srq * raw,
                       from_null("ibv_create_srq", ibv_create_srq(pd.raw(), &wanted)));
  checked::shared_receives_begin(raw);
  std::shared_ptr<ibv_srq> queue(raw, [domain = pd.shared()](ibv_srq* old) {
    checked::shared_receives_end(old);
    report_teardown(from_errno("ibv_destroy_srq", ibv_destroy_srq(old)));
  });
  return SharedReceiveQueue(std::move(queue), wanted.attr.max_wr);
}

Status SharedReceiveQueue::post(std::span<const ReceiveRequest> requests, std::size_t* posted) {
  detail::ReceiveChain chain(requests);
  std::size_t done = 0;
  Status status;
  while (ibv_recv_wr* const next = status ? chain.next() : nullptr) {
    ibv_recv_wr* refused = nullptr;
    status = from_errno("ibv_post_srq_recv", ibv_post_srq_recv(queue_.get(), next, &refused));
    // An error that names no request has posted none.
    done += status || refused != nullptr ? chain.accepted(refused) : 0;
  }
  if (posted != nullptr) *posted = done;
  return status;
}

Status SharedReceiveQueue::post(std::uint64_t wr_id, const Scatter& buffer) {
  const ReceiveRequest request{.wr_id = wr_id, .buffer = buffer};
  return post({&request, 1});
}

Status SharedReceiveQueue::arm_limit(std::uint32_t limit) {
  if (limit > length_) {
    return fail(Code::kInvalidArgument, "the limit is above the length of the receive queue");
  }
  ibv_srq_attr attributes{};
  attributes.srq_limit = limit;
  return from_errno("ibv_modify_srq", ibv_modify_srq(queue_.get(), &attributes, IBV_SRQ_LIMIT));
}

Status SharedReceiveQueue::resize(std::uint32_t length) {
  if (length == 0) {
    return fail_call(Code::kInvalidArgument, "ibv_modify_srq", 0, "length is at least 1");
  }
  ibv_srq_attr attributes{};
  attributes.max_wr = length;
  RKV_RETURN_IF_ERROR(
      from_errno("ibv_modify_srq", ibv_modify_srq(queue_.get(), &attributes, IBV_SRQ_MAX_WR)));
  // Resized already: without an answer it has at least what was asked for.
  const Result<SharedReceiveQueueAttributes> now = query();
  length_ = now ? now->length : length;
  return {};
}

Result<SharedReceiveQueueAttributes> SharedReceiveQueue::query() const {
  ibv_srq_attr attributes{};
  RKV_RETURN_IF_ERROR(from_errno("ibv_query_srq", ibv_query_srq(queue_.get(), &attributes)));
  return SharedReceiveQueueAttributes{
      .length = attributes.max_wr, .sge = attributes.max_sge, .limit = attributes.srq_limit};
}

}  // namespace rkv::rdma
