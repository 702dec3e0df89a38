// Regions that are not a piece of memory: a null region that discards writes and reads as zero, and
// an implicit region that is this process's whole address space.
//
//   RKV_ASSIGN_OR_RETURN(NullRegion nothing, NullRegion::allocate(pd));
//   // Receive a header and discard the rest:
//   const std::array pieces = {header.local(), nothing.local(4000)};
//   // Send without registering first:
//   RKV_ASSIGN_OR_RETURN(ImplicitRegion all, ImplicitRegion::create(pd, AccessFlags::kLocalWrite));
//   batch.send(1, OpFlags::kSignaled, all.local(any_bytes));
//
// SoftRoCE of Linux 6.1 has neither: kUnsupported, naming the verb. Thread safety: handles. Source:
// ibv_alloc_null_mr(3), ibv_reg_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>

#include "rkv/export.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/domain.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/span.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT NullRegion {
 public:
  static Result<NullRegion> allocate(const ProtectionDomain& pd);
  NullRegion(NullRegion&&) = default;
  NullRegion& operator=(NullRegion&&) = default;
  // Any length, up to kMaxSgeBytes in one request. It has no remote form.
  RegisteredSpan local(std::size_t length) const& RKV_LIFETIMEBOUND {
    return RegisteredSpan::device_only(0, length, region_->lkey);
  }
  RegisteredSpan local(std::size_t length) const&& = delete;  // as MemoryRegion::local()
  ibv_mr* raw() const { return region_.get(); }

 private:
  explicit NullRegion(std::shared_ptr<ibv_mr> region) : region_(std::move(region)) {}
  std::shared_ptr<ibv_mr> region_;
};

// Paging on demand for every current and future address of the process. A remote flag gives a peer
// access to all of it, so that is refused (kInvalidArgument) unless `everything_to_peers`.
class RKV_EXPORT ImplicitRegion {
 public:
  static Result<ImplicitRegion> create(const ProtectionDomain& pd, AccessFlags access,
                                       bool everything_to_peers = false);
  ImplicitRegion(ImplicitRegion&&) = default;
  ImplicitRegion& operator=(ImplicitRegion&&) = default;
  // Any mapped bytes of this process.
  RegisteredSpan local(MutableBytes bytes) const& RKV_LIFETIMEBOUND {
    return RegisteredSpan::unchecked(bytes, region_->lkey);
  }
  RegisteredSpan local(MutableBytes bytes) const&& = delete;
  RemoteSpan remote(Bytes bytes) const {
    return {.address = reinterpret_cast<std::uint64_t>(bytes.data()),
            .length = bytes.size(),
            .rkey = region_->rkey};
  }
  ibv_mr* raw() const { return region_.get(); }

 private:
  explicit ImplicitRegion(std::shared_ptr<ibv_mr> region) : region_(std::move(region)) {}
  std::shared_ptr<ibv_mr> region_;
};

}  // namespace rkv::rdma
