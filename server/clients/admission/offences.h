// Offences: how often clients of each origin were disconnected for misbehaviour lately. An origin
// is a host; over shared memory it is a process.
//
// Ending a connection is work for its worker, which the worker's other clients wait for. A client
// that breaks a rule, is disconnected and reconnects at once would cause this work without end. So
// each origin may commit kAtOnce offences in a burst and a fixed number per second after that.
// Beyond the limit newcomers of the origin are refused until the time of one offence has passed.
// Connected clients stay. While an origin has more than kMany offences, each of its newcomers
// counts as one more. Otherwise many newcomers could enter at the moment that allows one, and
// offend afterwards.
//
// Thread safety: any thread; its own lock, which is innermost.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/mutex.h"

namespace rkv::server {

class Offences {
 public:
  static constexpr std::int64_t kAtOnce = 16;
  static constexpr std::int64_t kMany = kAtOnce / 2;
  static constexpr std::size_t kMostOrigins = 1024;  // origins remembered at a time

  // 0: no limit.
  explicit Offences(std::uint32_t per_second)
      : interval_(per_second == 0 ? 0 : kNanosPerSecond / per_second) {}

  void add(std::string_view origin, Nanos now);
  void add_newcomer(std::string_view origin, Nanos now);
  bool too_many(std::string_view origin, Nanos now);
  std::size_t remembered();

 private:
  // When the last offence of each origin expires. Offences expire one after the other, one per
  // interval_; the time is at most kAtOnce intervals ahead.
  using Until = std::map<std::string, Nanos, std::less<>>;
  void put_off(Nanos& until, Nanos now) const;

  const Nanos interval_;
  Mutex mutex_;
  Until until_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
