// The size of an ordinary page of this system.
//
// Thread safety: a free function.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace rkv::rdma {

// Bytes.
inline std::size_t small_page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace rkv::rdma
