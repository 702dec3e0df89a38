#include "rkv/rdma/batch.h"

#include <cstring>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {

Bytes BatchCore::gather(Gathered& to, std::span<const Bytes> pieces) const noexcept {
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    RKV_CHECK(piece.size() <= inline_bytes_ - length,
              "an inline message is longer than inline_bytes()");
    if (!piece.empty()) std::memcpy(to.bytes + length, piece.data(), piece.size());
    length += piece.size();
  }
  return Bytes(to.bytes).first(length);
}

int BatchCore::abandon(ibv_qp_ex* queue) noexcept {
  queue->qp_base.qp_context = nullptr;
  ibv_wr_abort(queue);
  return 0;
}

Status BatchCore::refused(int answer) noexcept {
  return from_errno("ibv_wr_complete", answer);
}

Status BatchCore::drop_too_long() noexcept {
  RKV_CHECK(queue_ != nullptr, "a batch submitted twice");
  abandon(std::exchange(queue_, nullptr));
  return fail(Code::kTooLarge,
              "a datagram is longer than max_datagram_bytes(): nothing of this batch was posted");
}

}  // namespace rkv::rdma::detail
