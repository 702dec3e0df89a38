// State that the parts of a shared-memory transport share. Every region, queue, listener and
// connection created from the transport keeps it alive.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rdma/transport/shm/reaper.h"
#include "rdma/transport/shm/regions.h"

namespace rkv::rdma::shm {

struct Shared {
  explicit Shared(std::string chosen, std::optional<gid_t> let_in = std::nullopt)
      : directory(std::move(chosen)), group(let_in) {}

  std::string directory;       // as the user chose; "" = the default (directory.h)
  std::optional<gid_t> group;  // server only: members of this group may also connect
  Exporter exporter;
  std::shared_ptr<DescriptorBudget> budget = std::make_shared<DescriptorBudget>();
  // Closes peers' sockets, and descriptors of peers that were verified to be memory.
  std::shared_ptr<Reaper> reaper = std::make_shared<Reaper>();
  // Closes descriptors that were passed as memory but are something else (REAP-3).
  std::shared_ptr<Reaper> foreign_reaper = std::make_shared<Reaper>();
};

}  // namespace rkv::rdma::shm
