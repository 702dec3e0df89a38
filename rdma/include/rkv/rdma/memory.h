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
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "rkv/bytes.h"
#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/device.h"
#include "rkv/rdma/flags.h"
#include "rkv/result.h"

namespace rkv::rdma {

class RKV_EXPORT ProtectionDomain {
 public:
  // ibv_alloc_pd(3).
  static Result<ProtectionDomain> allocate(const Device& device);
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

// Longest message of any verbs device: lengths in a work request are 32 bits wide.
inline constexpr std::size_t kMaxSgeBytes = 0x8000'0000;

// A piece of registered local memory. Comes from MemoryRegion::local(), which checks the bounds, or
// from unchecked() where key and memory travelled through code that does not know regions.
class RKV_EXPORT RegisteredSpan {
 public:
  RegisteredSpan() = default;
  // The caller answers for `bytes` lying inside the region that `lkey` names; if not, the device
  // refuses with a local protection error and the queue pair dies.
  static RegisteredSpan unchecked(MutableBytes bytes, std::uint32_t lkey) { return {bytes, lkey}; }

  // REQUIRES: the piece lies inside this span.
  RegisteredSpan subspan(std::size_t offset, std::size_t length) const {
    RKV_CHECK(offset <= bytes_.size() && length <= bytes_.size() - offset,
              "a slice of registered memory reaches past its end");
    return {bytes_.subspan(offset, length), lkey_};
  }
  RegisteredSpan first(std::size_t length) const { return subspan(0, length); }

  MutableBytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  std::uint32_t lkey() const { return lkey_; }
  // REQUIRES: size() <= kMaxSgeBytes.
  ibv_sge sge() const {
    RKV_CHECK(size() <= kMaxSgeBytes, "a scatter/gather entry is at most 2 GiB long");
    return {.addr = reinterpret_cast<std::uint64_t>(bytes_.data()),
            .length = static_cast<std::uint32_t>(size()),
            .lkey = lkey_};
  }

 private:
  RegisteredSpan(MutableBytes bytes, std::uint32_t lkey) : bytes_(bytes), lkey_(lkey) {}
  MutableBytes bytes_;
  std::uint32_t lkey_ = 0;
};

// A piece of a peer's memory. Values that a peer sent are only a claim: take pieces with
// subspan(), whose answer is empty when the piece reaches outside, and let the peer's device judge
// the rest. The wire form is 20 bytes big-endian: address 8, length 8, rkey 4.
struct RKV_EXPORT RemoteSpan {
  static constexpr std::size_t kWireBytes = 20;

  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;

  // Checked for bounds and for wrapping around the end of the address space.
  constexpr std::optional<RemoteSpan> subspan(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > length || bytes > length - offset) return std::nullopt;
    if (address > ~std::uint64_t{0} - offset - bytes) return std::nullopt;
    return RemoteSpan{.address = address + offset, .length = bytes, .rkey = rkey};
  }
  std::array<std::byte, kWireBytes> to_bytes() const;
  static RemoteSpan from_bytes(std::span<const std::byte, kWireBytes> bytes);
  friend constexpr bool operator==(const RemoteSpan&, const RemoteSpan&) = default;
};

class RKV_EXPORT MemoryRegion {
 public:
  // How allocate() gets its pages. All are page-aligned, zeroed, and shared with no other
  // allocation, so that a fork() or a neighbour cannot disturb the device's view of them.
  enum class Backing : unsigned char {
    kHeap,       // aligned heap memory: small buffers
    kPages,      // mmap: large or long-lived memory
    kHugePages,  // mmap with 2 MiB pages; falls back to kPages where none are free
  };

  // Allocates and registers; the memory lives as long as the region. kOutOfMemory (with advice
  // about the locked-memory limit), kInvalidArgument for flags that verbs forbid together or a
  // length of 0. System calls; touches every page.
  static Result<MemoryRegion> allocate(const ProtectionDomain& pd, std::size_t length,
                                       AccessFlags access, Backing backing = Backing::kPages);
  // Registers the caller's memory, which must stay mapped until the region is gone. Give whole
  // pages where the process may fork. Source: ibv_reg_mr(3).
  static Result<MemoryRegion> attach(const ProtectionDomain& pd, MutableBytes memory,
                                     AccessFlags access);
  MemoryRegion(MemoryRegion&&) = default;
  MemoryRegion& operator=(MemoryRegion&&) = default;

  MutableBytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  AccessFlags access() const { return access_; }
  std::uint32_t lkey() const { return region_->lkey; }
  std::uint32_t rkey() const { return region_->rkey; }

  RegisteredSpan local() const& RKV_LIFETIMEBOUND {
    return RegisteredSpan::unchecked(bytes_, lkey());
  }
  // REQUIRES: the piece lies inside the region.
  RegisteredSpan local(std::size_t offset, std::size_t length) const& RKV_LIFETIMEBOUND {
    return local().subspan(offset, length);
  }
  // Of a region that ends with the statement: its memory would be gone before the work is done.
  RegisteredSpan local() const&& = delete;
  RegisteredSpan local(std::size_t offset, std::size_t length) const&& = delete;
  RemoteSpan remote() const {
    return {.address = reinterpret_cast<std::uint64_t>(bytes_.data()),
            .length = bytes_.size(),
            .rkey = rkey()};
  }
  ibv_mr* raw() const { return region_.get(); }

 private:
  MemoryRegion(MutableBytes bytes, AccessFlags access, std::shared_ptr<ibv_mr> region)
      : bytes_(bytes), access_(access), region_(std::move(region)) {}
  static Result<MemoryRegion> enroll(const ProtectionDomain& pd, MutableBytes memory,
                                     AccessFlags access, std::shared_ptr<void> storage);
  MutableBytes bytes_;
  AccessFlags access_;
  std::shared_ptr<ibv_mr> region_;  // its deleter holds the domain and owned storage
};

}  // namespace rkv::rdma
