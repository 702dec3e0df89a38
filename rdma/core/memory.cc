#include "rkv/rdma/memory.h"

#include <endian.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/bytes.h"
#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::shared_ptr<void> map_pages(std::size_t length, int extra_flags) {
  void* pages = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  return {pages, [length](void* memory) {
            report_teardown(from_minus_one("munmap", munmap(memory, length)));
          }};
}

std::shared_ptr<void> take_storage(std::size_t length, MemoryRegion::Backing backing) {
  switch (backing) {
    case MemoryRegion::Backing::kHeap: {
      const std::size_t whole = round_up(length, page_bytes());
      void* memory = std::aligned_alloc(page_bytes(), whole);
      if (memory != nullptr) std::memset(memory, 0, whole);
      return {memory, [](void* old) { std::free(old); }};
    }
    case MemoryRegion::Backing::kHugePages:
      if (auto pages = map_pages(round_up(length, kHugePageBytes), MAP_HUGETLB)) return pages;
      [[fallthrough]];
    case MemoryRegion::Backing::kPages: {
      auto pages = map_pages(round_up(length, page_bytes()), 0);
      // Where the system makes them on its own: a wish, whose refusal means nothing.
      if (pages != nullptr && backing == MemoryRegion::Backing::kHugePages)
        madvise(pages.get(), length, MADV_HUGEPAGE);
      return pages;
    }
  }
  return nullptr;
}

}  // namespace

Result<ProtectionDomain> ProtectionDomain::allocate(const Device& device) {
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_pd * raw, from_null("ibv_alloc_pd", ibv_alloc_pd(device.raw())));
  std::shared_ptr<ibv_pd> pd(raw, [context = device.shared()](ibv_pd* old) {
    report_teardown(from_errno("ibv_dealloc_pd", ibv_dealloc_pd(old)));
  });
  return ProtectionDomain(device.share(), std::move(pd));
}

Result<MemoryRegion> MemoryRegion::enroll(const ProtectionDomain& pd, MutableBytes memory,
                                          AccessFlags access, std::shared_ptr<void> storage) {
  if (memory.empty()) return fail(Code::kInvalidArgument, "memory of length 0 to be registered");
  if (!is_registrable(access)) {
    return fail(Code::kInvalidArgument,
                "remote writes and atomics need local write access on the region too");
  }
  errno = 0;
  RKV_ASSIGN_OR_RETURN(ibv_mr * raw,
                       from_null("ibv_reg_mr", ibv_reg_mr(pd.raw(), memory.data(), memory.size(),
                                                          std::to_underlying(access))));
  std::shared_ptr<ibv_mr> region(raw,
                                 [domain = pd.shared(), kept = std::move(storage)](ibv_mr* old) {
                                   report_teardown(from_errno("ibv_dereg_mr", ibv_dereg_mr(old)));
                                 });
  return MemoryRegion(memory, access, std::move(region));
}

Result<MemoryRegion> MemoryRegion::allocate(const ProtectionDomain& pd, std::size_t length,
                                            AccessFlags access, Backing backing) {
  if (length == 0) return fail(Code::kInvalidArgument, "memory of length 0 to be registered");
  auto storage = take_storage(length, backing);
  if (storage == nullptr) {
    return fail_call(Code::kOutOfMemory, "mmap", errno, "this machine has no memory of that size");
  }
  const MutableBytes bytes(static_cast<std::byte*>(storage.get()), length);
  return enroll(pd, bytes, access, std::move(storage));
}

Result<MemoryRegion> MemoryRegion::attach(const ProtectionDomain& pd, MutableBytes memory,
                                          AccessFlags access) {
  return enroll(pd, memory, access, nullptr);
}

std::array<std::byte, RemoteSpan::kWireBytes> RemoteSpan::to_bytes() const {
  std::array<std::byte, kWireBytes> out;
  store_le(out.data(), htobe64(address));
  store_le(out.data() + 8, htobe64(length));
  store_le(out.data() + 16, htobe32(rkey));
  return out;
}

RemoteSpan RemoteSpan::from_bytes(std::span<const std::byte, kWireBytes> bytes) {
  return {.address = be64toh(load_le<std::uint64_t>(bytes.data())),
          .length = be64toh(load_le<std::uint64_t>(bytes.data() + 8)),
          .rkey = be32toh(load_le<std::uint32_t>(bytes.data() + 16))};
}

}  // namespace rkv::rdma
