// Servers that a cluster has no transport to yet: no device leads to them, or their host names are
// unknown. The search for a transport blocks, so it is repeated with back-off and not for every
// operation.
//
// Thread safety: as the cluster.
#pragma once

#include <chrono>
#include <vector>

#include "client/link/retry_policy.h"
#include "rkv/options.h"

namespace rkv::client {

class RouteBackoff {
 public:
  RouteBackoff(std::size_t servers, const ClientOptions& options) {
    for (std::size_t i = 0; i < servers; ++i)
      all_.push_back({.backoff = Backoff(nanos(options.first_backoff),
                                         nanos(options.longest_backoff), random_from_kernel())});
  }
  // Returns true if a search is due. If not, last_error() is still the answer.
  bool is_due(std::size_t server, Nanos now) const { return now >= all_[server].next_look; }
  void not_found(std::size_t server, Nanos now, const Error& error) {
    all_[server].next_look = now + all_[server].backoff.next();
    all_[server].last = error;
  }
  const Error& last_error(std::size_t server) const { return all_[server].last; }

 private:
  static Nanos nanos(std::chrono::milliseconds time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }
  struct Way {
    Backoff backoff;
    Nanos next_look = 0;
    Error last{};
  };
  std::vector<Way> all_;
};

}  // namespace rkv::client
