#include "rkv/rdma/memory.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/bytes.h"
#include "rdma/core/checked/checked_hooks.h"
#include "rdma/core/memory/page_size.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

Result<std::shared_ptr<void>> take_heap(std::size_t length) {
  const std::size_t whole = round_up(length, small_page_bytes());
  void* memory = whole < length ? nullptr : std::aligned_alloc(small_page_bytes(), whole);
  if (memory == nullptr) {
    return fail_call(Code::kOutOfMemory, "aligned_alloc", ENOMEM,
                     "this machine does not have that much memory");
  }
  std::memset(memory, 0, whole);
  return std::shared_ptr<void>(memory, [](void* old) { std::free(old); });
}

// Owns the pages; the pointer is their first byte.
Result<std::shared_ptr<void>> take_pages(std::size_t length, PageSize size) {
  RKV_ASSIGN_OR_RETURN(Pages pages, Pages::map(length, {.size = size}));
  auto owner = std::make_shared<Pages>(std::move(pages));
  void* const begin = owner->bytes().data();
  return std::shared_ptr<void>(std::move(owner), begin);
}

Status check_flags(const ProtectionDomain& pd, AccessFlags access) {
  if (!is_registrable(access)) {
    return fail(Code::kInvalidArgument,
                "remote writes and atomics need local write access on the region too");
  }
  if (!has(access, AccessFlags::kOnDemand)) return {};
  // Checked here because the kernel would return only EINVAL.
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes device, pd.device().attributes());
  if (device.on_demand_paging) return {};
  return fail_call(Code::kUnsupported, "ibv_reg_mr", EOPNOTSUPP,
                   "this device does not support on-demand paging");
}

}  // namespace

void MemoryRegion::Deregister::operator()(ibv_mr* region) const {
  checked::region_ends(region);
  report_teardown(from_errno("ibv_dereg_mr", ibv_dereg_mr(region)));
}

Result<MemoryRegion> MemoryRegion::enroll(const ProtectionDomain& pd, MutableBytes memory,
                                          AccessFlags access, std::shared_ptr<void> storage) {
  if (memory.empty()) return fail(Code::kInvalidArgument, "a memory region cannot have length 0");
  RKV_RETURN_IF_ERROR(check_flags(pd, access));
  const std::uint64_t address =
      has(access, AccessFlags::kZeroBased) ? 0 : reinterpret_cast<std::uint64_t>(memory.data());
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      ibv_mr * raw, from_null("ibv_reg_mr", ibv_reg_mr_iova(pd.raw(), memory.data(), memory.size(),
                                                            address, std::to_underlying(access))));
  checked::region_begins(raw, address, memory.size(), memory);
  return MemoryRegion(memory, address, memory.size(), access,
                      Handle(raw, {.domain = pd.shared(), .storage = std::move(storage)}));
}

Result<MemoryRegion> MemoryRegion::allocate(const ProtectionDomain& pd, std::size_t length,
                                            AccessFlags access, Backing backing) {
  if (length == 0) return fail(Code::kInvalidArgument, "a memory region cannot have length 0");
  const PageSize size = backing == Backing::kHugePages ? PageSize::k2MiB : PageSize::kSmall;
  RKV_ASSIGN_OR_RETURN(std::shared_ptr<void> storage,
                       backing == Backing::kHeap ? take_heap(length) : take_pages(length, size));
  const MutableBytes bytes(static_cast<std::byte*>(storage.get()), length);
  return enroll(pd, bytes, access, std::move(storage));
}

Result<MemoryRegion> MemoryRegion::attach(const ProtectionDomain& pd, MutableBytes memory,
                                          AccessFlags access) {
  return enroll(pd, memory, access, nullptr);
}

Result<MemoryRegion> MemoryRegion::attach_dmabuf(const ProtectionDomain& pd, const DmaBuf& buffer,
                                                 AccessFlags access) {
  constexpr AccessFlags kAllowed = AccessFlags::kLocalWrite | AccessFlags::kRemoteRead |
                                   AccessFlags::kRemoteWrite | AccessFlags::kRemoteAtomic |
                                   AccessFlags::kRelaxedOrdering;
  if (buffer.length == 0) {
    return fail(Code::kInvalidArgument, "a memory region cannot have length 0");
  }
  if ((access & kAllowed) != access) {
    return fail(Code::kInvalidArgument,
                "a dma-buf takes only kRelaxedOrdering and the flags for local and remote access");
  }
  if (buffer.offset % small_page_bytes() != buffer.address % small_page_bytes()) {
    return fail(Code::kInvalidArgument,
                "offset and address of a dma-buf must lie at the same place within a page");
  }
  RKV_RETURN_IF_ERROR(check_flags(pd, access));
  errno = 0;
  RKV_ASSIGN_OR_RETURN(
      ibv_mr * raw,
      from_null("ibv_reg_dmabuf_mr",
                ibv_reg_dmabuf_mr(pd.raw(), buffer.offset, buffer.length, buffer.address, buffer.fd,
                                  static_cast<int>(std::to_underlying(access)))));
  checked::region_begins(raw, buffer.address, buffer.length, {});
  return MemoryRegion({}, buffer.address, buffer.length, access,
                      Handle(raw, {.domain = pd.shared(), .storage = nullptr}));
}

Status MemoryRegion::deregister() {
  RKV_CHECK(region_ != nullptr, "deregister() needs a region that is registered");
  checked::region_ends(region_.get());
  const Status ended = from_errno("ibv_dereg_mr", ibv_dereg_mr(region_.get()));
  if (!ended) {
    checked::region_begins(region_.get(), address_, length_, bytes_);
    return ended;
  }
  std::ignore = region_.release();
  bytes_ = {};
  length_ = 0;
  return {};
}

Status MemoryRegion::advise(Advice advice, const RegisteredSpan& piece, bool wait) const {
  constexpr ibv_advise_mr_advice kNames[] = {IBV_ADVISE_MR_ADVICE_PREFETCH,
                                             IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                             IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT};
  RKV_CHECK(piece.lkey() == lkey(), "the piece belongs to another region");
  ibv_sge range = piece.sge();
  return from_errno("ibv_advise_mr",
                    ibv_advise_mr(registered()->pd, kNames[std::to_underlying(advice)],
                                  wait ? std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH} : 0U, &range, 1));
}

}  // namespace rkv::rdma
