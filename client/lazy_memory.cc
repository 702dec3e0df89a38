#include "client/lazy_memory.h"

#include <sys/mman.h>

namespace rkv::client {

void LazyMemory::Unmap::operator()(void* memory) const {
  ::munmap(memory, length);
}

LazyMemory::LazyMemory(std::size_t bytes) {
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  // A look-up goes to a random page; where the system gives large ones, it spares a page walk.
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  memory_ = {memory, Unmap{bytes}};
}

bool LazyMemory::give_back() {
  return memory_ == nullptr ||
         ::madvise(memory_.get(), memory_.get_deleter().length, MADV_DONTNEED) == 0;
}

}  // namespace rkv::client
