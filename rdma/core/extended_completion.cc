#include "rkv/rdma/extended_completion.h"

#include <cerrno>

namespace rkv::rdma::detail {

WorkKind work_kind(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND:
      return WorkKind::kSend;
    case IBV_WC_RDMA_WRITE:
      return WorkKind::kWrite;
    case IBV_WC_RDMA_READ:
      return WorkKind::kRead;
    case IBV_WC_COMP_SWAP:
      return WorkKind::kCompareSwap;
    case IBV_WC_FETCH_ADD:
      return WorkKind::kFetchAdd;
    case IBV_WC_RECV:
      return WorkKind::kReceive;
    case IBV_WC_RECV_RDMA_WITH_IMM:
      return WorkKind::kReceiveOfWrite;
    default:
      return WorkKind::kOther;
  }
}

bool PollState::advance_classic() {
  // One at a time: what is taken out is gone from the queue, and the loop may be left at any time.
  const Result<std::size_t> found = from_count("ibv_poll_cq", ibv_poll_cq(queue_, 1, &classic_));
  if (!found) error_ = found.error();
  return found && *found != 0;
}

bool PollState::stop(const char* verb, int answer) {
  end();
  const Result<bool> found = from_poll(verb, answer);
  if (!found) error_ = found.error();
  return false;
}

}  // namespace rkv::rdma::detail
