// Why the program ends, for its log and its exit status.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <system_error>

namespace rkv::server {

// Documented in README.md and --help.
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

// std::thread threw `error`.
Failure thread_failure(const std::system_error& error);

}  // namespace rkv::server
