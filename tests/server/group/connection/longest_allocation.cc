// Apart from its callers: a compiler that sees both says that they do not match.
#include "tests/server/group/connection/longest_allocation.h"

#include <cstdlib>
#include <new>

namespace rkv::server::test {
std::atomic<std::size_t> longest_allocation{0};
}

void* operator new(std::size_t length) {
  auto& longest = rkv::server::test::longest_allocation;
  std::size_t before = longest.load();
  while (before < length && !longest.compare_exchange_weak(before, length)) {
  }
  void* const memory = std::malloc(length);
  if (memory == nullptr) std::abort();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
