// Limits floods of log lines. Each event may log kLines lines per kWhile. Further lines are
// counted, and their number is reported when the flood is over.
//
//   LogLimiter limiter;
//   if (limiter.admit("client_connected", now)) write(line);
//   for (const auto& flood : limiter.take_over(now)) tell(flood.name, flood.left_out);
//
// Thread safety: one owner.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"

namespace rkv::server {

class LogLimiter {
 public:
  // Enough for all clients to connect and disconnect at once, and for a person to see what happens.
  static constexpr std::uint64_t kLines = 100;
  static constexpr Nanos kWhile = 10 * kNanosPerSecond;

  // As `now` of take_over(): all floods count as over.
  static constexpr Nanos kEnd = std::numeric_limits<Nanos>::max() / 2;

  struct Flood {
    std::string name;
    std::uint64_t left_out = 0;
  };

  bool admit(std::string_view name, Nanos now) {
    auto at = events_.find(name);
    if (at == events_.end()) at = events_.emplace(name, Event{.since = now}).first;
    Event& event = at->second;
    if (now - event.since >= kWhile && event.left_out == 0) event = {.since = now};
    if (++event.lines <= kLines) return true;
    ++event.left_out;
    return false;
  }
  // Returns the floods whose kWhile is over, and forgets them: the next line of an event starts a
  // new count.
  std::vector<Flood> take_over(Nanos now) {
    std::vector<Flood> floods;
    for (auto& [name, event] : events_) {
      if (event.left_out == 0 || now - event.since < kWhile) continue;
      floods.push_back({.name = name, .left_out = event.left_out});
      event = {.since = now};
    }
    return floods;
  }

 private:
  struct Event {
    Nanos since = 0;
    std::uint64_t lines = 0;
    std::uint64_t left_out = 0;
  };
  std::map<std::string, Event, std::less<>> events_;  // one per event name in the sources
};

}  // namespace rkv::server
