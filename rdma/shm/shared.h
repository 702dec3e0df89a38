// What the parts of one shared-memory transport have in common. Kept alive by every region, queue,
// listener and connection made from it.
#pragma once

#include <string>

#include "rdma/shm/regions.h"

namespace rkv::rdma::shm {

struct Shared {
  explicit Shared(std::string chosen) : directory(std::move(chosen)) {}

  std::string directory;  // as the user chose; "" = the usual ones (directory.h)
  Exporter exporter;
};

}  // namespace rkv::rdma::shm
