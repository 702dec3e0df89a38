// Memory that the clients of several networks READ: one address, and of each network a key.
//
// Thread safety: as rdma::Region.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rdma/transport.h"

namespace rkv::server {

class SharedRegion final : public rdma::Region {
 public:
  // `memory` belongs to the last network, the others have it registered: in their order.
  SharedRegion(std::unique_ptr<rdma::Region> memory,
               std::vector<std::unique_ptr<rdma::Region>> registrations)
      : memory_(std::move(memory)), registrations_(std::move(registrations)) {}

  MutableBytes bytes() const override { return memory_->bytes(); }
  std::uint32_t local_key() const override { return of(0).local_key(); }
  std::uint32_t remote_key() const override { return of(0).remote_key(); }
  const rdma::Region& of(std::size_t network) const {
    return network < registrations_.size() ? *registrations_[network] : *memory_;
  }

 private:
  // Destroyed from the bottom: a device must forget the memory before its owner unmaps it.
  std::unique_ptr<rdma::Region> memory_;
  std::vector<std::unique_ptr<rdma::Region>> registrations_;
};

}  // namespace rkv::server
