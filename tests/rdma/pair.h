// Two connected queue pairs on completion queues of the test's own choice.
#pragma once

#include "loopback.h"

namespace rkv::rdma::testing {

struct Pair {
  QueuePair a;
  QueuePair b;

  Pair(const ProtectionDomain& pd, const CompletionQueue& of_a, const CompletionQueue& of_b,
       const QueuePairOptions& options = {}, ConnectionParameters link = {})
      : a(need(QueuePair::create(pd, of_a, of_a, options))),
        b(need(QueuePair::create(pd, of_b, of_b, options))) {
    const Device& device = pd.device();
    const std::uint8_t port = need(device.first_active_port());
    const GidEntry gid = need(device.routable_gid(port));
    const Endpoint one = need(a.endpoint(port, gid));
    const Endpoint two = need(b.endpoint(port, gid));
    link.remote_access = kEverything;
    need(a.connect_directly(port, gid, one, two, link));
    need(b.connect_directly(port, gid, two, one, link));
  }
};

inline void send(QueuePair& qp, const RegisteredSpan& message, std::uint64_t wr_id,
                 OpFlags flags = OpFlags::kSignaled) {
  Batch batch = qp.batch();
  batch.send(wr_id, flags, message);
  need(std::move(batch).submit());
}

inline void post_receive(QueuePair& qp, const RegisteredSpan& buffer, std::uint64_t wr_id) {
  const ReceiveRequest request{wr_id, buffer};
  need(qp.post_receives(std::span(&request, 1)));
}

}  // namespace rkv::rdma::testing
