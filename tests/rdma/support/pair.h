// Two connected queue pairs on completion queues of the test's own choice.
#pragma once

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

struct Pair {
  QueuePair a;
  QueuePair b;

  Pair(const ProtectionDomain& pd, const CompletionQueue& of_a, const CompletionQueue& of_b,
       const QueuePairOptions& options = {})
      : Pair(pd, need(QueuePair::create(pd, of_a, of_a, options)),
             need(QueuePair::create(pd, of_b, of_b, options))) {}

 private:
  Pair(const ProtectionDomain& pd, PreparedQueuePair<Rc> one, PreparedQueuePair<Rc> two)
      : Pair(std::move(one), std::move(two), endpoint(pd.device(), one),
             endpoint(pd.device(), two)) {}
  Pair(PreparedQueuePair<Rc>&& one, PreparedQueuePair<Rc>&& two, const Endpoint& of_one,
       const Endpoint& of_two)
      : a(need(std::move(one).handshake(of_two, {.remote_access = kEverything}))),
        b(need(std::move(two).handshake(of_one, {.remote_access = kEverything}))) {}
  static Endpoint endpoint(const Device& device, PreparedQueuePair<Rc>& qp) {
    const std::uint8_t port = need(device.first_active_port());
    return need(qp.endpoint(port, need(device.routable_gid(port)), {}));
  }
};

inline void send(QueuePair& qp, const RegisteredSpan& message, std::uint64_t wr_id,
                 OpFlags flags = OpFlags::kSignaled) {
  Batch batch = qp.batch();
  batch.send(wr_id, flags, message);
  need(std::move(batch).submit());
}

inline void post_receive(QueuePairBase& qp, const RegisteredSpan& buffer, std::uint64_t wr_id) {
  const ReceiveRequest request{wr_id, buffer};
  need(qp.post_receives(std::span(&request, 1)));
}

}  // namespace rkv::rdma::testing
