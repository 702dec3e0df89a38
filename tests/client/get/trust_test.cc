// Trust against clocks that drift, are slewed and stand still: what it believes is judged by the
// clock of the primary, which the client does not see. Canaries break one assumption each, and the
// judge must notice.
#include "client/get/trust.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "common/random.h"

namespace rkv::client {
namespace {

constexpr Nanos kMs = kNanosPerMs;

// The rules for a host and a primary, each of which a canary may leave out.
struct Rules {
  std::int64_t drift_percent = kClockDriftPercent;
  std::int64_t slew_percent = 10;
  bool tells_suspends = true;    // CLOCK_BOOTTIME passes while the host is suspended
  bool looks_after_tick = true;  // T_AFTER_LOOK
  bool rounds = true;            // a ping is answered by the primary only
  bool suspends = true;
};

class World {
 public:
  World(const Rules& rules, std::uint64_t seed) : rules_(rules), random_(seed) {
    trust_.connected(true);
    draw_rates();
    server_ = at_random(50'000 * kMs);
    raw_ = at_random(50'000 * kMs) + 1;
    mono_ = at_random(50'000 * kMs);
    lease_end_ = server_ + kTrustWindow + at_random(15'000 * kMs);
  }

  // Runs until long after another has acted as the primary. Returns whether a call was believed
  // that began later.
  bool run() {
    bool wrong = false;
    for (const Nanos end = lease_end_ + 3000 * kMs; server_ < end && !wrong;) {
      const bool is_near = std::abs(lease_end_ - server_) < 300 * kMs;
      pass(at_random((is_near ? 3 : 60) * kMs) + 1);
      if (random_.below(200) == 0) draw_rates();
      if (rules_.suspends && random_.below(100) == 0) suspend();
      if (random_.below(trust_.wants_ping(read()) ? 20 : 400) == 0) ping();
      if (random_.below(3) == 0) look();
      calls_.push_back({.began = passed(), .is_late = server_ >= lease_end_});
      for (const Call& call : {calls_.back(), calls_[random_.below(calls_.size())]}) {
        const bool believed = trust_.believes(call.began);
        wrong = wrong || (believed && call.is_late);
        believed_ += believed ? 1 : 0;
      }
    }
    return wrong;
  }
  std::size_t believed() const { return believed_; }

 private:
  struct Call {
    Nanos began;
    bool is_late;
  };
  Nanos at_random(Nanos below) {
    return static_cast<Nanos>(random_.below(static_cast<std::uint64_t>(below)));
  }
  std::int64_t extreme(std::int64_t percent) {
    return random_.below(3) == 0 ? 0 : (random_.below(2) == 0 ? percent : -percent);
  }
  void draw_rates() {
    server_rate_ = 100 + extreme(rules_.drift_percent);
    raw_rate_ = 100 + extreme(rules_.drift_percent);
    slew_ = 100 + extreme(rules_.slew_percent);
  }
  void pass(Nanos time) {
    server_ += time * server_rate_ / 100;
    raw_ += time * raw_rate_ / 100;
    mono_ += time * raw_rate_ / 100 * slew_ / 100;
  }
  void suspend() {
    const Nanos time = at_random(2000 * kMs) + 10 * kMs;
    server_ += time * server_rate_ / 100;
    suspended_ += rules_.tells_suspends ? time : 0;
  }
  Nanos passed() const { return mono_ + suspended_; }
  ClockReading read() const {
    const ClockReading::Bounds about{.least = suspended_ - kMs / 100,
                                     .most = suspended_ + kMs / 100};
    return {.passed = passed(),
            .rate = raw_,
            .passed_after = passed(),
            .suspended = about,
            .suspended_after = about};
  }
  // The message there, the answer back: nothing, or long.
  Nanos way() { return random_.below(2) == 0 ? 0 : at_random(30 * kMs); }
  void ping() {
    const ClockReading asked = read();
    pass(way() + 1);
    if (rules_.rounds && server_ >= lease_end_) return;
    // A machine that was stopped goes on with its clock where it stood.
    const Nanos stood_still = rules_.rounds ? 0 : std::max<Nanos>(server_ - lease_end_, 0) + kMs;
    const auto server_us = static_cast<std::uint64_t>((server_ - stood_still) / 1000);
    pass(way() + 1);
    if (rules_.suspends && random_.below(10) == 0) suspend();
    trust_.note_ping(asked, server_us, read());
  }
  void look() {
    const Nanos last = rules_.looks_after_tick ? lease_end_ - kTrustWindow : lease_end_;
    const Nanos tick = std::min(server_, last);
    if (random_.below(50) == 0) pass(at_random(500 * kMs) + 1);  // the READ took long
    trust_.note_line({.tick = static_cast<std::uint64_t>(tick), .replicated = {}}, read());
  }

  const Rules rules_;
  Random random_;
  Trust trust_;
  std::int64_t server_rate_ = 100;
  std::int64_t raw_rate_ = 100;
  std::int64_t slew_ = 100;
  Nanos server_ = 0;     // the primary's clock
  Nanos raw_ = 0;        // CLOCK_MONOTONIC_RAW
  Nanos mono_ = 0;       // CLOCK_MONOTONIC
  Nanos suspended_ = 0;  // as CLOCK_BOOTTIME shows it
  Nanos lease_end_ = 0;  // from then on another replica may act
  std::vector<Call> calls_;
  std::size_t believed_ = 0;
};

// How many of the worlds had a call that was wrongly believed.
int wrong_in(const Rules& rules, int worlds, std::size_t* believed = nullptr) {
  int wrong = 0;
  for (int i = 0; i < worlds; ++i) {
    World world(rules, static_cast<std::uint64_t>(i) + 1);
    wrong += world.run() ? 1 : 0;
    if (believed != nullptr) *believed += world.believed();
  }
  return wrong;
}

TEST(Trust, NeverBelievesAPrimaryThatWasReplaced) {
  std::size_t believed = 0;
  EXPECT_EQ(wrong_in({}, 3000, &believed), 0);
  EXPECT_GT(believed, 100'000U) << "nothing was believed: the test shows nothing";
  EXPECT_EQ(wrong_in({.suspends = false}, 3000), 0);
}

TEST(Trust, TheJudgeNoticesEachRuleThatIsLeftOut) {
  EXPECT_GT(wrong_in({.drift_percent = 3}, 3000), 0) << "clocks that drift further";
  EXPECT_GT(wrong_in({.slew_percent = 40}, 3000), 0) << "a clock that is slewed further";
  EXPECT_GT(wrong_in({.tells_suspends = false}, 1000), 0) << "a suspend that nothing shows";
  EXPECT_GT(wrong_in({.looks_after_tick = false}, 1000), 0) << "a tick beyond the lease";
  EXPECT_GT(wrong_in({.rounds = false}, 1000), 0) << "a ping without a round";
}

ClockReading at(Nanos time, Nanos suspended = 0) {
  const ClockReading::Bounds bounds{.least = suspended, .most = suspended};
  return {.passed = time + suspended,
          .rate = time,
          .passed_after = time + suspended,
          .suspended = bounds,
          .suspended_after = bounds};
}
GroupLine tick(Nanos at) {
  return {.tick = static_cast<std::uint64_t>(at), .replicated = {}};
}

class TrustRules : public ::testing::Test {
 protected:
  // The server's clock is 5 s ahead, and the ping took no time.
  TrustRules() {
    trust_.connected(true);
    trust_.note_ping(at(1000 * kMs), 6'000'000, at(1000 * kMs));
    trust_.note_line(tick(6000 * kMs), at(1000 * kMs));
  }
  // The first time at which a call is not believed, to the nanosecond.
  Nanos until() const {
    Nanos least = 0;
    Nanos most = 100'000 * kMs;
    while (most - least > 1) {
      const Nanos middle = least + (most - least) / 2;
      (trust_.believes(middle) ? least : most) = middle;
    }
    return most;
  }
  Trust trust_;
};

TEST_F(TrustRules, ACallIsBelievedExactlyByTheFormula) {
  // c + d + (c - c1) * 2e/(1-e) < t + W with d = 5 s + 1 us: the answer's time was cut.
  const Nanos window = 250 * kMs - 1000;
  const Nanos raw = (window * 99 + 100) / 101;
  EXPECT_EQ(until(), 1000 * kMs + raw * 88 / 100);
  // Later it is nearer: less is lost to the clock that is slewed.
  trust_.note_line(tick(6000 * kMs), at(1200 * kMs));
  EXPECT_GT(until(), 1000 * kMs + raw * 88 / 100);
  EXPECT_LE(until(), 1000 * kMs + raw);
}

TEST_F(TrustRules, NothingIsBelievedWithoutATickOrAPing) {
  EXPECT_TRUE(trust_.believes(1001 * kMs));
  trust_.note_line(tick(0), at(1002 * kMs));
  EXPECT_FALSE(trust_.believes(1001 * kMs)) << "the primary has said so";
  trust_.note_line(tick(6002 * kMs), at(1003 * kMs));
  EXPECT_TRUE(trust_.believes(1003 * kMs));
  trust_.connected(true);
  EXPECT_FALSE(trust_.believes(1003 * kMs)) << "TRUST-4";
  trust_.note_line(tick(6003 * kMs), at(1004 * kMs));
  EXPECT_FALSE(trust_.believes(1004 * kMs));
  EXPECT_TRUE(trust_.wants_ping(at(1004 * kMs)));
}

TEST_F(TrustRules, ACallBeforeThePingCountsFromThePing) {
  EXPECT_TRUE(trust_.believes(0)) << "the server was the primary after the call had begun";
  trust_.note_line(tick(5000 * kMs), at(1000 * kMs));
  EXPECT_TRUE(trust_.believes(0)) << "an older line that comes late takes nothing away";
}

TEST_F(TrustRules, ASuspendVoidsWhatWasAsked) {
  trust_.note_line(tick(6010 * kMs), at(1010 * kMs, 50 * kMs));
  EXPECT_FALSE(trust_.believes(1010 * kMs));
  EXPECT_TRUE(trust_.wants_ping(at(1010 * kMs, 50 * kMs)));
  // One between question and answer does so, too.
  trust_.note_ping(at(1010 * kMs, 50 * kMs), 6'010'000, at(1010 * kMs, 90 * kMs));
  trust_.note_line(tick(6010 * kMs), at(1010 * kMs, 90 * kMs));
  EXPECT_FALSE(trust_.believes(1010 * kMs));
  trust_.note_ping(at(1011 * kMs, 90 * kMs), 6'051'000, at(1011 * kMs, 90 * kMs));
  trust_.note_line(tick(6051 * kMs), at(1011 * kMs, 90 * kMs));
  EXPECT_TRUE(trust_.believes(1011 * kMs + 90 * kMs));
}

TEST_F(TrustRules, ReadingsFarApartProveNothing) {
  ClockReading slow = at(1010 * kMs);
  slow.suspended.most += 100 * kMs;  // the thread was stopped between the clocks
  trust_.note_line(tick(6010 * kMs), slow);
  EXPECT_FALSE(trust_.believes(1010 * kMs));
}

TEST_F(TrustRules, TheSmallestAgedDifferenceIsKept) {
  const Nanos before = until();
  trust_.note_ping(at(1000 * kMs), 6'100'000, at(1100 * kMs));  // an answer that took 100 ms
  EXPECT_GE(until(), before) << "a worse one takes nothing away";
  // In 12 s the one of before has aged by 240 ms: then the slow one is the better one.
  trust_.note_ping(at(13'000 * kMs), 18'100'000, at(13'100 * kMs));
  trust_.note_line(tick(18'100 * kMs), at(13'100 * kMs));
  EXPECT_TRUE(trust_.believes(13'100 * kMs));
}

TEST_F(TrustRules, ABrokenPeerIsNotBelievedForLong) {
  for (const std::uint64_t wild : {~std::uint64_t{0}, std::uint64_t{1} << 62,
                                   std::uint64_t{1} << 63, std::uint64_t{1} << 61}) {
    trust_.note_ping(at(1000 * kMs), wild, at(1000 * kMs));
    trust_.note_line({.tick = wild, .replicated = {}}, at(1000 * kMs));
    EXPECT_LE(until(), 1000 * kMs + kTrustWindow);
  }
  Trust fresh;
  fresh.connected(true);
  fresh.note_ping(at(1000 * kMs), 0, at(1000 * kMs));
  fresh.note_line(tick(6000 * kMs), at(1000 * kMs));
  EXPECT_FALSE(fresh.believes(1000 * kMs + kTrustWindow));
}

TEST_F(TrustRules, PingsAreWantedAgainAfterAWhile) {
  EXPECT_FALSE(trust_.wants_ping(at(3000 * kMs)));
  EXPECT_TRUE(trust_.wants_ping(at(3000 * kMs + 1)));
}

TEST_F(TrustRules, TheReplicatedMarkRises) {
  trust_.note_line({.tick = 1, .replicated = Version::of(2, 7)}, at(1000 * kMs));
  EXPECT_TRUE(trust_.is_replicated(Version::of(2, 7)));
  EXPECT_FALSE(trust_.is_replicated(Version::of(2, 8)));
  trust_.note_line({.tick = 1, .replicated = Version::of(2, 6)}, at(1000 * kMs));
  EXPECT_TRUE(trust_.is_replicated(Version::of(2, 7)));
}

}  // namespace
}  // namespace rkv::client
