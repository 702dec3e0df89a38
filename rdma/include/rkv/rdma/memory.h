// Registered memory: memory that a device may access, and the types that name pieces of it.
//
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
//   RKV_ASSIGN_OR_RETURN(MemoryRegion region,
//       MemoryRegion::allocate(pd, 1 << 20, AccessFlags::kLocalWrite | AccessFlags::kRemoteRead));
//   RegisteredSpan piece = region.local(0, 4096);       // for work requests posted here
//   RemoteSpan offered = region.remote();               // to send to a peer
//
// A span does not keep its region alive: the region must live until the work that names it has
// completed. Handles may be moved between threads; the caller synchronizes access to a region's
// bytes. Source: ibv_reg_mr(3), ibv_advise_mr(3).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rkv/bytes.h"
#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/domain.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/pages.h"
#include "rkv/rdma/span.h"
#include "rkv/result.h"

namespace rkv::rdma {

// A dma-buf: memory of another device (a GPU), named by a descriptor.
struct DmaBuf {
  int fd = -1;
  std::uint64_t offset = 0;
  std::size_t length = 0;
  // The address by which work requests name its beginning. It must have the same offset within a
  // page as `offset`.
  std::uint64_t address = 0;
};

enum class Advice : unsigned char { kPrefetch, kPrefetchForWriting, kPrefetchPresentPagesOnly };

class RKV_EXPORT MemoryRegion : public LocalSlices<MemoryRegion, RegisteredSpan> {
 public:
  // The source of allocate()'s pages; pages.h offers more. All are page-aligned and zeroed.
  enum class Backing : unsigned char {
    kHeap,       // aligned heap memory: small buffers
    kPages,      // mmap: large or long-lived memory
    kHugePages,  // mmap with 2 MiB pages; falls back to kPages if none are free
  };

  // Allocates and registers memory that lives as long as the region. kOutOfMemory: with advice
  // about the locked-memory limit; explain_registration() has the numbers. kInvalidArgument: a flag
  // combination that verbs forbid, or a length of 0. kUnsupported: kOnDemand on a device without
  // it. Makes system calls and touches every page.
  static Result<MemoryRegion> allocate(const ProtectionDomain& pd, std::size_t length,
                                       AccessFlags access, Backing backing = Backing::kPages);
  // Registers the caller's memory, which must stay mapped until the region is destroyed. Pass whole
  // pages if the process may fork. Source: ibv_reg_mr(3).
  static Result<MemoryRegion> attach(const ProtectionDomain& pd, MutableBytes memory,
                                     AccessFlags access);
  // Registers another device's memory; bytes() is empty. The caller keeps the descriptor and closes
  // it. Flags: local write, the remote ones, and kRelaxedOrdering. kUnsupported if the provider has
  // no ibv_reg_dmabuf_mr (SoftRoCE).
  static Result<MemoryRegion> attach_dmabuf(const ProtectionDomain& pd, const DmaBuf& buffer,
                                            AccessFlags access);
  MemoryRegion(MemoryRegion&&) noexcept = default;
  MemoryRegion& operator=(MemoryRegion&&) noexcept = default;

  // False after deregister(), and for a region that was moved from.
  bool usable() const { return region_ != nullptr; }

  // Ends the registration while the handle lives, for callers that need the error. Devices refuse
  // while a window is still bound to the region (EBUSY, SoftRoCE EINVAL); then nothing has changed.
  // On success the region is empty; its memory is freed with the handle.
  Status deregister();

  // For regions with AccessFlags::kOnDemand: brings pages in before work names them. A hint: the
  // pages may be evicted again. `wait`: return once the device has mapped them. kUnsupported naming
  // ibv_advise_mr if the provider has none (SoftRoCE).
  Status advise(Advice advice, const RegisteredSpan& piece, bool wait = false) const;

  // Empty for memory that the CPU cannot address.
  MutableBytes bytes() const { return bytes_; }
  std::size_t size() const { return length_; }
  AccessFlags access() const { return access_; }
  // REQUIRES: the registration has not ended.
  std::uint32_t lkey() const { return registered()->lkey; }
  std::uint32_t rkey() const { return registered()->rkey; }

  RegisteredSpan local() const& RKV_LIFETIMEBOUND { return cut(0, length_); }
  // REQUIRES: the piece lies inside the region.
  RegisteredSpan local(std::size_t offset, std::size_t length) const& RKV_LIFETIMEBOUND {
    return subspan(offset, length);
  }
  // Deleted for temporaries: the memory would be freed before the work is done.
  RegisteredSpan local() const&& = delete;
  RegisteredSpan local(std::size_t offset, std::size_t length) const&& = delete;
  RemoteSpan remote() const { return {.address = address_, .length = length_, .rkey = rkey()}; }
  // nullptr after deregister().
  ibv_mr* raw() const { return region_.get(); }

 private:
  friend class LocalSlices<MemoryRegion, RegisteredSpan>;
  // Keeps the registration's domain and storage alive until the registration has ended.
  struct Deregister {
    std::shared_ptr<ibv_pd> domain;
    std::shared_ptr<void> storage;
    void operator()(ibv_mr* region) const;
  };
  using Handle = std::unique_ptr<ibv_mr, Deregister>;

  MemoryRegion(MutableBytes bytes, std::uint64_t address, std::size_t length, AccessFlags access,
               Handle region)
      : bytes_(bytes),
        address_(address),
        length_(length),
        access_(access),
        region_(std::move(region)) {}
  static Result<MemoryRegion> enroll(const ProtectionDomain& pd, MutableBytes memory,
                                     AccessFlags access, std::shared_ptr<void> storage);
  RegisteredSpan cut(std::size_t offset, std::size_t length) const {
    const auto same = reinterpret_cast<std::uint64_t>(bytes_.data()) == address_;
    if (same && !bytes_.empty()) [[likely]]
      return RegisteredSpan::unchecked({bytes_.data() + offset, length}, lkey());
    return RegisteredSpan::device_only(address_ + offset, length, lkey());
  }
  Bytes bytes_if_addressable() const { return bytes_; }
  const ibv_mr* registered() const {
    RKV_CHECK(region_ != nullptr, "a key of a registration that has ended");
    return region_.get();
  }

  MutableBytes bytes_;
  std::uint64_t address_ = 0;  // the address of the beginning in work requests
  std::size_t length_ = 0;
  AccessFlags access_ = AccessFlags::kNone;
  Handle region_;
};

// The locked-memory limit of this process and the memory counted against it. Registered memory
// counts, and this limit is the most common cause of failed registrations. Source: getrlimit(2),
// proc(5).
struct LockedMemory {
  std::uint64_t limit_bytes = 0;  // ~0: no limit
  std::uint64_t used_bytes = 0;   // locked and pinned
  bool exempt = false;            // may exceed the limit (CAP_IPC_LOCK)
  bool unlimited() const { return exempt || limit_bytes == ~std::uint64_t{0}; }
};
RKV_EXPORT LockedMemory locked_memory();
// The error of a registration of `asked` bytes as text. If the locked-memory limit is the cause,
// the text has the numbers: bytes requested, allowed and used.
RKV_EXPORT std::string explain_registration(const Error& error, std::uint64_t asked,
                                            const LockedMemory& now);

}  // namespace rkv::rdma
