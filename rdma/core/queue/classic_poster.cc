#include "rdma/core/queue/classic_poster.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {
namespace {

bool carries_immediate(const ibv_send_wr& request) {
  return request.opcode == IBV_WR_SEND_WITH_IMM || request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

}  // namespace

ClassicPoster::ClassicPoster(ibv_qp* to, const Options& options)
    : ibv_qp_ex{},
      to_(to),
      iwarp_(options.iwarp),
      room_(options.send_length),
      most_pieces_(options.pieces),
      inline_bytes_(options.inline_bytes),
      chain_(room_ + 1),
      pieces_((room_ + 1) * most_pieces_),
      copies_((room_ + 1) * inline_bytes_) {
  qp_base.context = to->context;
  // Callers of the plain calls find an open batch by this mark (BatchCore::is_open).
  wr_start = [](ibv_qp_ex* self) {
    of(self).clear();
    of(self).to_->qp_context = self;
  };
  wr_complete = [](ibv_qp_ex* self) { return of(self).complete(); };
  wr_abort = [](ibv_qp_ex* self) {
    of(self).clear();
    of(self).to_->qp_context = nullptr;
  };
  wr_set_sge = [](ibv_qp_ex* self, std::uint32_t lkey, std::uint64_t address,
                  std::uint32_t length) {
    const ibv_sge piece{.addr = address, .length = length, .lkey = lkey};
    of(self).set_pieces({&piece, 1});
  };
  wr_set_sge_list = [](ibv_qp_ex* self, std::size_t count, const ibv_sge* pieces) {
    of(self).set_pieces({pieces, count});
  };
  wr_set_inline_data = [](ibv_qp_ex* self, void* data, std::size_t length) {
    of(self).set_inline(data, length);
  };
  wr_set_ud_addr = [](ibv_qp_ex* self, ibv_ah* handle, std::uint32_t qp_num, std::uint32_t qkey) {
    of(self).set_address(handle, qp_num, qkey);
  };
  offer(options.operations);
}

template <ibv_wr_opcode opcode>
ibv_send_wr& ClassicPoster::begin(ibv_qp_ex* self) {
  return of(self).add(opcode);
}

void ClassicPoster::offer(SendOps operations) {
  const auto lacks = [operations](SendOps one) { return !has(operations, one); };
  wr_send = [](ibv_qp_ex* self) { begin<IBV_WR_SEND>(self); };
  wr_send_imm = [](ibv_qp_ex* self, __be32 immediate) {
    begin<IBV_WR_SEND_WITH_IMM>(self).imm_data = immediate;
  };
  wr_send_inv = [](ibv_qp_ex* self, std::uint32_t rkey) {
    begin<IBV_WR_SEND_WITH_INV>(self).invalidate_rkey = rkey;
  };
  wr_rdma_read = [](ibv_qp_ex* self, std::uint32_t rkey, std::uint64_t address) {
    begin<IBV_WR_RDMA_READ>(self).wr.rdma = {.remote_addr = address, .rkey = rkey};
  };
  wr_rdma_write = [](ibv_qp_ex* self, std::uint32_t rkey, std::uint64_t address) {
    begin<IBV_WR_RDMA_WRITE>(self).wr.rdma = {.remote_addr = address, .rkey = rkey};
  };
  wr_rdma_write_imm = [](ibv_qp_ex* self, std::uint32_t rkey, std::uint64_t address,
                         __be32 immediate) {
    ibv_send_wr& request = begin<IBV_WR_RDMA_WRITE_WITH_IMM>(self);
    request.imm_data = immediate;
    request.wr.rdma = {.remote_addr = address, .rkey = rkey};
  };
  wr_atomic_cmp_swp = [](ibv_qp_ex* self, std::uint32_t rkey, std::uint64_t address,
                         std::uint64_t compare, std::uint64_t swap) {
    begin<IBV_WR_ATOMIC_CMP_AND_SWP>(self).wr.atomic = {
        .remote_addr = address, .compare_add = compare, .swap = swap, .rkey = rkey};
  };
  wr_atomic_fetch_add = [](ibv_qp_ex* self, std::uint32_t rkey, std::uint64_t address,
                           std::uint64_t add) {
    begin<IBV_WR_ATOMIC_FETCH_AND_ADD>(self).wr.atomic = {
        .remote_addr = address, .compare_add = add, .swap = 0, .rkey = rkey};
  };
  // Only where they are asked for: without them there are no windows (lease.h).
  if (has(operations, SendOps::kLocalInvalidate)) {
    wr_local_inv = [](ibv_qp_ex* self, std::uint32_t rkey) {
      begin<IBV_WR_LOCAL_INV>(self).invalidate_rkey = rkey;
    };
  }
  if (has(operations, SendOps::kBindWindow)) {
    wr_bind_mw = [](ibv_qp_ex* self, ibv_mw* window, std::uint32_t rkey,
                    const ibv_mw_bind_info* info) {
      begin<IBV_WR_BIND_MW>(self).bind_mw = {.mw = window, .rkey = rkey, .bind_info = *info};
    };
  }
  // An operation that the device lacks ends in an error of the batch: the program may not know the
  // device.
  const auto refused = []<class... Arguments>(void (*&function)(ibv_qp_ex*, Arguments...)) {
    function = [](ibv_qp_ex* self, Arguments...) {
      begin<IBV_WR_SEND>(self);
      of(self).refuse(EOPNOTSUPP);
    };
  };
  if (lacks(SendOps::kCompareSwap)) refused(wr_atomic_cmp_swp);
  if (lacks(SendOps::kFetchAdd)) refused(wr_atomic_fetch_add);
}

void ClassicPoster::clear() {
  count_ = 0;
  refusal_ = 0;
}

void ClassicPoster::refuse(int error) {
  if (refusal_ == 0) refusal_ = error;
}

ibv_send_wr& ClassicPoster::add(ibv_wr_opcode opcode) {
  if (count_ == room_) {
    refuse(ENOMEM);
  } else {
    ++count_;
  }
  ibv_send_wr& request = chain_[current()];
  request = {};
  request.wr_id = wr_id;
  request.opcode = opcode;
  request.send_flags = wr_flags;
  if (iwarp_ && opcode != IBV_WR_RDMA_READ) request.send_flags |= IBV_SEND_FENCE;
  return request;
}

// The place of the request that was added last.
std::size_t ClassicPoster::current() const {
  return refusal_ == ENOMEM ? room_ : count_ - 1;
}

// Empty pieces are left out, because some providers take the length 0 for 2 GiB; but see POSTER-5.
void ClassicPoster::set_pieces(std::span<const ibv_sge> pieces) {
  RKV_CHECK(pieces.size() <= most_pieces_, "a request has more pieces than its queue pair allows");
  const std::size_t at = current();
  ibv_sge* const list = &pieces_[at * most_pieces_];
  const ibv_sge* const end = std::ranges::copy_if(pieces, list, [](const ibv_sge& piece) {
                               return piece.length != 0;
                             }).out;
  chain_[at].sg_list = list;
  chain_[at].num_sge = static_cast<int>(end - list);
  if (end != list || !iwarp_ || chain_[at].opcode != IBV_WR_RDMA_READ) return;
  *list = pieces.empty() ? ibv_sge{} : pieces.front();
  chain_[at].num_sge = 1;
}

void ClassicPoster::set_inline(const void* data, std::size_t length) {
  RKV_CHECK(length <= inline_bytes_, "an inline message is longer than inline_bytes()");
  const std::size_t at = current();
  std::byte* const copy = copies_.data() + at * inline_bytes_;
  if (length != 0) std::memcpy(copy, data, length);
  const ibv_sge piece{.addr = reinterpret_cast<std::uint64_t>(copy),
                      .length = static_cast<std::uint32_t>(length),
                      .lkey = 0};
  set_pieces({&piece, 1});
  if (length == 0) chain_[at].send_flags &= ~unsigned{IBV_SEND_INLINE};
}

void ClassicPoster::set_address(ibv_ah* handle, std::uint32_t qp_num, std::uint32_t qkey) {
  chain_[current()].wr.ud = {.ah = handle, .remote_qpn = qp_num, .remote_qkey = qkey};
}

int ClassicPoster::complete() {
  to_->qp_context = nullptr;
  const std::size_t count = count_;
  const int refusal = refusal_;
  clear();
  return refusal != 0 ? refusal : post(count);
}

int ClassicPoster::post(std::size_t count) {
  for (std::size_t i = 0; i + 1 < count; ++i)
    chain_[i].next = &chain_[i + 1];
  chain_[count - 1].next = nullptr;
  ibv_send_wr* refused = nullptr;
  int answer = ibv_post_send(to_, chain_.data(), &refused);
  if (answer == 0 && refused == nullptr) [[likely]]
    return 0;
  // rdma-core's soft-iWARP returns negative numbers. If its queue becomes full in the middle of a
  // chain it returns 0 and names the request that it refused.
  // A doorbell that the kernel refuses is -1, with errno.
  if (answer == -1 && errno != 0) answer = errno;
  answer = answer == 0 ? ENOMEM : std::abs(answer);
  // Verbs have no query for immediate data, which iWARP (RFC 5040) lacks.
  // After others in a chain the doorbell's answer hides the reason.
  if (iwarp_ && refused != nullptr && carries_immediate(*refused)) {
    answer = EOPNOTSUPP;
  }
  if (refused != chain_.data()) {
    refused_in_the_middle_ = true;
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    report_teardown(from_errno("ibv_modify_qp", ibv_modify_qp(to_, &attributes, IBV_QP_STATE)));
  }
  return answer;
}

}  // namespace rkv::rdma::detail
