// Receives as chains of verbs requests on the stack, one doorbell for each chain. Not public.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "rkv/check.h"
#include "rkv/rdma/srq.h"

namespace rkv::rdma::detail {

class ReceiveChain {
 public:
  explicit ReceiveChain(std::span<const ReceiveRequest> requests) : left_(requests) {}

  // The next chain, valid until the next call; nullptr when all requests were returned. REQUIRES: a
  // request has at most kMaxPieces pieces.
  ibv_recv_wr* next() {
    std::size_t pieces = 0;
    count_ = 0;
    for (; count_ < std::min(left_.size(), chain_.size()); ++count_) {
      const std::span<const RegisteredSpan> buffer = left_[count_].buffer.pieces();
      RKV_CHECK(buffer.size() <= kMaxPieces, "a receive has at most 32 pieces");
      if (buffer.size() > pieces_.size() - pieces) break;
      chain_[count_] = {.wr_id = left_[count_].wr_id,
                        .next = nullptr,
                        .sg_list = pieces_.data() + pieces,
                        .num_sge = static_cast<int>(buffer.size())};
      if (count_ != 0) chain_[count_ - 1].next = &chain_[count_];
      for (const RegisteredSpan& piece : buffer)
        pieces_[pieces++] = piece.sge();
    }
    left_ = left_.subspan(count_);
    return count_ != 0 ? chain_.data() : nullptr;
  }
  // The number of the last chain's requests before `refused`; all if the provider refused none.
  std::size_t accepted(const ibv_recv_wr* refused) const {
    return refused == nullptr ? count_ : static_cast<std::size_t>(refused - chain_.data());
  }

 private:
  std::span<const ReceiveRequest> left_;
  std::size_t count_ = 0;
  std::array<ibv_recv_wr, 32> chain_;
  std::array<ibv_sge, 32> pieces_;
};

}  // namespace rkv::rdma::detail
