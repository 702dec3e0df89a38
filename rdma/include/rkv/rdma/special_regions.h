// Regions that are no piece of memory: one that swallows what is written and reads as zero, and one
// that is this process's whole address space.
//
//   RKV_ASSIGN_OR_RETURN(NullRegion nothing, NullRegion::allocate(pd));
//   const std::array pieces = {header.local(), nothing.local(4000)};  // receive a header, drop the
//   rest RKV_ASSIGN_OR_RETURN(ImplicitRegion all, ImplicitRegion::create(pd,
//   AccessFlags::kLocalWrite)); batch.send(1, OpFlags::kSignaled, all.local(any_bytes)); // nothing
//   to register first
//
// Neither is on SoftRoCE of Linux 6.1: kUnsupported, naming the verb. Thread safety: handles.
// Source: ibv_alloc_null_mr(3), ibv_reg_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>

#include "rkv/export.h"
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
  // As long as wanted, up to kMaxSgeBytes in one request. It has no remote form.
  RegisteredSpan local(std::size_t length) const {
    return RegisteredSpan::device_only(0, length, region_->lkey);
  }
  ibv_mr* raw() const { return region_.get(); }

 private:
  explicit NullRegion(std::shared_ptr<ibv_mr> region) : region_(std::move(region)) {}
  std::shared_ptr<ibv_mr> region_;
};

// Paging on demand over every address that the process has or will have. With a remote flag a peer
// reaches all of it: then it is refused here (kInvalidArgument) unless `everything_to_peers`.
class RKV_EXPORT ImplicitRegion {
 public:
  static Result<ImplicitRegion> create(const ProtectionDomain& pd, AccessFlags access,
                                       bool everything_to_peers = false);
  ImplicitRegion(ImplicitRegion&&) = default;
  ImplicitRegion& operator=(ImplicitRegion&&) = default;
  // Any mapped bytes of this process.
  RegisteredSpan local(MutableBytes bytes) const {
    return RegisteredSpan::unchecked(bytes, region_->lkey);
  }
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
