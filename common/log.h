// Log lines: a level and one sentence, to a sink that the program chooses. Libraries log only what
// nobody else could tell (an error in a destructor, a peer that was dropped); never per request.
//
// Thread safety: all of it. The sink may be called from any thread.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>

namespace rkv {

enum class LogLevel : unsigned char { kDebug, kInfo, kWarn, kError, kOff };

using LogSink = std::function<void(LogLevel, std::string_view)>;

void set_log_level(LogLevel least);
// Replaces the default sink, which writes "level: text" lines to stderr. Set it before threads
// start.
void set_log_sink(LogSink sink);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_to(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kDebug, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kInfo, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kWarn, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kError, format, std::forward<Args>(args)...);
}

}  // namespace rkv
