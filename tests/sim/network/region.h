// SimRegion: registered memory of a host.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <utility>

#include "tests/sim/network/fabric.h"
#include "tests/sim/network/memory.h"

namespace rkv::rdma::sim {

class SimRegion final : public Region {
 public:
  SimRegion(std::shared_ptr<Fabric> fabric, std::shared_ptr<Host> host, std::size_t length,
            Access access)
      : fabric_(std::move(fabric)),
        host_(std::move(host)),
        bytes_(take_memory(length)),
        access_(access),
        key_(host_->next_key++) {
    host_->regions[key_ | Host::kLocalBit] = this;
    if (access_ != Access::kLocal) host_->regions[key_] = this;
  }
  ~SimRegion() override {
    host_->regions.erase(key_ | Host::kLocalBit);
    host_->regions.erase(key_);
    give_back_memory(bytes_);
  }
  SimRegion(const SimRegion&) = delete;
  SimRegion& operator=(const SimRegion&) = delete;

  MutableBytes bytes() const override { return bytes_; }
  std::uint32_t local_key() const override { return key_; }
  std::uint32_t remote_key() const override { return access_ == Access::kLocal ? 0 : key_; }
  Access access() const { return access_; }
  bool holds(std::uint64_t address, std::size_t length) const {
    return address >= this->address() && length <= bytes_.size() &&
           address - this->address() <= bytes_.size() - length;
  }

 private:
  std::shared_ptr<Fabric> fabric_;
  std::shared_ptr<Host> host_;
  MutableBytes bytes_;
  Access access_;
  std::uint32_t key_;
};

}  // namespace rkv::rdma::sim
