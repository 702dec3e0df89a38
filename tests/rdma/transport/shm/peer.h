// The data that the processes of the tests exchange in a connection's private data.
#pragma once

#include <cstdint>

namespace rkv::rdma::shm {

struct Whereabouts {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t unused = 0;
};

}  // namespace rkv::rdma::shm
