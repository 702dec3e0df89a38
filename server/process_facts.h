// What the system says of this process: CPU time, memory, open files.
//
// Thread safety: values. Reads /proc, some 20 us; a number that cannot be read is 0.
#pragma once

#include <cstdint>

namespace rkv::server {

struct ProcessFacts {
  double cpu_seconds = 0;
  std::uint64_t resident_bytes = 0;
  std::uint64_t open_files = 0;
  std::uint64_t max_files = 0;
  std::uint64_t threads = 0;

  static ProcessFacts now();
};

}  // namespace rkv::server
