// SharedRegion: memory that the clients of several networks READ. It has one address, and a key for
// each network.
//
// Thread safety: as rdma::Region.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "rdma/transport/transport.h"

namespace rkv::server {

class SharedRegion final : public rdma::Region {
 public:
  // `memory` is the region of the last network. `registrations` are those of the other networks, in
  // their order.
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
  // Members are destroyed from the bottom: a device must forget the memory before its owner unmaps
  // it.
  std::unique_ptr<rdma::Region> memory_;
  std::vector<std::unique_ptr<rdma::Region>> registrations_;
};

}  // namespace rkv::server
