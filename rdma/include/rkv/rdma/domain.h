// Protection domains group the objects that may be used together, and isolate tenants.
//
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
//
// A key of one domain is refused on the queue pairs of another: a domain per tenant isolates
// tenants.
//
// Thread safety: handles may be moved and shared between threads.
// Source: ibv_alloc_pd(3).
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT ProtectionDomain {
 public:
  static Result<ProtectionDomain> allocate(const Device& device);
  // Wraps a domain that its creator destroys.
  static ProtectionDomain adopt(const Device& device, std::shared_ptr<ibv_pd> pd) {
    return {device.share(), std::move(pd)};
  }
  ProtectionDomain(ProtectionDomain&&) = default;
  ProtectionDomain& operator=(ProtectionDomain&&) = default;
  // Returns another handle to the same domain. The domain is deallocated with its last handle,
  // region or queue.
  ProtectionDomain share() const { return {device_.share(), pd_}; }

  const Device& device() const { return device_; }
  ibv_pd* raw() const { return pd_.get(); }
  const std::shared_ptr<ibv_pd>& shared() const { return pd_; }

 private:
  ProtectionDomain(Device device, std::shared_ptr<ibv_pd> pd)
      : device_(std::move(device)), pd_(std::move(pd)) {}
  Device device_;
  std::shared_ptr<ibv_pd> pd_;
};

}  // namespace rkv::rdma
