// What the system says of this process: CPU time, memory, open files.
//
// Thread safety: values. Reads /proc, some 20 us, for which it opens files: where the process can
// open none any more, and wherever else a number cannot be read, it is left out.
#pragma once

#include <cstdint>
#include <optional>

namespace rkv::server {

struct ProcessFacts {
  double cpu_seconds = 0;
  std::optional<std::uint64_t> resident_bytes;
  std::optional<std::uint64_t> open_files;
  std::optional<std::uint64_t> max_files;
  std::optional<std::uint64_t> threads;

  static ProcessFacts now();
};

}  // namespace rkv::server
