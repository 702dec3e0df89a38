// Protection domains: what belongs together, and what keeps tenants apart.
//
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
//   RKV_ASSIGN_OR_RETURN(ThreadDomain mine, ThreadDomain::allocate(device));
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain lockless, ProtectionDomain::allocate_parent(pd, &mine));
//
// A key of one domain is refused on the queue pairs of another: a domain per tenant isolates
// tenants. A parent domain stands for the domain it was made of - regions, queue pairs and queues
// may be made from either and work together - and adds a thread domain, whose promise that one
// thread at a time uses the objects made from it lets the provider leave out its locks.
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
  // kUnsupported naming ibv_alloc_td where the provider has none (SoftRoCE).
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
  // `of` (and `thread`) live as long as the new one. REQUIRES: both on the same opened device.
  // kUnsupported naming ibv_alloc_parent_domain where the provider has none (SoftRoCE).
  static Result<ProtectionDomain> allocate_parent(const ProtectionDomain& of,
                                                  const ThreadDomain* thread = nullptr);
  // A domain that somebody else destroys: see import.h.
  static ProtectionDomain adopt(const Device& device, std::shared_ptr<ibv_pd> pd) {
    return {device.share(), std::move(pd)};
  }
  ProtectionDomain(ProtectionDomain&&) = default;
  ProtectionDomain& operator=(ProtectionDomain&&) = default;
  // Another handle to the same domain; it is deallocated with the last handle, region or queue.
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
