// Succession: how a primary hands its role over to a backup, while its clients wait for a moment
// only.
//
//   succession.begin(primary, "n2", now);
//   ... in each turn:
//   const auto told = succession.step(primary, now, is_quiet);   // send what was told
//   if (succession.is_closed()) ...                              // refuse requests from now on
//
// The next primary serves only when the disks of all in sync have the entries that it inherits. So
// this one first waits until they have all present entries, and stays the primary if a disk takes
// too long.
//
// If no client believes this primary any more, the backup need not wait until its promises are
// over. So the primary then shows no more ticks, and serves on until its last tick has nearly run
// out. Then it refuses requests, answers those that it has begun, and tells the backup (PRIMARY-7).
//
// Thread safety: none.
#pragma once

#include <optional>
#include <string>

#include "rkv/result.h"
#include "server/group/rules/primary.h"

namespace rkv::server {

class Succession {
 public:
  // Limit for the disks.
  static constexpr Nanos kSyncedWithin = 2 * kNanosPerSecond;
  // Requests are refused this long before the last tick has run out: some clients believe it a
  // little shorter, and begun requests are answered meanwhile.
  static constexpr Nanos kClosedBefore = 30 * kNanosPerMs;
  // Limit for begun requests. After that they are left unanswered.
  static constexpr Nanos kAnswersWithin = kNanosPerSecond;
  // The hand-over has failed if there is no successor for this long after requests were refused.
  static constexpr Nanos kToldWithin = 3 * kNanosPerSecond;

  struct Told {
    std::uint64_t peer = 0;
    HandOver message;
  };

  // `name`: the replica that is to follow; empty: any. kConflict, kNotFound, kBusy: why not.
  Status begin(Primary& primary, std::string name, Nanos now);
  // Takes the step that is due. `is_quiet`: requests are refused, and all that were begun are
  // answered.
  std::optional<Told> step(Primary& primary, Nanos now, bool is_quiet);

  bool is_under_way() const { return phase_ != Phase::kNone; }
  // Whether requests must be refused.
  bool is_closed() const { return phase_ >= Phase::kClosed; }
  // Whether requests are refused, but there is no successor: then the primary has to end.
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
  std::uint64_t through_ = 0;  // the version that the disks must have
  Nanos began_at_ = 0;
  std::string name_;
  Replica successor_;
  Nanos closed_at_ = 0;
};

}  // namespace rkv::server
