#include "rkv/rdma/batch.h"

#include <cstring>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {

Bytes BatchCore::gather(Gathered& to, std::span<const Bytes> pieces) const {
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    RKV_CHECK(piece.size() <= inline_bytes_ - length,
              "an inline message is longer than inline_bytes()");
    if (!piece.empty()) std::memcpy(to.bytes + length, piece.data(), piece.size());
    length += piece.size();
  }
  return Bytes(to.bytes).first(length);
}

Status BatchCore::complete() {
  RKV_CHECK(queue_ != nullptr, "a batch submitted twice");
  ibv_qp_ex* queue = std::exchange(queue_, nullptr);
  if (count_ == 0) {
    ibv_wr_abort(queue);
    return {};
  }
  return from_errno("ibv_wr_complete", ibv_wr_complete(queue));
}

}  // namespace rkv::rdma::detail
