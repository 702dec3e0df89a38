// Log lines of the program, on stderr: one a line, as text (time, level, sentence, by spdlog) or as
// a JSON object; floods are cut short (log_limiter.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/log.h"

namespace rkv::server {

enum class LogFormat : std::uint8_t { kText, kJson };

// Before any thread is started.
void install_log_sink(LogLevel least, LogFormat format);
// Tells how many lines were left out, of floods whose time is over: now and then. At the end of the
// program of all.
void summarise_log(bool at_the_end = false);

// As they are written, without the end of line. `unix_ms`: now. For tests too.
std::string json_line(const LogEvent& event, std::int64_t unix_ms);
// Control characters are shown as \n or \x1b: a peer's name cannot make lines of its own.
std::string printable_line(std::string_view text);

}  // namespace rkv::server
