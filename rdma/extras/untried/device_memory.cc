#include "rkv/rdma/device_memory.h"

#include <bit>
#include <cerrno>
#include <utility>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {

Result<DeviceMemory> DeviceMemory::allocate(const Device& device, std::size_t length,
                                            std::size_t alignment) {
  if (length == 0) return fail(Code::kInvalidArgument, "device memory cannot have length 0");
  if (!std::has_single_bit(alignment)) {
    return fail(Code::kInvalidArgument, "alignment of device memory is a power of two");
  }
  ibv_alloc_dm_attr wanted{};
  wanted.length = length;
  wanted.log_align_req = static_cast<std::uint32_t>(std::countr_zero(alignment));
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_dm * raw,
                       from_null("ibv_alloc_dm", ibv_alloc_dm(device.raw(), &wanted)));
  std::shared_ptr<ibv_dm> memory(raw, [context = device.shared()](ibv_dm* old) {
    report_teardown(from_errno("ibv_free_dm", ibv_free_dm(old)));
  });
  return DeviceMemory(std::move(memory), length);
}

Status DeviceMemory::copy_in(std::size_t offset, Bytes bytes) {
  RKV_CHECK(lies_inside(offset, bytes.size(), length_),
            "a copy reaches past the end of device memory");
  return from_errno("ibv_memcpy_to_dm",
                    ibv_memcpy_to_dm(raw(), offset, bytes.data(), bytes.size()));
}

Status DeviceMemory::copy_out(std::size_t offset, MutableBytes bytes) const {
  RKV_CHECK(lies_inside(offset, bytes.size(), length_),
            "a copy reaches past the end of device memory");
  return from_errno("ibv_memcpy_from_dm",
                    ibv_memcpy_from_dm(bytes.data(), raw(), offset, bytes.size()));
}

Result<MemoryRegion> DeviceMemory::enroll(const ProtectionDomain& pd, std::size_t offset,
                                          std::size_t length, AccessFlags access) const {
  RKV_CHECK(lies_inside(offset, length, length_), "a region reaches past the end of device memory");
  if (length == 0) return fail(Code::kInvalidArgument, "a memory region cannot have length 0");
  if (!is_registrable(access)) {
    return fail(Code::kInvalidArgument,
                "remote writes and atomics need local write access on the region too");
  }
  access = access | AccessFlags::kZeroBased;
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_mr * region,
                       from_null("ibv_reg_dm_mr", ibv_reg_dm_mr(pd.raw(), raw(), offset, length,
                                                                std::to_underlying(access))));
  checked::region_begins(region, 0, length, {});
  return MemoryRegion({}, 0, length, access,
                      MemoryRegion::Handle(region, {.domain = pd.shared(), .storage = memory_}));
}

}  // namespace rkv::rdma
