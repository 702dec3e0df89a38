// Mellanox's (NVIDIA's) dynamic connections: one initiator (DCI) reaches any number of targets
// (DCT) without a queue pair for each. The adapter connects when a message is sent. Component
// rkv::rdma_mlx5.
//
//   RKV_ASSIGN_OR_RETURN(DcTarget target, DcTarget::create(pd, cq, srq, {.gid_index = gid.index,
//       .access_key = key, .remote_access = AccessFlags::kRemoteRead}));   // send number() and key
//   RKV_ASSIGN_OR_RETURN(DcInitiator qp, DcInitiator::create(pd, cq, {.gid_index = gid.index}));
//   DcBatch batch = qp.batch();
//   const DcDestination there{.handle = ah, .target = n, .access_key = key};
//   batch.read(1, OpFlags::kSignaled, there, local, remote);
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());
//
// On every other device each call returns kUnsupported and names its verb. This code has never run
// on an mlx5 adapter: none was available.
//
// Buffers and the counting of outstanding requests: as in batch.h. An address handle must live
// until the requests that name it have completed. Thread safety: one thread at a time. Source:
// mlx5dv_create_qp(3), mlx5dv_wr_post(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "rkv/export.h"
#include "rkv/rdma/batch.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/rdma/srq.h"
#include "rkv/result.h"

namespace rkv::rdma {

// Whether the device is an mlx5 device (mlx5dv_is_supported). The other calls fail on any other
// device.
RKV_EXPORT bool is_mlx5(const Device& device);

// A target: an address handle of the initiator's domain (ibv_create_ah(3)), and the numbers that
// the target sent.
struct DcDestination {
  ibv_ah* handle = nullptr;
  std::uint32_t target = 0;  // DcTarget::number()
  std::uint64_t access_key = 0;
};

// As BasicBatch, with a target for each operation.
class RKV_EXPORT DcBatch : public detail::DirectedBatch<DcBatch, DcDestination> {
 public:
  void write(std::uint64_t wr_id, OpFlags flags, const DcDestination& to, const Gather& from,
             const RemoteSpan& remote) {
    check_inside(from.size(), remote);
    gather(wr_id, flags, from, [&]() noexcept {
      ibv_wr_rdma_write(queue_, remote.rkey, remote.address);
      address(to);
    });
  }
  // The 8-byte old value is written to `old_value`.
  void compare_swap(std::uint64_t wr_id, OpFlags flags, const DcDestination& to,
                    const RegisteredSpan& old_value, const RemoteSpan& word, std::uint64_t expected,
                    std::uint64_t desired) {
    atomic(wr_id, flags, old_value, word, [&]() noexcept {
      ibv_wr_atomic_cmp_swp(queue_, word.rkey, word.address, expected, desired);
      address(to);
    });
  }
  void fetch_add(std::uint64_t wr_id, OpFlags flags, const DcDestination& to,
                 const RegisteredSpan& old_value, const RemoteSpan& word, std::uint64_t addend) {
    atomic(wr_id, flags, old_value, word, [&]() noexcept {
      ibv_wr_atomic_fetch_add(queue_, word.rkey, word.address, addend);
      address(to);
    });
  }

 private:
  friend class DcInitiator;
  friend class detail::DirectedBatch<DcBatch, DcDestination>;
  DcBatch(ibv_qp_ex* queue, const detail::RequestLimits& limits) : DirectedBatch(queue, limits) {}
  void address(const DcDestination& to);
};

struct DcInitiatorOptions {
  std::uint8_t port = 1;
  std::uint32_t gid_index = 0;  // RoCE
  std::uint32_t send_length = 128;
  Mtu mtu = Mtu::k1024;
  AckTimeout ack_timeout = kDefaultAckTimeout;
  std::uint8_t retry_count = kMaxRetryCount;
  std::uint8_t rnr_retry = kRnrRetryForever;
  std::uint8_t reads = 16;  // outstanding READs and atomics
  SendOps operations = kAllSendOps;
};

class RKV_EXPORT DcInitiator : public QueuePairBase {
 public:
  // Returns an initiator that is ready to send. It cannot receive.
  static Result<DcInitiator> create(const ProtectionDomain& pd, const CompletionQueue& sends,
                                    const DcInitiatorOptions& options);
  DcInitiator(DcInitiator&&) noexcept = default;
  DcInitiator& operator=(DcInitiator&&) noexcept = default;

  [[nodiscard]] DcBatch batch() RKV_LIFETIMEBOUND { return {extended_, limits_}; }

 private:
  DcInitiator() noexcept = default;
  Status activate(const DcInitiatorOptions& options);
};

struct DcTargetOptions {
  std::uint8_t port = 1;
  std::uint32_t gid_index = 0;   // RoCE
  std::uint64_t access_key = 0;  // requests with another key are refused
  AccessFlags remote_access = AccessFlags::kNone;
  Mtu mtu = Mtu::k1024;
  RnrTimer rnr_timer = kDefaultRnrTimer;
};

class RKV_EXPORT DcTarget : public QueuePairBase {
 public:
  // Returns a target that any number of initiators can reach; their messages consume receives of
  // `shared`.
  static Result<DcTarget> create(const ProtectionDomain& pd, const CompletionQueue& receives,
                                 const SharedReceiveQueue& shared, const DcTargetOptions& options);
  DcTarget(DcTarget&&) noexcept = default;
  DcTarget& operator=(DcTarget&&) noexcept = default;

 private:
  DcTarget() noexcept = default;
  Status activate(const DcTargetOptions& options);
};

}  // namespace rkv::rdma
