// Counts every `new` of a test program, but not those of the fake server: for tests that something
// does not allocate.
#pragma once

#include <cstddef>

namespace rkv::testing {

std::size_t allocation_count();

// What this thread allocates while one lives is not counted.
class Uncounted {
 public:
  Uncounted() { ++depth; }
  ~Uncounted() { --depth; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
  static bool counts() { return depth == 0; }

 private:
  static inline thread_local int depth = 0;
};

}  // namespace rkv::testing
