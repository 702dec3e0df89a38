#include "rkv/rdma/batch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {
namespace {

// Gives the pieces to the provider, which copies the list.
template <class Piece>
void set_list(ibv_qp_ex* queue, std::span<const Piece> pieces) {
  std::array<ibv_sge, kMaxPieces> list;
  std::ranges::transform(pieces, list.begin(), [](const Piece& piece) { return piece.sge(); });
  ibv_wr_set_sge_list(queue, pieces.size(), list.data());
}

}  // namespace

ibv_qp_ex moved_away = [] {
  ibv_qp_ex out{};
  out.qp_base.qp_context = &moved_away;
  return out;
}();

void BatchCore::cannot_open(const ibv_qp_ex* queue) noexcept {
  RKV_CHECK(queue != &moved_away, "a batch of a queue pair that was moved away");
  RKV_CHECK(false, "a batch is opened while a batch of its queue pair is open");
  std::unreachable();
}

Bytes BatchCore::copy(Copied& to, std::span<const Bytes> pieces) const noexcept {
  std::size_t length = 0;
  for (const Bytes piece : pieces) {
    RKV_CHECK(piece.size() <= limits_->inline_bytes - length,
              "an inline message is longer than inline_bytes()");
    if (!piece.empty()) std::memcpy(to.bytes + length, piece.data(), piece.size());
    length += piece.size();
  }
  return Bytes(to.bytes).first(length);
}

bool BatchCore::fits(const Gather& from, std::uint32_t most) noexcept {
  const std::size_t count =
      from.form() == Gather::Form::kSinks ? from.sinks().size() : from.sources().size();
  if (count > most) refusal_ = Refusal::kTooManyPieces;
  return count <= most;
}

bool BatchCore::fits(std::span<const RegisteredSpan> to, std::uint32_t most) noexcept {
  if (to.size() > most) refusal_ = Refusal::kTooManyPieces;
  return to.size() <= most;
}

void BatchCore::set_pieces(const Gather& from) noexcept {
  if (from.form() == Gather::Form::kSinks) {
    set_list(queue_, from.sinks());
  } else {
    set_list(queue_, from.sources());
  }
}

void BatchCore::set_pieces(std::span<const RegisteredSpan> to) noexcept {
  set_list(queue_, to);
}

int BatchCore::abandon(ibv_qp_ex* queue) noexcept {
  queue->qp_base.qp_context = nullptr;
  ibv_wr_abort(queue);
  return 0;
}

Status BatchCore::refused(int answer) noexcept {
  return from_errno("ibv_wr_complete", answer);
}

Status BatchCore::refuse(ibv_qp_ex* queue, Refusal why) noexcept {
  abandon(queue);
  if (why == Refusal::kTooLong) {
    return fail(Code::kTooLarge,
                "a datagram is longer than max_datagram_bytes(): nothing of this batch was posted");
  }
  return fail(Code::kInvalidArgument,
              "a request has more pieces than QueuePairOptions::send_sge, or a READ more than the "
              "device's max_read_sge: nothing of this batch was posted");
}

}  // namespace rkv::rdma::detail
