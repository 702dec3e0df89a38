// Log lines of the program, written to stderr: text (time, level, sentence, by spdlog) or one JSON
// object per line. Floods of one event are cut (log_limiter.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/log.h"

namespace rkv::server {

enum class LogFormat : std::uint8_t { kText, kJson };

// Call before any thread is started. Lines are written by the caller.
void install_log_sink(LogLevel least, LogFormat format);
// From here on no log line blocks its caller: a thread writes them (log_writer.h). Throws
// std::system_error if it cannot be started.
void start_log_writer();
// Logs how many lines were left out in floods that are over. Call periodically.
void summarise_log();
// Call before the process ends or executes another program: logs how many lines were left out in
// all floods, and waits until everything is written, for a second at most.
void finish_log();

// A line as it is written, without the line end. `unix_ms`: now. Public for tests.
std::string json_line(const LogEvent& event, std::int64_t unix_ms);

}  // namespace rkv::server
