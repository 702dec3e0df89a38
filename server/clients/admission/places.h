// Places: which clients hold a place at the server, over all its networks, and which client loses
// its place to a newcomer when all places are taken.
//
// While a place is free, no client is disconnected. After that, a newcomer is refused and one
// client is disconnected for it; the newcomer retries until a place is free. For all newcomers of
// one host, one client at a time is disconnected: the next follows when the first has left or
// kLeaving has passed. The client is chosen by two rules:
//  1. If another host (over shared memory: a process) holds more than one place and more than half
//     of all places, its client that has been silent longest, however short that is. To another
//     host all processes over shared memory together are one host, and to another network all
//     addresses of an IPv6 network of 64 bits.
//  2. Otherwise the client that has been silent longest, if that is at least kSilent. For a client
//     that has never sent anything kUnheard is enough: a connection request without a client behind
//     it looks like this.
// So no host, busy or silent, can keep others out by opening many connections. A client that only
// READs counts as silent too. A client that loses its place reconnects by itself at its next
// operation and takes another client's place. That costs some milliseconds every kSilent, or every
// kUnheard if it only READs. Many processes over shared memory can keep out other processes.
//
// Hosts whose clients are disconnected for misbehaviour too often are refused for a while
// (Offences).
//
// Thread safety: take(), victim(), offends(): any acceptor. heard(), offended(): the client's
// worker. A place becomes free when the last owner of its Place releases it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/clients/admission/offences.h"

namespace rkv::server {

class Place {
 public:
  Place(std::uint64_t session, std::string origin, Nanos now, std::shared_ptr<Offences> offences)
      : session_(session),
        origin_(std::move(origin)),
        offences_(std::move(offences)),
        last_heard_(now) {}
  // The client has sent a message.
  void heard(Nanos now) {
    // Relaxed, both: a reader that sees only the first store, or neither, sees the state of a
    // moment ago.
    last_heard_.store(now, std::memory_order_relaxed);
    if (!ever_heard_.load(std::memory_order_relaxed))
      ever_heard_.store(true, std::memory_order_relaxed);
  }
  // The client is disconnected for misbehaviour. Takes a lock.
  void offended(Nanos now) { offences_->add(origin_, now); }
  // Whether the session is to be ended. The client's worker also sees it if the place was named
  // before adopt().
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
  // Guarded by Places' mutex: the newcomer's origin, and when victim() named this place.
  std::string going_for_;
  Nanos going_since_ = 0;
};

class Places {
 public:
  static constexpr Nanos kSilent = 10 * kNanosPerSecond;
  static constexpr Nanos kUnheard = 2 * kNanosPerSecond;
  static constexpr Nanos kLeaving = kNanosPerSecond;

  // `offences`: allowed per origin and second; 0: no limit.
  explicit Places(std::uint32_t count, std::uint32_t offences = 0)
      : count_(count), offences_(std::make_shared<Offences>(offences)) {}

  // The peer's origin according to its name: a host, or over shared memory a process.
  static std::string_view origin_of(std::string_view peer);

  // Registers a place for a new session. The place is held until the last reference is released.
  std::shared_ptr<Place> take(std::uint64_t session, std::string_view peer, Nanos now);
  // Names the session to end so that `newcomer` gets its place; each session is named once. Nothing
  // if no client has to leave for this newcomer, or if a client is already leaving for its origin.
  std::optional<std::uint64_t> victim(std::string_view newcomer, Nanos now);
  // Whether newcomers of this origin are refused now.
  bool offends(std::string_view newcomer, Nanos now) const {
    return offences_->too_many(origin_of(newcomer), now);
  }

 private:
  const std::uint32_t count_;
  const std::shared_ptr<Offences> offences_;  // outlives the places
  Mutex mutex_;
  // Expired entries stay until the next take().
  std::vector<std::weak_ptr<Place>> places_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
