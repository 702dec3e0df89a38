// `kvserver user`: adds a user to a users file, with a new secret; renews or retires a secret;
// removes a user.
//
// Thread safety: none needed. Blocks on the disk.
#pragma once

#include <string>
#include <vector>

#include "server/program/failure.h"

namespace rkv::server {

struct UserCommand {
  ExitCode exit_code = kExitClean;
  std::string out;    // for stdout: may hold a secret
  std::string error;  // for stderr: one sentence without "kvserver: "
};

// `arguments` are those after "user". On failure nothing has changed on disk.
UserCommand run_user_command(const std::vector<std::string>& arguments);

}  // namespace rkv::server
