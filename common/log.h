// Logging inside the project: a level, an event name and a sentence (rkv/log.h has the levels and
// the sink). Libraries log only what they cannot report otherwise, such as an error in a destructor
// or a dropped peer. They never log per request.
//
//   log_warn(EventName("client_dropped"), "client {} is dropped: {}", field("peer", peer), why);
//
// The sentence is for people. The name is for programs and for flood detection; it stays when the
// sentence is reworded. A field() argument is formatted as its value and is also passed to the sink
// by name.
//
// Thread safety: all functions, any thread.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "rkv/log.h"  // IWYU pragma: export

namespace rkv {

// "debug", "info", "warning", "error"; static.
const char* name_of(LogLevel level);
// Of the words that a person gives: debug, info, warn or error.
std::optional<LogLevel> log_level_of(std::string_view word);

struct LogField {
  std::string_view name;
  std::string value;
  bool is_number = false;
};
// Valid during the sink's call only.
struct LogEvent {
  LogLevel level = LogLevel::kInfo;
  std::string_view name;  // "" for a line without a name
  std::string_view text;
  std::span<const LogField> fields{};
};

using EventSink = std::function<void(const LogEvent&)>;

// Replaces the sink of set_log_sink() with a sink that receives names and fields. Empty: as there.
void set_event_sink(EventSink sink);
bool log_enabled(LogLevel level);
// Logs regardless of the level.
void log_event(const LogEvent& event);
void log_line(LogLevel level, std::string_view text);

class EventName {
 public:
  // `text`: letters and underscores, static.
  explicit constexpr EventName(const char* text) : text_(text) {}
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// Only for arguments of a log line: may refer to the object that it was created from.
template <class T>
struct Field {
  const char* name;
  T value;
};
template <class T>
auto field(const char* name, const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return Field<std::string_view>{name, std::string_view(value)};
  } else {
    return Field<T>{name, value};
  }
}

namespace log_internal {

template <class T>
inline constexpr bool is_field = false;
template <class T>
inline constexpr bool is_field<Field<T>> = true;

template <class T>
void collect([[maybe_unused]] LogField*& next, [[maybe_unused]] const T& argument) {
  if constexpr (is_field<T>) {
    *next++ = {.name = argument.name,
               .value = fmt::format("{}", argument.value),
               .is_number = std::is_arithmetic_v<decltype(argument.value)>};
  }
}

template <class... Args>
void write(LogLevel level, EventName name, fmt::string_view format, const Args&... args) {
  std::array<LogField, (std::size_t{is_field<Args>} + ... + 0)> fields;
  [[maybe_unused]] LogField* next = fields.data();
  (collect(next, args), ...);
  const std::string text = fmt::vformat(format, fmt::make_format_args(args...));
  log_event({.level = level, .name = name.text(), .text = text, .fields = fields});
}

}  // namespace log_internal

template <class... Args>
void log_to(LogLevel level, EventName name, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_internal::write(level, name, format, args...);
}
template <class... Args>
void log_debug(EventName name, fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kDebug, name, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(EventName name, fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kInfo, name, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warn(EventName name, fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kWarn, name, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_error(EventName name, fmt::format_string<Args...> format, Args&&... args) {
  log_to(LogLevel::kError, name, format, std::forward<Args>(args)...);
}

}  // namespace rkv

template <class T>
struct fmt::formatter<rkv::Field<T>> : fmt::formatter<T> {
  template <class Context>
  auto format(const rkv::Field<T>& field, Context& context) const {
    return fmt::formatter<T>::format(field.value, context);
  }
};
