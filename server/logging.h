// Log lines of the program: time, level, text on stderr, by spdlog.
#pragma once

#include "common/log.h"

namespace rkv::server {

// Before any thread is started.
void install_log_sink(LogLevel least);

}  // namespace rkv::server
