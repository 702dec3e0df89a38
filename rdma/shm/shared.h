// What the parts of one shared-memory transport have in common. Kept alive by every region, queue,
// listener and connection made from it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "rdma/shm/reaper.h"
#include "rdma/shm/regions.h"

namespace rkv::rdma::shm {

struct Shared {
  explicit Shared(std::string chosen, std::optional<gid_t> let_in = std::nullopt)
      : directory(std::move(chosen)), group(let_in) {}

  std::string directory;       // as the user chose; "" = the usual ones (directory.h)
  std::optional<gid_t> group;  // of a server: whose members may connect as well
  Exporter exporter;
  std::shared_ptr<DescriptorBudget> budget = std::make_shared<DescriptorBudget>();
  // Closes sockets of peers, and memory of theirs that was found to be memory.
  std::shared_ptr<Reaper> reaper = std::make_shared<Reaper>();
  // Closes what was passed as memory and is something else (D3).
  std::shared_ptr<Reaper> foreign_reaper = std::make_shared<Reaper>();
};

}  // namespace rkv::rdma::shm
