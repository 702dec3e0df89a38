// A file of its own: seen together with their callers, g++ 12 takes these for mismatched.
#include "tests/client/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> count = 0;
}

void* operator new(std::size_t size) {
  if (rkv::testing::Uncounted::counts()) count.fetch_add(1, std::memory_order_relaxed);
  if (rkv::testing::ShortOfMemory::fails(size)) throw std::bad_alloc();
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace rkv::testing {
std::size_t allocation_count() {
  return count.load(std::memory_order_relaxed);
}
}  // namespace rkv::testing
