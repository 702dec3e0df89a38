// The directories in which a client looks for servers of this host, and their owners: for people
// (kvclient doctor).
//
// Thread safety: free functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rdma/transport/transport.h"

namespace rkv::rdma {

struct ShmDirectory {
  std::string path{};
  bool exists = false;
  std::uint32_t owner = 0;  // the user's number
  bool is_trusted = true;   // false: another user may have put a server there
};
std::vector<ShmDirectory> shm_directories(const ShmOptions& options);

}  // namespace rkv::rdma
