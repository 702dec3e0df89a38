// What a lane is made of, before it is one.
#pragma once

#include <memory>
#include <string>

#include "rdma/transport/transport.h"

namespace rkv::server {

// In this order, so that the connection is destroyed first.
struct LaneParts {
  std::unique_ptr<rdma::Queue> queue{};
  std::unique_ptr<rdma::Region> frames{};          // for what is sent
  std::unique_ptr<rdma::Connection> connection{};  // bound to the queue; by the caller
  std::string over{};                              // the transport, for people
};

}  // namespace rkv::server
