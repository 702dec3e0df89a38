// CatchUp: what a primary does so that a backup that is not in sync becomes so, although its
// clients never pause. Both steps hold the marks, so writes wait.
//
//  - A joiner whose disk lacks much sets the pace: the marks rise by half of what its disk takes.
//    So what it lacks shrinks, however fast the clients could write.
//  - A joiner that lacks little is awaited: the log of a primary that is alone is always a round
//    trip ahead, and so are its disk's syncs. First the `sync` mark waits for the joiner's disk,
//    then all marks wait for kAwaits. The next wait begins kAwaitsAgain after that at the earliest.
//
// It only keeps marks from rising, so nothing that a mark promises depends on it.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "common/clock.h"

namespace rkv::server {

class CatchUp {
 public:
  static constexpr Nanos kAwaits = 100 * kNanosPerMs;
  static constexpr Nanos kAwaitsSync = 500 * kNanosPerMs;
  static constexpr Nanos kAwaitsAgain = kNanosPerSecond;
  static constexpr std::uint64_t kLacksLittle = std::uint64_t{1} << 20;  // bytes of the log
  // How far the marks may rise before the joiner's disk has taken anything, and in one go.
  static constexpr std::int64_t kMostAllowed = std::int64_t{8} << 20;

  // A backup that is connected and well, and may be added to the set of replicas in sync.
  struct Joiner {
    std::uint64_t peer = 0;
    std::uint64_t epoch = 0;
    std::uint64_t disk_lacks = 0;  // of what is replicated, in bytes
    bool lacks_little = false;     // of all that it must have to join
    bool has_sync_mark = false;    // its disk has synced what all in sync have
  };

  // Chooses the joiner to help now. `joiners`: all, by peer. `may_await`: else no wait begins.
  // True: a wait has begun, so the joiner is to be asked for what its disk lacks.
  bool look(std::span<const Joiner> joiners, bool may_await, Nanos now);
  // Nobody is awaited: one of them joins, or what it has answered is void.
  void end_wait() { awaited_ = 0; }
  // This process is not helped any more.
  void forget(std::uint64_t epoch);

  // Whether no mark may rise above what this process has answered.
  bool awaits(std::uint64_t epoch) const { return epoch == awaited_ && phase_ == Phase::kAll; }
  // The same of the `sync` mark.
  bool awaits_sync(std::uint64_t epoch) const { return epoch == awaited_; }

  // By how many bytes of the log the marks may rise now; nothing: as they like.
  std::optional<std::int64_t> allowed() const {
    return paced_by_ == 0 ? std::nullopt : std::optional(allowed_);
  }
  void rose(std::uint64_t bytes);                            // the marks
  void disk_took(std::uint64_t epoch, std::uint64_t bytes);  // of what was sent to this process

 private:
  enum class Phase : std::uint8_t { kSync, kAll };

  void go_on_awaiting(std::span<const Joiner> joiners, Nanos now);
  bool begin_wait(std::span<const Joiner> joiners, Nanos now);
  void choose_pace(std::span<const Joiner> joiners);

  std::uint64_t awaited_ = 0;       // the epoch of a joiner; 0: none
  std::uint64_t awaited_peer_ = 0;  // that was awaited last: others come first
  Phase phase_ = Phase::kSync;
  Nanos phase_since_ = std::numeric_limits<Nanos>::min() / 2;  // of this wait, or the last one
  std::uint64_t paced_by_ = 0;                                 // the epoch of a joiner; 0: none
  std::int64_t allowed_ = 0;
};

}  // namespace rkv::server
