// Protection domains group the objects that may be used together, and isolate tenants.
//
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
//   RKV_ASSIGN_OR_RETURN(ThreadDomain mine, ThreadDomain::allocate(device));
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain lockless, ProtectionDomain::allocate_parent(pd, &mine));
//
// A key of one domain is refused on the queue pairs of another: a domain per tenant isolates
// tenants.
//
// A parent domain represents the domain it was created from: regions, queue pairs and queues may be
// created from either and work together. It adds a thread domain: the promise that one thread at a
// time uses the objects created from it. The provider can then omit its locks.
//
// Thread safety: handles may be moved and shared between threads.
// Source: ibv_alloc_pd(3), ibv_alloc_td(3), ibv_alloc_parent_domain(3).
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/device.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT ThreadDomain {
 public:
  // kUnsupported naming ibv_alloc_td if the provider has no thread domains (SoftRoCE).
  static Result<ThreadDomain> allocate(const Device& device);
  ThreadDomain(ThreadDomain&&) = default;
  ThreadDomain& operator=(ThreadDomain&&) = default;

  const Device& device() const { return device_; }
  ibv_td* raw() const { return domain_.get(); }

 private:
  friend class ProtectionDomain;
  ThreadDomain(Device device, std::shared_ptr<ibv_td> domain)
      : device_(std::move(device)), domain_(std::move(domain)) {}
  Device device_;
  std::shared_ptr<ibv_td> domain_;
};

class RKV_EXPORT ProtectionDomain {
 public:
  static Result<ProtectionDomain> allocate(const Device& device);
  // The parent domain keeps `of` and `thread` alive. kUnsupported naming ibv_alloc_parent_domain if
  // the provider has none (SoftRoCE). REQUIRES: both are on the same opened device.
  static Result<ProtectionDomain> allocate_parent(const ProtectionDomain& of,
                                                  const ThreadDomain* thread = nullptr);
  // Wraps a domain that its creator destroys: see import.h.
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
