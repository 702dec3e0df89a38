// State that the parts of a TCP transport share. Every region, queue, listener and connection keeps
// it alive.
#pragma once

#include "rdma/transport/tcp/regions.h"
#include "rdma/transport/tcp/socket_thread.h"

namespace rkv::rdma::tcp {

struct Shared {
  Regions regions;
  SocketThread sockets;
};

}  // namespace rkv::rdma::tcp
