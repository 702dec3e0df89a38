// How kvclient and kvbench reach their servers.
#pragma once

#include <cstddef>
#include <optional>

#include "client/cli/exit_code.h"
#include "rkv/cluster.h"

namespace rkv::cli {

// As Cluster::connect, but a server that is loading, or has no place just now, is waited for, up to
// options.timeout, when it is the only one. Blocks up to twice that. A list that names one process
// twice is kUsage, any other failure kNoServer; its sentence has what the server says.
OrFailure<Cluster> connect(const ShardMap& map, const ClientOptions& options);
// The same to the servers given, or without them to options.server.
OrFailure<Cluster> connect(const std::optional<ShardMap>& servers, const ClientOptions& options);

// The error is about a name, not about a server.
bool is_of_resolver(const Error& error);
// What a failure to connect to so many servers comes to.
ExitCode exit_code_of_connect(const Error& error, std::size_t servers);

}  // namespace rkv::cli
