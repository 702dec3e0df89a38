// The flags that name several servers: --servers and --servers-file.
#pragma once

#include <optional>
#include <string>

#include "rkv/shard_map.h"

namespace rkv::cli {

// Sets `map` and returns an empty text, or returns what is wrong with the list or the file.
std::string set_servers(const std::string& list, std::optional<ShardMap>& map);
std::string set_servers_file(const std::string& path, std::optional<ShardMap>& map);

}  // namespace rkv::cli
