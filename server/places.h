// Places: which clients have a place at the server, over all its networks, and whose is given to
// another when none is left.
//
// Nobody is asked to go before all places are taken. Then one goes for each that wants to come -
// one at a time and kLeaving for newcomers of one host, which ask again until a place is free:
//  1. of a host (over shared memory: of a process) that has more than half of all places, and more
//     than one, the client that has been silent longest, however short that is;
//  2. else the client that has been silent longest, if it has been for kSilent - for kUnheard, if
//     it has never sent anything: a connection request without a client behind it looks like this.
// So nobody keeps others out by many connections of one host, busy or silent. A client that only
// READs is silent too. Who loses its place connects again by itself at its next operation, and
// finds another's: a few thousandths of a second every kSilent.
//
// Whose clients are thrown out too often for what they do are not let in for a while (Offences).
//
// Thread safety: take(), victim(), offends(): the acceptors, any of them. heard(), offended(): the
// client's worker. A Place is given back by its last owner's end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "server/offences.h"

namespace rkv::server {

class Place {
 public:
  Place(std::uint64_t session, std::string origin, Nanos now, std::shared_ptr<Offences> offences)
      : session_(session),
        origin_(std::move(origin)),
        offences_(std::move(offences)),
        last_heard_(now) {}
  // It has sent something.
  void heard(Nanos now) {
    // Relaxed, both: a look that comes between them or before them is a look a moment earlier.
    last_heard_.store(now, std::memory_order_relaxed);
    if (!ever_heard_.load(std::memory_order_relaxed))
      ever_heard_.store(true, std::memory_order_relaxed);
  }
  // It is disconnected for what it has done. Takes a lock.
  void offended(Nanos now) { offences_->add(origin_, now); }
  // Its session is to be ended. Seen by the worker that the client comes to, also when it was named
  // before it came.
  bool is_going() const { return is_going_.load(std::memory_order_acquire); }
  std::uint64_t session() const { return session_; }

 private:
  friend class Places;
  const std::uint64_t session_;
  const std::string origin_;
  const std::shared_ptr<Offences> offences_;
  std::atomic<Nanos> last_heard_;
  std::atomic<bool> ever_heard_{false};
  std::atomic<bool> is_going_{false};
  // Guarded by Places' mutex: the newcomer's origin, and when the place was named.
  std::string going_for_;
  Nanos going_since_ = 0;
};

class Places {
 public:
  static constexpr Nanos kSilent = 10 * kNanosPerSecond;
  static constexpr Nanos kUnheard = 2 * kNanosPerSecond;
  static constexpr Nanos kLeaving = kNanosPerSecond;

  // `offences`: that an origin may have a second, 0: without limit.
  explicit Places(std::uint32_t count, std::uint32_t offences = 0)
      : count_(count), offences_(std::make_shared<Offences>(offences)) {}

  // Where a peer is, as far as its name says: a host, or a process of this one.
  static std::string_view origin_of(std::string_view peer);

  std::shared_ptr<Place> take(std::uint64_t session, std::string_view peer, Nanos now);
  // Whose place a client from there is to have: its session, which is to be ended. It is not named
  // a second time. Nothing: nobody has to go for this one, or somebody is about to.
  std::optional<std::uint64_t> victim(std::string_view newcomer, Nanos now);
  // Whether a client from there is not to be let in now.
  bool offends(std::string_view newcomer, Nanos now) const {
    return offences_->too_many(origin_of(newcomer), now);
  }

 private:
  const std::uint32_t count_;
  const std::shared_ptr<Offences> offences_;  // outlives the places
  std::mutex mutex_;
  std::vector<std::weak_ptr<Place>> places_;  // of those that have gone, until the next take()
};

}  // namespace rkv::server
