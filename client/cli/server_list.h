// The flags that name several servers: --servers and --servers-file.
#pragma once

#include <string>
#include <string_view>

#include "client/cli/options.h"

namespace rkv::cli {

// Sets the servers and returns an empty text, or returns what is wrong with the list or the file.
std::string set_servers(Globals& globals, std::string_view name, const std::string& list);
std::string set_servers_file(Globals& globals, std::string_view name, const std::string& path);

}  // namespace rkv::cli
