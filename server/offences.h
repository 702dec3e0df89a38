// Offences: from where clients come that are disconnected for what they do, and how often lately.
//
// The end of a connection is work of its worker, for which the worker's other clients wait. A
// client that breaks a rule, is disconnected and comes back at once makes that work without end.
// So an origin (a host; over shared memory a process) may have so many offences a second, and
// kAtOnce before that counts. Beyond it nobody from there is let in until the time of an offence
// is over. Clients that are connected stay. While an origin has more than kMany offences, each of
// its newcomers counts as one more: else many would come at the moment that lets in one, and
// offend afterwards.
//
// Thread safety: any thread; a lock of its own, innermost.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "common/clock.h"

namespace rkv::server {

class Offences {
 public:
  static constexpr std::int64_t kAtOnce = 16;
  static constexpr std::int64_t kMany = kAtOnce / 2;
  static constexpr std::size_t kMostOrigins = 1024;  // that are remembered

  // 0: as many as they like.
  explicit Offences(std::uint32_t per_second)
      : interval_(per_second == 0 ? 0 : kNanosPerSecond / per_second) {}

  void add(std::string_view origin, Nanos now);
  void add_newcomer(std::string_view origin, Nanos now);
  bool too_many(std::string_view origin, Nanos now);
  std::size_t remembered();

 private:
  // When the last offence of an origin is done with. Each takes an interval, one after the other.
  // Never more than kAtOnce intervals ahead.
  using Until = std::map<std::string, Nanos, std::less<>>;
  void put_off(Nanos& until, Nanos now) const;

  const Nanos interval_;
  std::mutex mutex_;
  Until until_;
};

}  // namespace rkv::server
