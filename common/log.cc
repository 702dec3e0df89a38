#include "common/log.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/at_fork.h"
#include "common/mutex.h"
#include "common/standard_streams.h"

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

std::optional<LogLevel> log_level_of(std::string_view word) {
  if (word == "debug") return LogLevel::kDebug;
  if (word == "info") return LogLevel::kInfo;
  if (word == "warn") return LogLevel::kWarn;
  if (word == "error") return LogLevel::kError;
  return std::nullopt;
}

namespace {

struct State {
  std::atomic<LogLevel> least{LogLevel::kInfo};
  Mutex mutex;
  EventSink sink RKV_GUARDED_BY(mutex);  // empty: the default
  std::uint64_t lost RKV_GUARDED_BY(mutex) = 0;

  // The default sink. It never waits for a reader of stderr: lines that find no room are
  // counted, and their number comes before the next line that is written.
  void write_by_default(const LogEvent& event) RKV_REQUIRES(mutex) {
    std::string text = fmt::format("{}: {}\n", name_of(event.level), event.text);
    if (lost != 0) text = fmt::format("warning: {} log lines are lost\n{}", lost, text);
    lost = write_to_stderr(text, 0) ? 0 : lost + 1;
  }
  // A thread that logs at the fork holds the mutex, and is not in the child.
  const AtFork unlocked{[this] { std::construct_at(&mutex); }};
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
  if (state().sink) return state().sink(event);
  state().write_by_default(event);
}

void log_line(LogLevel level, std::string_view text) {
  log_event({.level = level, .name = "", .text = text});
}

}  // namespace rkv
