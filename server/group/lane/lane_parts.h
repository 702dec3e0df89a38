// The parts that a lane is made of.
#pragma once

#include <memory>
#include <string>

#include "rdma/transport/transport.h"

namespace rkv::server {

// The order matters: the connection is destroyed first.
struct LaneParts {
  std::unique_ptr<rdma::Queue> queue{};
  std::unique_ptr<rdma::Region> frames{};          // memory for sent frames
  std::unique_ptr<rdma::Connection> connection{};  // bound to the queue; made by the caller
  std::string over{};                              // the transport, for people
};

}  // namespace rkv::server
