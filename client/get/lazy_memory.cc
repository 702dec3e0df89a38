#include "client/get/lazy_memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace rkv::client {

namespace {
constexpr std::size_t kSmallPagesBytes = std::size_t{2} << 20;
}

void LazyMemory::Unmap::operator()(void* memory) const {
  ::munmap(memory, length);
}

LazyMemory::LazyMemory(std::size_t bytes) {
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  // A lookup touches a random page; large pages save page walks. The beginning uses small pages,
  // since a process may have hundreds of clients that cache little.
  (void)::madvise(memory, std::min(bytes, kSmallPagesBytes), MADV_NOHUGEPAGE);
  if (bytes > kSmallPagesBytes) {
    (void)::madvise(static_cast<std::byte*>(memory) + kSmallPagesBytes, bytes - kSmallPagesBytes,
                    MADV_HUGEPAGE);
  }
  memory_ = {memory, Unmap{bytes}};
}

bool LazyMemory::give_back() {
  return memory_ == nullptr ||
         ::madvise(memory_.get(), memory_.get_deleter().length, MADV_DONTNEED) == 0;
}

}  // namespace rkv::client
