// One simulated run from its seed, and the verdict on the clients' answers. The run has a server,
// its clients, an operator who kills and restarts the server, and a fabric and a disk with faults.
//
// Thread safety: none; one run at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rkv/client.h"
#include "tests/sim/plan.h"

namespace rkv::sim {

struct Outcome {
  std::optional<std::string> violation;  // the violation, and the history of its key
  bool stuck = false;                    // fibers never ended: exit the process soon
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  std::uint64_t operations = 0;
  std::uint64_t failures = 0;  // operations that failed or whose outcome is unknown
  std::uint64_t restarts = 0;
  std::uint64_t stashed = 0;
  std::uint64_t splits = 0;
  std::uint64_t promoted = 0;  // records loaded for an operation
  std::uint64_t evicted = 0;
  std::uint64_t expired = 0;
  std::uint64_t clock_steps = 0;
  std::uint64_t large_puts = 0;     // successful puts of values too long for a message
  std::uint64_t full_refusals = 0;  // because the disk was full
  Nanos time = 0;
  rdma::sim::Fabric::Counts network{};
  ClientStats clients{};  // the sum over all clients
};

Outcome run_seed(std::uint64_t seed, Canary canary = Canary::kNone);

}  // namespace rkv::sim
