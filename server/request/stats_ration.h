// StatsRation: the text of statistics requests, made for at most a share of a worker's time.
//
//  SERVE-9  Making statistics takes at most one part in kStatsParts of the time. A request beyond
//      that share waits at most kStatsParts * kStatsStretch. All statistics requests of one turn
//      get the same text. (Numbered with the worker's invariants, worker.h.)
//
// Thread safety: one owner, the worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "common/clock.h"
#include "server/request/share.h"

namespace rkv::server {

// Statistics get 1 in 128 of a worker's time (SERVE-9). A flood of statistics requests therefore
// slows other requests by less than 1 %.
inline constexpr Nanos kStatsParts = 128;
// Unused statistics time that a worker saves up, at most.
inline constexpr Nanos kStatsStretch = 5 * kNanosPerMs;

class StatsRation {
 public:
  // `make`: makes the text; the clock measures how long it takes.
  StatsRation(const Clock& clock, std::function<std::string()> make)
      : clock_(clock), make_(std::move(make)) {}

  // Whether text() may be called in this turn. If not, a request waits until wait_until().
  bool has_time(std::uint64_t turn) {
    if (made_in_ == turn || share_.has_some(clock_.now())) return true;
    wanted_ = true;
    return false;
  }
  // The text of this turn. REQUIRES: has_time().
  const std::string& text(std::uint64_t turn) {
    if (std::exchange(made_in_, turn) == turn) return text_;
    const Nanos began = clock_.now();
    text_ = make_();
    share_.spend(clock_.now() - began);
    return text_;
  }
  // Call it before a turn retries waiting requests.
  void forget_waiting() { wanted_ = false; }
  // The time at which a turn is due for waiting requests, or `latest` if that is earlier.
  Nanos wait_until(Nanos latest) const {
    return wanted_ ? std::min(latest, share_.again_at()) : latest;
  }

 private:
  const Clock& clock_;
  const std::function<std::string()> make_;
  Share share_{kStatsParts, kStatsStretch};
  std::string text_;
  std::uint64_t made_in_ = 0;  // the number of the turn that made text_
  bool wanted_ = false;        // a request waits for the share to grow
};

}  // namespace rkv::server
