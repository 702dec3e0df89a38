#include "server/program/failure.h"

#include <fmt/format.h>

namespace rkv::server {

Failure environment_failure(const std::string& doing, const Error& error) {
  return {.exit_code = kExitEnvironment,
          .sentence = fmt::format("{}: {}", doing, to_string(error))};
}

ExitCode exit_code_of_data(const Error& error) {
  switch (error.code) {
    case Code::kIo:
    case Code::kBusy:
    case Code::kOutOfMemory:
      return kExitDataLater;
    default:
      return kExitData;
  }
}

ExitCode exit_code_of_file(const Error& error) {
  return error.code == Code::kIo || error.code == Code::kPermission ? kExitEnvironment : kExitUsage;
}

Failure thread_failure(const std::system_error& error) {
  return {.exit_code = kExitEnvironment,
          .sentence = fmt::format("cannot start a thread: {}: raise the limit of processes "
                                  "(ulimit -u), of address space (ulimit -v) or of the container",
                                  error.code().message())};
}

}  // namespace rkv::server
