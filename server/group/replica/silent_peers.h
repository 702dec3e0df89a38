// SilentPeers: connections whose other end has not said who it is. That end has proved to know the
// group's secret. But a replica that hangs, or a port scanner on the group's own hosts, must not
// keep connections without end.
//
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/clock.h"

namespace rkv::server {

class SilentPeers {
 public:
  // A replica says hello at once.
  static constexpr Nanos kLimit = 5 * kNanosPerSecond;
  // With one connection more, the oldest is overdue.
  static constexpr std::size_t kMost = 64;

  // `peer` is a number of the caller, higher than those before.
  void connected(std::uint64_t peer, Nanos now) { since_.emplace(peer, now); }
  // It has said hello, or is gone.
  void forget(std::uint64_t peer) { since_.erase(peer); }
  // Returns overdue peers, each once. The caller closes their connections.
  std::vector<std::uint64_t> take_overdue(Nanos now);

 private:
  std::map<std::uint64_t, Nanos> since_;  // the oldest first
};

}  // namespace rkv::server
