#include "server/program/logging.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/parse.h"
#include "common/standard_streams.h"
#include "server/program/log_limiter.h"
#include "server/program/log_writer.h"

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

// Lines as spdlog has formatted them, on their way to stderr: by the writer's thread once it is
// started; before, by the caller. Thread safety: one caller at a time.
class Output final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  void start(LogWriter::Notice notice) {
    writer_ = new LogWriter(STDERR_FILENO, std::move(notice));
  }
  LogWriter* writer() const { return writer_; }
  std::string formatted(const spdlog::details::log_msg& message) const {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    return {text.data(), text.size()};
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line = formatted(message);
    if (writer_ == nullptr) {
      write_to_stderr(line, kReaderWaitMs);
    } else {
      writer_->add(std::move(line));
    }
  }
  void flush_() override {}

  LogWriter* writer_ = nullptr;  // never destroyed, as the sink
};

// Thread safety: any thread, from start() on.
class Sink {
 public:
  explicit Sink(LogFormat format)
      : format_(format), output_(std::make_shared<Output>()), logger_("kvserver", output_) {
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
  void start() {
    const MutexLock lock(mutex_);
    if (output_->writer() != nullptr) return;
    output_->start([this](std::uint64_t lost) { return lost_line(lost); });
  }
  // Without the mutex: no thread waits for this one meanwhile.
  void flush(int most_ms) {
    LogWriter* writer = nullptr;
    {
      const MutexLock lock(mutex_);
      writer = output_->writer();
    }
    if (writer != nullptr) writer->flush(most_ms);
  }

 private:
  // The line before the first one that is queued after others were lost.
  std::string lost_line(std::uint64_t lost) const {
    const std::array<LogField, 1> fields = {
        {{.name = "count", .value = std::to_string(lost), .is_number = true}}};
    const std::string text =
        fmt::format("{} log lines are lost: standard error did not take them", lost);
    const LogEvent event{
        .level = LogLevel::kWarn, .name = "log_lost", .text = text, .fields = fields};
    return output_->formatted({"kvserver", spdlog::level::warn,
                               format_ == LogFormat::kText ? text : json_line(event, unix_ms())});
  }
  static std::int64_t unix_ms() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  }
  void put(const LogEvent& event) RKV_REQUIRES(mutex_) {
    if (format_ == LogFormat::kText) {
      logger_.log(level_of(event.level), "{}", printable(event.text));
      return;
    }
    logger_.log(level_of(event.level), "{}", json_line(event, unix_ms()));
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
  const std::shared_ptr<Output> output_;
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

void start_log_writer() {
  if (installed() != nullptr) installed()->start();
}

void summarise_log() {
  if (installed() != nullptr) installed()->summarise(false);
}

void finish_log() {
  constexpr int kMostMs = 1000;
  if (installed() == nullptr) return;
  installed()->summarise(true);
  installed()->flush(kMostMs);
}

}  // namespace rkv::server
