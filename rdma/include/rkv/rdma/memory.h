// Registered memory: what the device may touch, and the only ways to name a piece of it.
//
//   RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
//   RKV_ASSIGN_OR_RETURN(MemoryRegion region,
//       MemoryRegion::allocate(pd, 1 << 20, AccessFlags::kLocalWrite | AccessFlags::kRemoteRead));
//   RegisteredSpan piece = region.local(0, 4096);       // for work requests posted here
//   RemoteSpan offered = region.remote();               // to tell a peer
//
// A span does not keep its region alive: the region must live until the work that names it has
// completed. Handles may be moved between threads; a region's bytes are the caller's to guard.
// Other kinds of memory: owned_region.h (the caller's buffers, lent), device_memory.h,
// region_pool.h (many pieces of one registration), special_regions.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

// What reregister() changes; what is left empty stays.
struct Reregistration {
  std::optional<AccessFlags> access = std::nullopt;
  std::optional<MutableBytes> memory = std::nullopt;  // must stay mapped until the region is gone
  const ProtectionDomain* domain = nullptr;
};

// A dma-buf: memory of another device (a GPU), by descriptor.
struct DmaBuf {
  int fd = -1;
  std::uint64_t offset = 0;
  std::size_t length = 0;
  // The address by which work requests will name its beginning; the same offset within a page as
  // `offset` has.
  std::uint64_t address = 0;
};

enum class Advice : unsigned char { kPrefetch, kPrefetchForWriting, kPrefetchPresentPagesOnly };

// What ibv_rereg_mr(3) has left of a region, by its answer and errno.
enum class AfterReregistration : unsigned char { kNew, kOld, kLost };
RKV_EXPORT AfterReregistration after_reregistration(int answer, int sys_errno);

class RKV_EXPORT MemoryRegion : public LocalSlices<MemoryRegion, RegisteredSpan> {
 public:
  // How allocate() gets its pages; pages.h offers more. All are page-aligned and zeroed.
  enum class Backing : unsigned char {
    kHeap,       // aligned heap memory: small buffers
    kPages,      // mmap: large or long-lived memory
    kHugePages,  // mmap with 2 MiB pages; falls back to kPages where none are free
  };

  // Allocates and registers; the memory lives as long as the region. kOutOfMemory (with advice
  // about the locked-memory limit; explain_registration() has the numbers), kInvalidArgument for
  // flags that verbs forbid together or a length of 0, kUnsupported for kOnDemand on a device
  // without it. System calls; touches every page.
  static Result<MemoryRegion> allocate(const ProtectionDomain& pd, std::size_t length,
                                       AccessFlags access, Backing backing = Backing::kPages);
  // Registers the caller's memory, which must stay mapped until the region is gone. Give whole
  // pages where the process may fork. Source: ibv_reg_mr(3).
  static Result<MemoryRegion> attach(const ProtectionDomain& pd, MutableBytes memory,
                                     AccessFlags access);
  // Registers another device's memory; bytes() is empty. kUnsupported where the provider has no
  // ibv_reg_dmabuf_mr (SoftRoCE). Flags: local write and the remote ones. The descriptor stays the
  // caller's.
  static Result<MemoryRegion> attach_dmabuf(const ProtectionDomain& pd, const DmaBuf& buffer,
                                            AccessFlags access);
  MemoryRegion(MemoryRegion&&) noexcept = default;
  MemoryRegion& operator=(MemoryRegion&&) noexcept = default;

  // Another registration in place of this one: other rights, other memory, another domain. The keys
  // may change: cut spans anew. No work may be under way on it, no window bound to it.
  // After an error usable() tells what is left of the region. It is as it was where the mistake was
  // found before the device was asked, and for kUnsupported (SoftRoCE has no ibv_rereg_mr); else
  // the device may have half of it, and the region can only be destroyed: it is empty then.
  // A region that owned its memory gives that up when other memory takes its place.
  // Source: ibv_rereg_mr(3), whose error codes sort into these two.
  Status reregister(const Reregistration& change);
  bool usable() const { return usable_ && region_ != nullptr; }

  // Ends the registration while the handle lives, for who wants to see an error: devices refuse
  // while a window is still bound to it (EBUSY, SoftRoCE EINVAL), and then nothing has changed.
  // Afterwards the region is empty; its memory is freed with the handle.
  Status deregister();

  // For regions with AccessFlags::kOnDemand: bring pages of it in before work names them. A wish:
  // the pages may leave again. `wait`: return when the device knows them. kUnsupported naming
  // ibv_advise_mr where the provider has none (SoftRoCE).
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
  // Of a region that ends with the statement: its memory would be gone before the work is done.
  RegisteredSpan local() const&& = delete;
  RegisteredSpan local(std::size_t offset, std::size_t length) const&& = delete;
  RemoteSpan remote() const { return {.address = address_, .length = length_, .rkey = rkey()}; }
  // nullptr after deregister().
  ibv_mr* raw() const { return region_.get(); }

 private:
  friend class LocalSlices<MemoryRegion, RegisteredSpan>;
  friend class DeviceMemory;
  // Keeps what the registration rests on until after it has ended.
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
  void forget();

  MutableBytes bytes_;
  std::uint64_t address_ = 0;  // by which the device knows the beginning
  std::size_t length_ = 0;
  AccessFlags access_ = AccessFlags::kNone;
  bool usable_ = true;
  Handle region_;
};

// What this process may lock, and has locked: registered memory counts, and the limit is what
// registrations fail of most. Source: getrlimit(2), proc(5).
struct LockedMemory {
  std::uint64_t limit_bytes = 0;  // ~0: no limit
  std::uint64_t used_bytes = 0;   // locked and pinned
  bool exempt = false;            // has the right (CAP_IPC_LOCK) to pass the limit
  bool unlimited() const { return exempt || limit_bytes == ~std::uint64_t{0}; }
};
RKV_EXPORT LockedMemory locked_memory();
// The error of a registration of `asked` bytes as text, with the numbers where the locked-memory
// limit is to blame: how much was asked, how much is allowed, how much is used.
RKV_EXPORT std::string explain_registration(const Error& error, std::uint64_t asked,
                                            const LockedMemory& now);

}  // namespace rkv::rdma
