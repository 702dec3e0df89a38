// The commands of `kvclient admin`: what an administrator asks of servers, and of replicated
// groups.
//
// Thread safety: none needed.
#pragma once

#include <string>
#include <string_view>

#include "client/cli/commands.h"

namespace rkv::cli {

// "revoke USER, groups, ...": for people.
const std::string& admin_commands();
// Checks the words of the command line: a command, and the name that it takes.
OrFailure<void> check_admin(const std::vector<std::string>& words);
// REQUIRES: check_admin().
ExitCode run_admin(Cluster& client, const Job& job);

}  // namespace rkv::cli
