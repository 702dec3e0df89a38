// Connects kvclient and kvbench to their servers.
#pragma once

#include <cstddef>
#include <optional>

#include "client/cli/exit_code.h"
#include "rkv/cluster.h"

namespace rkv::cli {

// As Cluster::connect(). If there is only one server, and it is loading or has no free place, or if
// the servers are those of a group, of which none serves, this waits up to options.timeout. Blocks
// up to twice that time. A list that names one process twice is kUsage, any other failure
// kNoServer; the sentence includes the server's message.
OrFailure<Cluster> connect(const ShardMap& map, const ClientOptions& options);
// Connects to the given servers, or without them to options.server.
OrFailure<Cluster> connect(const std::optional<ShardMap>& servers, const ClientOptions& options);

// Returns true if the error is about a host name, not about a server.
bool is_of_resolver(const Error& error);
// The exit code for a failure to connect to `servers` servers.
ExitCode exit_code_of_connect(const Error& error, std::size_t servers);

}  // namespace rkv::cli
