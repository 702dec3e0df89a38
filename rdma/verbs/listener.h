// VerbsListener and its requests.
#pragma once

#include <atomic>

#include "rdma/verbs/shared.h"

namespace rkv::rdma::verbs {

class VerbsListener final : public Listener {
 public:
  static Result<std::unique_ptr<Listener>> listen(std::shared_ptr<const Shared> shared,
                                                  const SocketAddress& address);
  ~VerbsListener() override;
  VerbsListener(const VerbsListener&) = delete;
  VerbsListener& operator=(const VerbsListener&) = delete;

  Result<std::unique_ptr<Incoming>> next(const Deadline& deadline) override;
  void wake() override;
  std::uint16_t port() const override { return listener_.port(); }

 private:
  VerbsListener(std::shared_ptr<const Shared> shared, CmListener listener)
      : shared_(std::move(shared)), listener_(std::move(listener)) {}
  std::shared_ptr<const Shared> shared_;
  CmListener listener_;
  int wake_fd_ = -1;
};

}  // namespace rkv::rdma::verbs
