// Amazon's EFA: queue pairs of its transport SRD (scalable reliable datagram). SRD is reliable and
// unordered: each message names its receiver, is delivered once, and may overtake others. Component
// rkv::rdma_efa.
//
//   RKV_ASSIGN_OR_RETURN(SrdQueuePair qp,
//       SrdQueuePair::create(pd, cq, cq, {.port = 1, .qkey = 0x1234}));
//   SrdBatch batch = qp.batch();
//   batch.send(1, OpFlags::kSignaled, {.handle = peer_address, .qp_num = n, .qkey = k}, message);
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());
//
// On every other device each call returns kUnsupported and names its verb. This code has never run
// on an EFA device: none was available.
//
// Buffers and the counting of outstanding requests: as in batch.h. Completions arrive in any order,
// so signal each request whose completion matters. An address handle must live until the requests
// that name it have completed. Thread safety: one thread at a time. Source: efadv_create_qp_ex(3),
// efadv_query_device(3), ibv_wr_post(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "rkv/export.h"
#include "rkv/rdma/batch.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct EfaAttributes {
  std::uint32_t max_send_requests = 0;
  std::uint32_t max_receive_requests = 0;
  std::uint32_t max_send_sge = 0;
  std::uint32_t max_receive_sge = 0;
  std::uint32_t max_inline_bytes = 0;
  std::uint32_t max_read_bytes = 0;
  bool reads = false;        // RDMA READ
  bool rnr_retries = false;  // the sender can wait for a receiver without a posted receive
};
// efadv_query_device(3).
RKV_EXPORT Result<EfaAttributes> efa_attributes(const Device& device);

// A receiver: an address handle of the sender's domain (ibv_create_ah(3)), and the numbers that the
// receiver sent.
struct SrdDestination {
  ibv_ah* handle = nullptr;
  std::uint32_t qp_num = 0;
  std::uint32_t qkey = 0;
};

// As BasicBatch, with a receiver for each operation. Messages are at most one MTU long. read()
// REQUIRES: SrdQueuePair::has_reads(). A READ has at most EfaAttributes::max_read_bytes.
class RKV_EXPORT SrdBatch : public detail::DirectedBatch<SrdBatch, SrdDestination> {
  friend class SrdQueuePair;
  friend class detail::DirectedBatch<SrdBatch, SrdDestination>;
  SrdBatch(ibv_qp_ex* queue, const detail::RequestLimits& limits) : DirectedBatch(queue, limits) {}
  void address(const SrdDestination& to) {
    ibv_wr_set_ud_addr(queue_, to.handle, to.qp_num, to.qkey);
  }
};

struct SrdOptions {
  std::uint8_t port = 1;
  std::uint32_t qkey = 0;  // messages with another Q_Key are dropped
  std::uint32_t send_length = 128;
  std::uint32_t receive_length = 128;
  std::uint32_t inline_bytes = 0;
};

class RKV_EXPORT SrdQueuePair : public QueuePairBase {
 public:
  // Returns a queue pair that is ready to send and receive: SRD has no connection. kUnsupported on
  // other devices.
  static Result<SrdQueuePair> create(const ProtectionDomain& pd, const CompletionQueue& sends,
                                     const CompletionQueue& receives, const SrdOptions& options);
  SrdQueuePair(SrdQueuePair&&) noexcept = default;
  SrdQueuePair& operator=(SrdQueuePair&&) noexcept = default;

  [[nodiscard]] SrdBatch batch() RKV_LIFETIMEBOUND { return {extended_, limits_}; }
  bool has_reads() const { return has_reads_; }

 private:
  SrdQueuePair() noexcept = default;
  Status activate(const SrdOptions& options);
  bool has_reads_ = false;
};

}  // namespace rkv::rdma
