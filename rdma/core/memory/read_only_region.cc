#include "rkv/rdma/read_only_region.h"

namespace rkv::rdma {

Result<ReadOnlyRegion> ReadOnlyRegion::attach(const ProtectionDomain& pd, Bytes memory,
                                              AccessFlags access) {
  constexpr AccessFlags kStoring =
      AccessFlags::kLocalWrite | AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic;
  if ((access & kStoring) != AccessFlags::kNone) {
    return fail(Code::kInvalidArgument,
                "a read-only region takes no right to write: kLocalWrite, kRemoteWrite, "
                "kRemoteAtomic");
  }
  // Without these rights neither the kernel nor a device writes there.
  const MutableBytes same(const_cast<std::byte*>(memory.data()), memory.size());
  RKV_ASSIGN_OR_RETURN(MemoryRegion region, MemoryRegion::attach(pd, same, access));
  return ReadOnlyRegion(std::move(region));
}

}  // namespace rkv::rdma
