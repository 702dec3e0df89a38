// Log lines of the program, written to stderr: text (time, level, sentence, by spdlog) or one JSON
// object per line. Floods of one event are cut (log_limiter.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/log.h"

namespace rkv::server {

enum class LogFormat : std::uint8_t { kText, kJson };

// Call before any thread is started.
void install_log_sink(LogLevel least, LogFormat format);
// Logs how many lines were left out in floods that are over; at the end of the program, in all
// floods. Call periodically.
void summarise_log(bool at_the_end = false);

// A line as it is written, without the line end. `unix_ms`: now. Public for tests.
std::string json_line(const LogEvent& event, std::int64_t unix_ms);

}  // namespace rkv::server
