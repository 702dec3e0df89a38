#include "server/program/failure.h"

#include <fmt/format.h>

namespace rkv::server {

Failure thread_failure(const std::system_error& error) {
  return {.exit_code = kExitEnvironment,
          .sentence = fmt::format("cannot start a thread: {}: raise the limit of processes "
                                  "(ulimit -u), of address space (ulimit -v) or of the container",
                                  error.code().message())};
}

}  // namespace rkv::server
