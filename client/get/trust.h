// Until when a client believes what it READs from the primary of a replicated group. A primary that
// was replaced does not know it at once, and its memory still answers.
//
// The primary's tick line promises: nobody else acts as the primary before its clock has passed
// tick + kTrustWindow. A client compares its own clock with the primary's by a ping (WIRE.md,
// "Groups"). All clocks of these comparisons are CLOCK_MONOTONIC_RAW, whose rate nobody slews.
//
// A GET must not read two clocks. So calls read CLOCK_BOOTTIME only, which also passes while the
// host is suspended, and until_ is a time of it. The kernel slews that clock: by less than
// kSlewPercent.
//
// Invariants:
//  TRUST-1  believes(began) is true only if no other replica acted as the primary at that time. It
//      does not matter when the tick was READ: what a deposed primary shows as replicated was
//      current when it was replaced.
//  TRUST-2  A difference of the clocks is not used for times before its question was sent, and
//      grows by the drift of both clocks (tests/model/drift.py).
//  TRUST-3  When the host was suspended after a question, its answer proves nothing any more. A
//      suspend after until_ was computed makes CLOCK_BOOTTIME pass.
//  TRUST-4  What is known is of one connection.
//
// Thread safety: a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "common/layout.h"
#include "common/trust_times.h"

namespace rkv::client {

// The clocks of this host, read in this order: `passed`, `rate`, `passed_after`.
struct ClockReading {
  struct Bounds {
    Nanos least = 0;
    Nanos most = 0;
  };
  Nanos passed = 0;  // CLOCK_BOOTTIME
  Nanos rate = 0;    // CLOCK_MONOTONIC_RAW
  Nanos passed_after = 0;
  // Time that the host has been suspended: when `passed` was read, and when `passed_after` was.
  Bounds suspended{};
  Bounds suspended_after{};
};

class Trust {
 public:
  static constexpr Nanos kPingEvery = 2 * kNanosPerSecond;

  // Forgets everything: a connection was made.
  void connected(bool in_group) {
    *this = Trust();
    in_group_ = in_group;
  }
  bool in_group() const { return in_group_; }

  // A ping was answered that had been sent after `asked` was read. `server_us`: of the answer.
  void note_ping(const ClockReading& asked, std::uint64_t server_us, const ClockReading& now) {
    if (server_us > kMostServerUs) return;
    if (!is_same(asked.suspended_after, now.suspended)) return forget();
    if (knows_clock_ && !is_same(asked_.suspended_after, now.suspended)) forget();
    const auto server = static_cast<Nanos>((server_us + 1) * kNanosPerUs);  // it was cut
    const Wide difference = kWhole * (Wide{server} - asked.rate) - kGrowth * Wide{asked.rate};
    pinged_at_ = asked.rate;
    if (!knows_clock_ || difference <= difference_) {  // the smallest aged one
      difference_ = difference;
      asked_ = asked;
      knows_clock_ = true;
    }
    update(now);
  }
  // The group line, READ before `now`.
  void note_line(const GroupLine& line, const ClockReading& now) {
    replicated_ = std::max(replicated_, line.replicated);
    has_given_up_ = line.tick == kGivenUpTick;
    const bool is_tick = line.tick != 0 && line.tick <= kMostTick;
    tick_ = is_tick ? std::max(tick_, static_cast<Nanos>(line.tick)) : 0;
    update(now);
  }

  // Whether the server was the primary when this host's CLOCK_BOOTTIME read `began`, in or after
  // the beginning of a call. Then what the call sees over this connection may be believed.
  bool believes(Nanos began) const { return std::max(began, asked_.passed_after) < until_; }
  // Whether this client knows that no fail-over can take this version back.
  bool is_replicated(Version version) const { return version <= replicated_; }
  Version replicated() const { return replicated_; }
  // The server has said that it will not be believed any more.
  bool has_given_up() const { return has_given_up_; }
  bool knows_clock() const { return knows_clock_; }
  bool wants_ping(const ClockReading& now) const {
    return !knows_clock_ || now.rate - pinged_at_ > kPingEvery;
  }

 private:
  __extension__ typedef __int128 Wide;
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::min();
  static constexpr Nanos kNanosPerUs = 1000;
  // Sanity limit for a peer's clock (146 years): avoids overflow.
  static constexpr std::uint64_t kMostTick = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kMostServerUs = kMostTick / kNanosPerUs - 1;
  // A difference grows by 2e / (1 - e) = kGrowth / kWhole.
  static constexpr Wide kGrowth = Wide{2} * kClockDriftPercent;
  static constexpr Wide kWhole = 100 - kClockDriftPercent;
  // adjtimex slews by 10 % and 500 in 10^6, twice at most.
  static constexpr Nanos kSlewPercent = 12;
  // Clocks that were read further apart do not tell whether the host was suspended.
  static constexpr Nanos kWidest = 2 * kNanosPerMs;

  static bool is_same(const ClockReading::Bounds& one, const ClockReading::Bounds& other) {
    const bool are_narrow = one.most - one.least <= kWidest && other.most - other.least <= kWidest;
    return are_narrow && one.least <= other.most && other.least <= one.most;
  }
  void forget() {
    knows_clock_ = false;
    tick_ = 0;
    until_ = kNever;
  }
  // believes() must be true exactly if, with c the time of CLOCK_MONOTONIC_RAW at `began`,
  //   c + d + (c - c1) * 2e / (1 - e) < tick + W.
  // The same with whole numbers: (kWhole + kGrowth) * c < kWhole * (tick + W) - difference_.
  void update(const ClockReading& now) {
    if (knows_clock_ && !is_same(asked_.suspended_after, now.suspended)) forget();
    until_ = kNever;
    if (!knows_clock_ || tick_ == 0) return;
    const Wide most = kWhole * (Wide{tick_} + kTrustWindow) - difference_;
    constexpr Wide kPer = kWhole + kGrowth;
    const Wide last = most >= 0 ? (most + kPer - 1) / kPer : most / kPer;  // rounded up
    // A tick is not later than the clock that it is read from: more is a broken server's.
    const Wide left = std::min(last - now.rate, Wide{kTrustWindow});
    if (left < -Wide{kLongest}) return;
    // From CLOCK_MONOTONIC_RAW to CLOCK_BOOTTIME, whichever way it is slewed.
    const auto raw = static_cast<Nanos>(left);
    until_ = now.passed + (raw >= 0 ? raw * (100 - kSlewPercent) / 100
                                    : raw + raw * (kSlewPercent + 2) / 100 - 1);
  }
  static constexpr Nanos kLongest = 3600 * kNanosPerSecond;

  bool in_group_ = false;
  bool has_given_up_ = false;
  bool knows_clock_ = false;
  ClockReading asked_{};  // before the ping that difference_ is from
  Wide difference_ = 0;   // kWhole * d - kGrowth * c1
  Nanos pinged_at_ = 0;
  Nanos tick_ = 0;  // 0: none
  Version replicated_{};
  Nanos until_ = kNever;  // CLOCK_BOOTTIME
};

}  // namespace rkv::client
