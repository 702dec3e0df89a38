// What the layers of the project log with (rkv/log.h has the levels and the sink). Libraries log
// only what nobody else could tell (an error in a destructor, a peer that was dropped); never per
// request.
//
// Thread safety: all of it.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "rkv/log.h"  // IWYU pragma: export

namespace rkv {

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
