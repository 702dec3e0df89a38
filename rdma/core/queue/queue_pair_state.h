// The objects that a queue pair holds, and its bring-up state. Not public.
#pragma once

#include <bit>
#include <memory>
#include <optional>

#include "rdma/core/checked/checked_hooks.h"
#include "rdma/core/queue/classic_poster.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/rdma/route.h"

namespace rkv::rdma::detail {

// kInvalidArgument with the field and its range. The counts have three bits on the wire and larger
// values would be truncated: 8 retries would become 0.
Status check(const ConnectionParameters& parameters);

// kInvalidArgument: a value is out of range, or the route has no GID (`global`) and a field needs
// one. kUnsupported: a hop limit on RoCE.
Status check_path(const PathParameters& path, bool roce, bool global);

// Writes the values of `path` into `address`. Errors: those of check_path().
Status set_path(const PathParameters& path, bool roce, ibv_ah_attr& address);

// Fills each operation that the provider lacks with a function that aborts with a message. Exported
// for rdma/extras/efa.
RKV_EXPORT void refuse_the_rest(ibv_qp_ex& queue);

// Verbs number the MTUs from 1, for 256 bytes.
inline ibv_mtu to_verbs(Mtu mtu) {
  static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5);
  return static_cast<ibv_mtu>(std::bit_width(bytes_of(mtu)) - 8);
}

struct QueuePairState {
  // Our endpoint as endpoint() returned it, for the peer.
  struct Local {
    std::uint8_t port = 0;
    GidEntry gid;
    Endpoint announced;
    Result<Route> route_to(const Endpoint& peer) const {
      return choose_route(port, gid, announced, peer);
    }
  };

  Device device;
  std::shared_ptr<ibv_pd> domain;
  std::shared_ptr<CompletionQueueState> sends;
  std::shared_ptr<CompletionQueueState> receives;
  std::shared_ptr<ibv_srq> shared_receives;
  std::uint32_t send_length = 0;
  bool iwarp = false;
  ibv_qp* queue = nullptr;
  std::unique_ptr<ClassicPoster>
      poster;  // if the provider has no extended queue pairs, or faulty ones
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
