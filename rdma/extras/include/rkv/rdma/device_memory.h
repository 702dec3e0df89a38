// Memory on the adapter itself: requests that name it do not cross the bus.
//
//   RKV_ASSIGN_OR_RETURN(DeviceMemory counters, DeviceMemory::allocate(device, 4096));
//   RKV_RETURN_IF_ERROR(counters.copy_in(0, initial));
//   RKV_ASSIGN_OR_RETURN(MemoryRegion region, counters.enroll(pd, 0, 4096, access));
//   batch.fetch_add(1, OpFlags::kSignaled, old_value,
//                   *region.remote().element<std::uint64_t>(3), 1);
//
// The CPU can access it only by copies. Addresses in its regions count from zero. Copies are
// bounded: a copy past the end aborts. On SoftRoCE: kUnsupported naming ibv_alloc_dm. Thread
// safety: the caller orders overlapping copies. Never seen working (rdma/README.md). Source:
// ibv_alloc_dm(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "rkv/bytes.h"
#include "rkv/export.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT DeviceMemory {
 public:
  // `alignment` is a power of two; 8 for atomics. kOutOfMemory: the adapter has no more memory.
  // kInvalidArgument for a length of 0 or another alignment.
  static Result<DeviceMemory> allocate(const Device& device, std::size_t length,
                                       std::size_t alignment = 8);
  DeviceMemory(DeviceMemory&&) = default;
  DeviceMemory& operator=(DeviceMemory&&) = default;

  // REQUIRES: [offset, offset + bytes.size()) lies inside.
  Status copy_in(std::size_t offset, Bytes bytes);
  Status copy_out(std::size_t offset, MutableBytes bytes) const;

  // Registers a part as a region; kZeroBased is added to the flags. The region keeps the memory
  // alive. REQUIRES: the part lies inside.
  Result<MemoryRegion> enroll(const ProtectionDomain& pd, std::size_t offset, std::size_t length,
                              AccessFlags access) const;
  std::size_t size() const { return length_; }
  ibv_dm* raw() const { return memory_.get(); }

 private:
  DeviceMemory(std::shared_ptr<ibv_dm> memory, std::size_t length)
      : memory_(std::move(memory)), length_(length) {}
  std::shared_ptr<ibv_dm> memory_;
  std::size_t length_;
};

}  // namespace rkv::rdma
