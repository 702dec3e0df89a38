#include "common/log.h"

#include <atomic>
#include <cstdio>

#include "common/mutex.h"

namespace rkv {

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warning";
    default:
      return "error";
  }
}

namespace {

void write_to_stderr(const LogEvent& event) {
  const std::string line = fmt::format("{}: {}\n", name_of(event.level), event.text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

struct State {
  std::atomic<LogLevel> least{LogLevel::kInfo};
  Mutex mutex;
  EventSink sink RKV_GUARDED_BY(mutex) = write_to_stderr;
};

State& state() {
  static State* const instance = new State;  // never destroyed: destructors of statics may log
  return *instance;
}

}  // namespace

void set_log_level(LogLevel least) {
  state().least.store(least, std::memory_order_relaxed);
}

void set_event_sink(EventSink sink) {
  if (!sink) sink = write_to_stderr;
  const MutexLock lock(state().mutex);
  state().sink = std::move(sink);
}

void set_log_sink(LogSink sink) {
  if (!sink) return set_event_sink({});
  set_event_sink(
      [sink = std::move(sink)](const LogEvent& event) { sink(event.level, event.text); });
}

bool log_enabled(LogLevel level) {
  return level >= state().least.load(std::memory_order_relaxed);
}

void log_event(const LogEvent& event) {
  const MutexLock lock(state().mutex);
  state().sink(event);
}

void log_line(LogLevel level, std::string_view text) {
  log_event({.level = level, .name = "", .text = text});
}

}  // namespace rkv
