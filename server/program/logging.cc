#include "server/program/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/parse.h"
#include "server/program/log_limiter.h"

namespace rkv::server {

namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

// Formats a time as "2026-01-31T12:00:00.250Z".
std::string timestamp(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     unix_ms % 1000);
}

nlohmann::ordered_json value_of(const LogField& field) {
  if (!field.is_number) return field.value;
  auto number = nlohmann::ordered_json::parse(field.value, nullptr, false);
  return number.is_number() ? number : nlohmann::ordered_json(field.value);  // else nan, inf
}

// Thread safety: write and summarise may be called from any thread.
class Sink {
 public:
  explicit Sink(LogFormat format)
      : format_(format), logger_("kvserver", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_pattern(format == LogFormat::kText ? "%Y-%m-%d %H:%M:%S.%e %l: %v" : "%v");
    logger_.set_level(spdlog::level::debug);  // set_log_level() decides what is logged
  }
  // Debug lines are not limited: with --log-level=debug all of them are wanted.
  void write(const LogEvent& event) {
    const MutexLock lock(mutex_);
    const Nanos now = clock_.now();
    tell_floods(now);
    if (event.level == LogLevel::kDebug || limiter_.admit(event.name, now)) put(event);
  }
  void summarise(bool at_the_end) {
    const MutexLock lock(mutex_);
    tell_floods(at_the_end ? LogLimiter::kEnd : clock_.now());
  }

 private:
  void put(const LogEvent& event) RKV_REQUIRES(mutex_) {
    if (format_ == LogFormat::kText) {
      logger_.log(level_of(event.level), "{}", printable(event.text));
      return;
    }
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    logger_.log(level_of(event.level), "{}", json_line(event, now.count()));
  }
  void tell_floods(Nanos now) RKV_REQUIRES(mutex_) {
    for (const LogLimiter::Flood& flood : limiter_.take_over(now)) {
      const std::array<LogField, 2> fields = {
          {{.name = "of", .value = flood.name},
           {.name = "count", .value = std::to_string(flood.left_out), .is_number = true}}};
      const std::string text = fmt::format("{} more lines of {} were omitted", flood.left_out,
                                           flood.name.empty() ? "no event" : flood.name);
      put({.level = LogLevel::kWarn, .name = "log_flood", .text = text, .fields = fields});
    }
  }

  const LogFormat format_;
  const SteadyClock clock_;
  spdlog::logger logger_;
  Mutex mutex_;  // also keeps lines in order
  LogLimiter limiter_ RKV_GUARDED_BY(mutex_);
};

Sink*& installed() {
  static Sink* sink = nullptr;  // never destroyed: destructors of statics may log
  return sink;
}

}  // namespace

// Bytes that are not valid UTF-8 are replaced; the library would throw otherwise.
std::string json_line(const LogEvent& event, std::int64_t unix_ms) {
  nlohmann::ordered_json line = {{"time", timestamp(unix_ms)},
                                 {"level", name_of(event.level)},
                                 {"event", event.name.empty() ? "line" : event.name},
                                 {"message", event.text}};
  for (const LogField& field : event.fields)
    line[std::string(field.name)] = value_of(field);
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void install_log_sink(LogLevel least, LogFormat format) {
  Sink* const sink = new Sink(format);
  installed() = sink;
  set_event_sink([sink](const LogEvent& event) { sink->write(event); });
  set_log_level(least);
}

void summarise_log(bool at_the_end) {
  if (installed() != nullptr) installed()->summarise(at_the_end);
}

}  // namespace rkv::server
