// Two connected queue pairs on completion queues of the test's own choice; connected as loopback.h
// says.
#pragma once

#include <optional>
#include <utility>

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

struct Pair {
  QueuePair a;
  QueuePair b;

  Pair(const ProtectionDomain& pd, const CompletionQueue& of_a, const CompletionQueue& of_b,
       const QueuePairOptions& options = {})
      : Pair(connected(pd, need(QueuePair::create(pd, of_a, of_a, options)),
                       need(QueuePair::create(pd, of_b, of_b, options)))) {}

 private:
  struct Both {
    QueuePair a;
    QueuePair b;
    std::optional<ConnectedByAddress> by_address;  // without the queue pairs
  };
  explicit Pair(Both both)
      : a(std::move(both.a)), b(std::move(both.b)), by_address_(std::move(both.by_address)) {}
  static Both connected(const ProtectionDomain& pd, PreparedQueuePair<Rc> one,
                        PreparedQueuePair<Rc> two) {
    const ConnectionParameters link{.remote_access = kEverything};
    if (need(pd.device().attributes()).iwarp) {
      ConnectedByAddress both = connect_by_address(std::move(one), link, std::move(two), link);
      QueuePair a = std::move(both.client.qp);
      QueuePair b = std::move(both.server.qp);
      return {.a = std::move(a), .b = std::move(b), .by_address = std::move(both)};
    }
    const Endpoint of_one = endpoint(pd.device(), one);
    const Endpoint of_two = endpoint(pd.device(), two);
    QueuePair a = need(std::move(one).handshake(of_two, link));
    QueuePair b = need(std::move(two).handshake(of_one, link));
    return {.a = std::move(a), .b = std::move(b), .by_address = std::nullopt};
  }
  static Endpoint endpoint(const Device& device, PreparedQueuePair<Rc>& qp) {
    const std::uint8_t port = need(device.first_active_port());
    return need(qp.endpoint(port, need(device.routable_gid(port)), {}));
  }

  std::optional<ConnectedByAddress> by_address_;
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
