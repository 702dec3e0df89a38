// Atomics on our own memory through the adapter: a queue pair connected to itself.
#pragma once

#include <memory>

#include "rdma/transport/transport.h"
#include "rdma/transport/verbs/shared.h"

namespace rkv::rdma::verbs {

Result<std::unique_ptr<Atomics>> create_own_atomics(std::shared_ptr<const Shared> shared,
                                                    const Region& region);

}  // namespace rkv::rdma::verbs
