// The transports of this host that lanes may use.
#pragma once

#include "rdma/transport/transport.h"

namespace rkv::server {

struct LaneTransports {
  rdma::Transport* verbs = nullptr;  // nullptr: none
  rdma::Transport* shm = nullptr;    // likewise
  bool none() const { return verbs == nullptr && shm == nullptr; }
};

}  // namespace rkv::server
