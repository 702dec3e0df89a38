// What a queue pair holds on to, and what its bring-up remembers. Not public.
#pragma once

#include <bit>
#include <memory>
#include <optional>

#include "rdma/core/checked_hooks.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/rdma/route.h"

namespace rkv::rdma::detail {

// kInvalidArgument with the field and its range. Of three bits, the rest would be cut off somewhere
// on the way: 8 retries would become none.
Status check(const ConnectionParameters& parameters);

// For each operation of which the provider has no function, one that aborts and says so. Exported
// for the libraries of rdma/vendor.
RKV_EXPORT void refuse_the_rest(ibv_qp_ex& queue);

// Verbs number them from 1, for 256 bytes, on.
inline ibv_mtu to_verbs(Mtu mtu) {
  static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5);
  return static_cast<ibv_mtu>(std::bit_width(bytes_of(mtu)) - 8);
}

struct QueuePairState {
  // Whom endpoint() has told the peer that we are.
  struct Local {
    std::uint8_t port = 0;
    GidEntry gid;
    Endpoint told;
    Result<Route> route_to(const Endpoint& peer) const {
      return choose_route(port, gid, told, peer);
    }
  };

  Device device;
  std::shared_ptr<ibv_pd> domain;
  std::shared_ptr<CompletionQueueState> sends;
  std::shared_ptr<CompletionQueueState> receives;
  std::shared_ptr<ibv_srq> shared_receives;
  std::uint32_t send_length = 0;
  ibv_qp* queue = nullptr;
  std::optional<Local> local;

  explicit QueuePairState(const Device& from) : device(from.share()) {}
  QueuePairState(const QueuePairState&) = delete;
  QueuePairState& operator=(const QueuePairState&) = delete;
  ~QueuePairState() {
    if (queue == nullptr) return;
    checked::pair_ends(queue);
    report_teardown(from_errno("ibv_destroy_qp", ibv_destroy_qp(queue)));
  }
};

}  // namespace rkv::rdma::detail
