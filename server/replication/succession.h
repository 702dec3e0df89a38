// Succession: how a primary gives its place to a backup, while its clients wait for a moment only.
//
//   succession.begin(primary, "n2", now);
//   ... in each turn:
//   const auto told = succession.step(primary, now, is_quiet);   // send what was told
//   if (succession.is_closed()) ...                              // refuse requests from now on
//
// The next primary serves only when the disks of all in sync have what it inherits. So this one
// waits first until they have what there is now, and stays the primary if one of them takes too
// long.
//
// The backup need not wait until its promises are over if no client believes this primary any more.
// So the primary then shows no tick any more, and serves on until its last one has nearly run out.
// Then it refuses requests, answers those that it has begun, and tells the backup (PRIMARY-7).
//
// Thread safety: none.
#pragma once

#include <optional>
#include <string>

#include "rkv/result.h"
#include "server/replication/primary.h"

namespace rkv::server {

class Succession {
 public:
  // The disks may take so long.
  static constexpr Nanos kSyncedWithin = 2 * kNanosPerSecond;
  // Requests are refused so long before the last tick has run out: some clients believe it a little
  // shorter, and what was begun is to be answered meanwhile.
  static constexpr Nanos kClosedBefore = 30 * kNanosPerMs;
  // What was begun may take so long. Then it is left unanswered.
  static constexpr Nanos kAnswersWithin = kNanosPerSecond;
  // Without a successor for so long after requests were refused, it has failed.
  static constexpr Nanos kToldWithin = 3 * kNanosPerSecond;

  struct Told {
    std::uint64_t peer = 0;
    HandOver message;
  };

  // `name`: of the replica that is to follow; empty: any. kConflict, kNotFound, kBusy: why not.
  Status begin(Primary& primary, std::string name, Nanos now);
  // Does what is due. `is_quiet`: requests are refused, and all that were begun are answered.
  std::optional<Told> step(Primary& primary, Nanos now, bool is_quiet);

  bool is_under_way() const { return phase_ != Phase::kNone; }
  // Requests must be refused.
  bool is_closed() const { return phase_ >= Phase::kClosed; }
  // Requests are refused, but there is nobody to follow: the primary has to end.
  bool has_failed(Nanos now) const {
    return phase_ == Phase::kClosed && now - closed_at_ > kToldWithin;
  }
  // REQUIRES: is_under_way().
  const Replica& successor() const { return successor_; }

 private:
  enum class Phase : std::uint8_t { kNone, kSyncing, kFading, kClosed, kTold };
  // REQUIRES: kSyncing.
  void await_disks(Primary& primary, Nanos now);
  void give_up(Primary& primary);

  Phase phase_ = Phase::kNone;
  std::uint64_t through_ = 0;  // that the disks must have
  Nanos began_at_ = 0;
  std::string name_;
  Replica successor_;
  Nanos closed_at_ = 0;
};

}  // namespace rkv::server
