// Departure: carries out a primary's hand-over. When Succession says so, the server refuses its
// clients. When they have all their answers, the successor is told.
//
//   departure.begin(primary, "n2", now);
//   departure.step(primary, now);          // in each turn
//
// Thread safety: none: the replicator's thread.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "server/group/rules/succession.h"

namespace rkv::server {

class Departure {
 public:
  struct Outside {
    // Clients are refused from now on, and directed to this address.
    std::function<void(const std::string& successor)> close;
    // Whether all requests that were begun before close() are answered.
    std::function<bool()> is_quiet;
    std::function<void(std::uint64_t peer, const HandOver& message)> tell;
  };
  explicit Departure(Outside outside) : outside_(std::move(outside)) {}

  // Like Succession::begin().
  Status begin(Primary& primary, const std::string& name, Nanos now);
  void step(Primary& primary, Nanos now);

  bool is_under_way() const { return succession_.is_under_way(); }
  bool is_closed() const { return is_closed_; }
  bool has_failed(Nanos now) const { return succession_.has_failed(now); }

 private:
  const Outside outside_;
  Succession succession_;
  bool is_closed_ = false;
};

}  // namespace rkv::server
