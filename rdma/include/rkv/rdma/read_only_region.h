// Registered memory that no device may write: constants, or a file that is mapped for reading.
//
//   RKV_ASSIGN_OR_RETURN(ReadOnlyRegion region,
//                        ReadOnlyRegion::attach(pd, as_bytes(table), AccessFlags::kRemoteRead));
//   qp.op(1).signaled().send(region.first(64));     // a source of SENDs and WRITEs
//   RemoteSpan offered = region.remote();           // for a peer that READs
//
// Its pieces are RegisteredSource: a READ into it, a receive or an atomic does not compile. The
// memory must stay mapped until the region is destroyed, and a span does not keep it alive. Thread
// safety: as MemoryRegion.
#pragma once

#include <utility>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT ReadOnlyRegion : public LocalSlices<ReadOnlyRegion, RegisteredSource> {
 public:
  // As MemoryRegion::attach(). kInvalidArgument: `access` lets a device write. Map a file with
  // MAP_PRIVATE: the kernel (seen on Linux 6.1) refuses pages that are shared and not writable.
  static Result<ReadOnlyRegion> attach(const ProtectionDomain& pd, Bytes memory,
                                       AccessFlags access = AccessFlags::kNone);
  ReadOnlyRegion(ReadOnlyRegion&&) noexcept = default;
  ReadOnlyRegion& operator=(ReadOnlyRegion&&) noexcept = default;

  Bytes bytes() const { return region_.bytes(); }
  std::size_t size() const { return region_.size(); }
  RegisteredSource local() const& RKV_LIFETIMEBOUND { return region_.local(); }
  RegisteredSource local() const&& = delete;  // as MemoryRegion::local()
  RemoteSpan remote() const { return region_.remote(); }
  ibv_mr* raw() const { return region_.raw(); }

 private:
  friend class LocalSlices<ReadOnlyRegion, RegisteredSource>;
  explicit ReadOnlyRegion(MemoryRegion region) : region_(std::move(region)) {}
  RegisteredSource cut(std::size_t offset, std::size_t length) const {
    return region_.subspan(offset, length);
  }
  Bytes bytes_if_addressable() const { return region_.bytes(); }

  MemoryRegion region_;
};

}  // namespace rkv::rdma
