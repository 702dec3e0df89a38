// Why the program ends, for its log and its exit status.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

#include "rkv/result.h"

namespace rkv::server {

// Documented in MANUAL.md and --help.
enum ExitCode : std::uint8_t {
  kExitClean = 0,
  kExitUsage = 2,        // the command line, the environment or the configuration file
  kExitEnvironment = 3,  // no device, port taken, locked-memory limit
  kExitData = 4,         // the data directory: not writable, damaged; an operator must act
  kExitOther = 5,
  kExitDataLater = 6,  // the data directory: in use, full, failing; a later start may succeed
};

struct Failure {
  ExitCode exit_code = kExitOther;
  std::string sentence;  // what is wrong and what to do
};

// `doing` ends with `error`: the machine or its limits do not allow it.
Failure environment_failure(const std::string& doing, const Error& error);
// The code for an error in the data directory. It says whether a later start may succeed.
ExitCode exit_code_of_data(const Error& error);
// The code for a file with users, a secret or a certificate that cannot be used. A file that cannot
// be read now may be readable at a later start: its file system may not be mounted yet.
ExitCode exit_code_of_file(const Error& error);
// std::thread threw `error`.
Failure thread_failure(const std::system_error& error);

}  // namespace rkv::server
