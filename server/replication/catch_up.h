// CatchUp: what a primary does so that a backup that is not in sync becomes so, although its
// clients never pause. Both steps hold the marks, so writes wait.
//
//  - A joiner whose disk lacks much, or that was awaited without success, sets the pace until it
//  joins: the
//    marks rise by half of what its disk takes, so what it lacks shrinks, however fast clients
//    could write. Then they stay near it: ahead by what its disk took in kNearTime meanwhile.
//  - A joiner that lacks little is awaited: the log of a primary that is alone is always a round
//    trip ahead, and so are its disk's syncs. First the `sync` mark waits for the joiner's disk,
//    then all marks wait, for kAwaits at most. There are pauses between waits.
//
// It only keeps marks from rising, so nothing that a mark promises depends on it.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "common/clock.h"

namespace rkv::server {

class CatchUp {
 public:
  // A wait is over as soon as the joiner has all. So it lasts some milliseconds, but for a disk
  // that takes a second for a sync, or for long values.
  static constexpr Nanos kAwaits = 500 * kNanosPerMs;
  static constexpr Nanos kAwaitsSync = 3 * kNanosPerSecond;
  // Twice as long after each wait without success.
  static constexpr Nanos kFirstPause = 500 * kNanosPerMs;
  static constexpr Nanos kLongestPause = 16 * kNanosPerSecond;
  // Bytes of the log, or blocks: one may be as long as the longest value.
  static constexpr std::uint64_t kLacksLittle = std::uint64_t{8} << 20;
  static constexpr std::size_t kFewBlocks = 3;
  static constexpr Nanos kNearTime = 100 * kNanosPerMs;
  static constexpr std::uint64_t kLeastNear = std::uint64_t{64} << 10;
  // How far the marks may rise before the joiner's disk has taken anything, and in one go.
  static constexpr std::int64_t kMostAllowed = std::int64_t{8} << 20;

  // A backup that is connected and well, and may be added to the set of replicas in sync.
  struct Joiner {
    std::uint64_t peer = 0;
    std::uint64_t epoch = 0;
    bool disk_lacks_much = false;  // of what is replicated
    bool lacks_little = false;     // of all that it must have to join
    bool has_sync_mark = false;    // its disk has synced what all in sync have
  };

  // Chooses the joiner to help now. `joiners`: all, by peer. `may_await`: else nobody is awaited.
  // True: a wait has begun, so the joiner is to be asked for what its disk lacks.
  bool look(std::span<const Joiner> joiners, bool may_await, Nanos now);
  // One of them joins: nobody is awaited any more.
  void joins() {
    awaited_ = 0;
    was_awaited_ = false;
    pause_ = 0;
  }
  // This process is not helped any more.
  void forget(std::uint64_t epoch);

  // Whether no mark may rise above what this process has answered.
  bool awaits(std::uint64_t epoch) const { return epoch == awaited_ && phase_ == Phase::kAll; }
  // The same of the `sync` mark.
  bool awaits_sync(std::uint64_t epoch) const { return epoch == awaited_; }

  // Which joiner sets the pace; 0: none.
  std::uint64_t paced_by() const { return paced_by_; }
  // By how many bytes the marks may be ahead of it in any case.
  std::uint64_t near() const;
  // By how many bytes of the log the marks may rise now otherwise.
  std::uint64_t allowed() const {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(allowed_, 0));
  }
  void rose(std::uint64_t bytes);  // the marks, beyond that
  // `bytes` of what was sent to this process, which lacks `still` now.
  void disk_took(std::uint64_t epoch, std::uint64_t bytes, std::uint64_t still, Nanos now);

 private:
  enum class Phase : std::uint8_t { kSync, kAll };

  void go_on_awaiting(std::span<const Joiner> joiners, bool may_await, Nanos now);
  bool begin_wait(std::span<const Joiner> joiners, Nanos now);
  void choose_pace(std::span<const Joiner> joiners, Nanos now);

  std::uint64_t awaited_ = 0;       // the epoch of a joiner; 0: none
  std::uint64_t awaited_peer_ = 0;  // that was awaited last: others come first
  Phase phase_ = Phase::kSync;
  Nanos phase_since_ = 0;
  bool was_awaited_ = false;  // somebody, when it was looked last
  Nanos ended_at_ = std::numeric_limits<Nanos>::min() / 2;
  Nanos pause_ = 0;
  std::uint64_t in_vain_ = 0;   // the epoch of the last one that was awaited and did not join
  std::uint64_t paced_by_ = 0;  // the epoch of a joiner; 0: none
  Nanos paced_since_ = 0;
  Nanos far_until_ = 0;       // it was not near then
  std::uint64_t taken_ = 0;   // by its disk, until then
  std::int64_t allowed_ = 0;  // below 0: a block was longer than what was left
};

}  // namespace rkv::server
