// VerbsListener: yields the connection requests of the connection manager.
#pragma once

#include "rdma/transport/verbs/shared.h"
#include "rdma/transport/waker.h"

namespace rkv::rdma::verbs {

class VerbsListener final : public Listener {
 public:
  static Result<std::unique_ptr<Listener>> listen(std::shared_ptr<const Shared> shared,
                                                  const SocketAddress& address);

  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override;
  std::uint16_t port() const override { return listener_.port(); }

 private:
  VerbsListener(std::shared_ptr<const Shared> shared, CmListener listener)
      : shared_(std::move(shared)), listener_(std::move(listener)) {}
  std::shared_ptr<const Shared> shared_;
  CmListener listener_;
  Waker waker_;
};

}  // namespace rkv::rdma::verbs
