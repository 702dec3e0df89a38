#include "rkv/rdma/drain.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "rkv/rdma/adaptive_wait.h"

namespace rkv::rdma::detail {
namespace {

Status to_error_state(ibv_qp* queue_pair) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return from_errno("ibv_modify_qp", ibv_modify_qp(queue_pair, &attributes, IBV_QP_STATE));
}

// Unsignaled requests that succeeded produce no completion. A signaled marker after them does: in
// the error state it is flushed, after all earlier requests. Soft-iWARP never flushes a request
// that was posted in the error state.
bool takes_marker(const ibv_qp* queue_pair) {
  if (queue_pair->context->device->transport_type == IBV_TRANSPORT_IWARP) return false;
  return queue_pair->qp_type == IBV_QPT_RC || queue_pair->qp_type == IBV_QPT_UC;
}
Status post_marker(ibv_qp* queue_pair, QueuePairWork& work) {
  const QueuePairWork::Ticket ticket = work.take_last_send(true);
  ibv_send_wr request{};
  request.wr_id = ticket.wr_id;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  const Status posted = from_errno("ibv_post_send", ibv_post_send(queue_pair, &request, &refused));
  if (!posted) work.give_back_sends(1);
  return posted;
}

// Flushing takes a device microseconds, or milliseconds on an overloaded machine.
constexpr AdaptiveWaitOptions kFlushWait = {.min_polls = 64, .max_polls = 64, .yields = 16};

}  // namespace

Result<DrainReport> drain(ibv_qp* queue_pair, QueuePairWork& work,
                          std::span<CompletionQueue* const> queues, const Deadline& deadline,
                          CompletionSink own, CompletionSink others) {
  bool marked = !work.has_silent_end();
  if (!marked && !takes_marker(queue_pair)) {
    return fail_call(
        Code::kUnsupported, "ibv_post_send", 0,
        "a queue pair of this type can be drained only if its last request was signaled");
  }
  RKV_RETURN_IF_ERROR(to_error_state(queue_pair));
  DrainReport report;
  AdaptiveWait policy(kFlushWait);
  while (!work.idle()) {
    // A full queue has no slot for the marker until a completion has been polled.
    if (!marked && work.sends().free() != 0) {
      const Status posted = post_marker(queue_pair, work);
      if (!posted && posted.error().sys_errno != ENOMEM) return std::unexpected(posted.error());
      marked = posted.has_value();
    }
    std::size_t found = 0;
    for (CompletionQueue* queue : queues) {
      std::array<WorkCompletion, 32> some;
      RKV_ASSIGN_OR_RETURN(const std::size_t count, queue->poll(some));
      found += count;
      for (const WorkCompletion& completion : std::span(some).first(count)) {
        if (completion.qp_num == queue_pair->qp_num && work.complete(completion)) {
          ++report.own;
          if (completion.status == IBV_WC_WR_FLUSH_ERR) ++report.flushed;
          own(completion);
        } else {
          ++report.others;
          others(completion);
        }
      }
    }
    if (work.idle()) break;
    // Checked even while other queue pairs' completions keep arriving, so that they cannot delay
    // the deadline.
    if (deadline.passed()) {
      return fail_call(Code::kTimeout, "drain", 0,
                       "the device has not completed all work of a queue pair in the error state");
    }
    if (found != 0) {
      policy.hit();
    } else {
      policy.pause();
    }
  }
  return report;
}

}  // namespace rkv::rdma::detail
