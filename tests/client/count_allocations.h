// Counts every `new` of a test program, but not those of the fake server: for tests that something
// does not allocate, or survives a lack of memory.
#pragma once

#include <cstddef>

namespace rkv::testing {

std::size_t allocation_count();

// This thread's allocations are not counted while such an object exists.
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

// While such an object exists, this thread's counted allocations of at least `least` bytes fail.
class ShortOfMemory {
 public:
  explicit ShortOfMemory(std::size_t least) { least_that_fails = least; }
  ~ShortOfMemory() { least_that_fails = 0; }
  ShortOfMemory(const ShortOfMemory&) = delete;
  ShortOfMemory& operator=(const ShortOfMemory&) = delete;
  static bool fails(std::size_t size) {
    return least_that_fails != 0 && size >= least_that_fails && Uncounted::counts();
  }

 private:
  static inline thread_local std::size_t least_that_fails = 0;
};

}  // namespace rkv::testing
