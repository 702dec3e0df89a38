// Plain memory in place of registered memory: for tests of the store that need no device.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <utility>

#include "common/bytes.h"
#include "rdma/transport/transport.h"
#include "rkv/result.h"
#include "server/memory/memory.h"

namespace rkv::testing {

// Incremented when a region is ready. A thread that READs like an adapter loads it first: an
// adapter knows a region by its registration before any client learns of the region. Otherwise
// ThreadSanitizer would report the initialization of the memory as a race with the READ.
inline std::atomic<std::uint64_t> regions_made{0};

// Page-aligned and zeroed; pages are allocated at their first use.
class PlainRegion final : public rdma::Region {
 public:
  static Result<std::unique_ptr<rdma::Region>> make(std::size_t length) {
    void* at = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail(Code::kOutOfMemory, "mmap");
    regions_made.fetch_add(1, std::memory_order_release);
    return std::unique_ptr<rdma::Region>(new PlainRegion({static_cast<std::byte*>(at), length}));
  }
  ~PlainRegion() override { munmap(bytes_.data(), bytes_.size()); }
  PlainRegion(const PlainRegion&) = delete;
  PlainRegion& operator=(const PlainRegion&) = delete;

  MutableBytes bytes() const override { return bytes_; }
  std::uint32_t local_key() const override { return 1; }
  std::uint32_t remote_key() const override { return 2; }

 private:
  explicit PlainRegion(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes_;
};

inline std::unique_ptr<server::StoreMemory> make_plain_memory(
    const server::MemoryOptions& options) {
  auto memory = server::StoreMemory::create(options, PlainRegion::make);
  return memory ? std::move(*memory) : nullptr;
}

}  // namespace rkv::testing
