// CatchUp: how a primary lets a backup get in sync although the clients never pause. Both steps
// hold the marks, so writes wait.
//
//  - A joiner whose disk lacks much, or that was awaited without success, sets the pace until it
//    joins. The marks rise by half of what its disk takes, so its backlog shrinks, however fast
//    clients could write. Then the marks stay near it: ahead by what its disk takes in kNearTime.
//    If another backup is in sync, the joiner is not needed, and holds the marks half of the time
//    at most.
//  - A joiner that lacks little is awaited: the log of a primary that is alone is always a round
//    trip ahead, and so are the syncs of its disk. First the `sync` mark waits for the joiner's
//    disk. Then all marks wait, for as long as some round trips to the joiner take. There are
//    pauses between waits.
//
// It only keeps marks from rising, so nothing that a mark promises depends on it.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "common/clock.h"

namespace rkv::server {

class CatchUp {
 public:
  // A wait is over as soon as the joiner has all. So it lasts some milliseconds, except with long
  // values, or a disk that takes a second for a sync. Within kAwaits a busy machine may not even
  // answer once, so a wait may last kRoundTrips measured round trips, up to kLongestAwaits. A wait
  // for a sync may last longer, most of all if the joiner is needed: only writes that ask for a
  // sync wait then. Once the joiner is in sync, they wait for its disk each time.
  static constexpr Nanos kAwaits = 500 * kNanosPerMs;
  static constexpr Nanos kRoundTrips = 4;
  static constexpr Nanos kLongestAwaits = 2 * kNanosPerSecond;
  static constexpr Nanos kAwaitsSync = 3 * kNanosPerSecond;
  static constexpr Nanos kAwaitsSyncIfNeeded = 12 * kNanosPerSecond;
  // The pause doubles after each wait without success. A joiner that is needed is awaited more
  // often: until it is in sync there is one copy of all data.
  static constexpr Nanos kFirstPause = 500 * kNanosPerMs;
  static constexpr Nanos kLongestPause = 16 * kNanosPerSecond;
  static constexpr Nanos kLongestPauseIfNeeded = 4 * kNanosPerSecond;
  // A joiner lacks little if it lacks at most this many bytes of the log, or this few blocks: a
  // block may be as long as the longest value.
  static constexpr std::uint64_t kLacksLittle = std::uint64_t{8} << 20;
  static constexpr std::size_t kFewBlocks = 3;
  // A joiner that is not needed sets the pace for this long, then rests for as long.
  static constexpr Nanos kPaces = kNanosPerSecond / 2;
  static constexpr Nanos kNearTime = 100 * kNanosPerMs;
  static constexpr std::uint64_t kLeastNear = std::uint64_t{64} << 10;
  // How far the marks may rise at once, and before the joiner's disk has taken anything.
  static constexpr std::int64_t kMostAllowed = std::int64_t{8} << 20;

  // A backup that is connected and well, and may be added to the set of replicas in sync.
  struct Joiner {
    std::uint64_t peer = 0;
    std::uint64_t epoch = 0;
    bool disk_lacks_much = false;  // of what is replicated
    bool lacks_little = false;     // of all that it must have to join
    bool has_sync_mark = false;    // its disk has synced what all in sync have
    Nanos round_trip = 0;          // from sending something until its disk has it; 0: not measured
  };

  struct Now {
    bool may_await = true;  // if false, nobody is awaited
    bool is_needed = true;  // joiners are needed: no backup is in sync
    Nanos now = 0;
  };
  // Chooses the joiner to help now. `joiners`: all joiners, ordered by peer. Returns true if a wait
  // has begun: then the caller asks the joiner for what its disk lacks.
  bool look(std::span<const Joiner> joiners, const Now& at);
  // A wait that has ended without the joiner being in sync.
  struct InVain {
    std::uint64_t epoch = 0;
    const char* why = "";  // a clause: "it took too long"
    Nanos waited = 0;
  };
  // Returns the last such wait, once.
  std::optional<InVain> take_in_vain() { return std::exchange(told_in_vain_, std::nullopt); }
  // A joiner joins: nobody is awaited any more.
  void joins() {
    awaited_ = 0;
    was_awaited_ = false;
    pause_ = 0;
  }
  // This process is not helped any more.
  void forget(std::uint64_t epoch);

  // Whether no mark may rise above what this process has answered.
  bool awaits(std::uint64_t epoch) const { return epoch == awaited_ && phase_ == Phase::kAll; }
  // Like awaits(), for the `sync` mark.
  bool awaits_sync(std::uint64_t epoch) const { return epoch == awaited_; }

  // Which joiner sets the pace; 0: none.
  std::uint64_t paced_by() const { return rests_ ? 0 : paced_by_; }
  // By how many bytes the marks may always be ahead of the joiner that sets the pace.
  std::uint64_t near() const;
  // By how many bytes of the log the marks may rise now beyond near().
  std::uint64_t allowed() const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(allowed_, 0));
  }
  void rose(std::uint64_t bytes);  // the marks rose by this much beyond near()
  // The process's disk took `bytes` of what was sent to it, and lacks `still` now.
  void disk_took(std::uint64_t epoch, std::uint64_t bytes, std::uint64_t still, Nanos now);

 private:
  enum class Phase : std::uint8_t { kSync, kAll };

  void go_on_awaiting(std::span<const Joiner> joiners, const Now& at);
  Nanos longest_wait(const Joiner& joiner, bool is_needed) const;
  void end_wait(bool is_needed, Nanos now);
  bool begin_wait(std::span<const Joiner> joiners, Nanos now);
  void choose_pace(std::span<const Joiner> joiners, Nanos now);
  void take_turns(bool is_needed, Nanos now);

  std::uint64_t awaited_ = 0;       // the epoch of a joiner; 0: none
  std::uint64_t awaited_peer_ = 0;  // the peer that was awaited last: others come first
  std::uint64_t awaited_last_ = 0;  // its epoch
  Phase phase_ = Phase::kSync;
  Nanos phase_since_ = 0;
  Nanos awaited_since_ = 0;
  bool was_awaited_ = false;  // a joiner was awaited at the last look()
  Nanos ended_at_ = std::numeric_limits<Nanos>::min() / 2;
  Nanos pause_ = 0;
  std::uint64_t in_vain_ = 0;  // the epoch of the last one that was awaited and did not join
  const char* why_in_vain_ = nullptr;  // why the last wait ended; nullptr: its joiner is gone
  std::optional<InVain> told_in_vain_{};
  std::uint64_t paced_by_ = 0;  // the epoch of a joiner; 0: none
  bool rests_ = false;          // it does not set the pace now
  Nanos turn_since_ = 0;        // since when it sets the pace, or rests
  Nanos paced_since_ = 0;
  Nanos far_until_ = 0;       // the last time at which it was not near
  std::uint64_t taken_ = 0;   // bytes that its disk took until then
  std::int64_t allowed_ = 0;  // below 0: a block was longer than what was left
};

}  // namespace rkv::server
