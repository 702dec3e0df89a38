// Whether another replica can be called.
#pragma once

#include <chrono>
#include <string>

namespace rkv::server {

// Whether the replica with this address for clients accepts connections of other replicas, on the
// port above it. Blocks for the limit at most, and while the host's name is looked up.
bool is_reachable(const std::string& address, std::chrono::milliseconds limit);

}  // namespace rkv::server
