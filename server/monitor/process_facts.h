// CPU time, memory, open files and threads of this process.
//
// Thread safety: values. Reads /proc in about 20 us, which opens files. A number that cannot be
// read is left out, for example when the process has no free file descriptor.
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
