// The properties that a crowd must have whatever was done to its server and to the link.
#pragma once

#include <cstdint>
#include <string>

#include "tests/history/crowd.h"

namespace rkv::history {

// RKV_HISTORY_SEED, else a random one. Prints how to repeat the run with it.
std::uint64_t crowd_seed();

// Stops the crowd and prints what it did. EXPECTs that its history, of this name, is linearizable,
// that no operation has outlived its deadline by more than client/README.md says, and that no
// durable write is lost. `is_server_there`: as for Crowd::stop().
CrowdReport judge_crowd(Crowd& crowd, const std::string& name, bool is_server_there = true);

}  // namespace rkv::history
