// What the layers of the project log with: a level, an event's name and one sentence (rkv/log.h has
// the levels and the sink). Libraries log only what nobody else could tell (an error in a
// destructor, a peer that was dropped); never per request.
//
//   log_warn(EventName("client_dropped"), "client {} is disconnected: {}", field("peer", peer),
//   why);
//
// The sentence is for people. The name is for programs, and floods are told by it; it stays when
// the sentence is reworded. An argument that is a field() reads in the sentence as its value does,
// and reaches the sink by its name as well.
//
// Thread safety: all of it.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "rkv/log.h"  // IWYU pragma: export

namespace rkv {

// "debug", "info", "warning", "error"; static.
const char* name_of(LogLevel level);

struct LogField {
  std::string_view name;
  std::string value;
  bool is_number = false;
};
// Valid during the sink's call only.
struct LogEvent {
  LogLevel level = LogLevel::kInfo;
  std::string_view name;  // "" for a line that has none
  std::string_view text;
  std::span<const LogField> fields{};
};

using EventSink = std::function<void(const LogEvent&)>;

// In the place of set_log_sink(), for who wants names and fields.
void set_event_sink(EventSink sink);
bool log_enabled(LogLevel level);
// Whatever the level.
void log_event(const LogEvent& event);
void log_line(LogLevel level, std::string_view text);

class EventName {
 public:
  // Letters and underscores, static.
  explicit constexpr EventName(const char* text) : text_(text) {}
  constexpr std::string_view text() const { return text_; }

 private:
  std::string_view text_;
};

// For an argument of a log line only: it may refer to what it is made of.
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
