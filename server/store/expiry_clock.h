// ExpiryClock: the time by which keys expire. It is the wall clock, which the server follows, as an
// offset of a clock that never jumps. In a group it is the group's time, which stands still if the
// server does not get the next one. Times to live begin by a clock that is ahead of it.
//
// A record whose removal could not be logged is still on disk. It stays expired when the clock is
// set back: otherwise a key that was absent would exist again.
//
// Invariants:
//  EXPCLOCK-1  A record for which has_expired() was true because of keep_expired() has expired at
//      some time of this start: its version was begun before that time, which its expiry precedes.
//
// Thread safety: all operations from any thread, but set(): one thread at a time. A reader sees
// both times of one set(), because `sets_` is odd in between.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/clock.h"
#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

class ExpiryClock {
 public:
  // `unix_ms_at_0` is the wall clock's time when `clock` read 0. `clock` must outlive the object.
  ExpiryClock(const Clock& clock, std::uint64_t unix_ms_at_0)
      : clock_(clock), unix_ms_at_0_(unix_ms_at_0), begins_at_0_(unix_ms_at_0) {}

  // Corrects the wall clock's time when `clock` read 0.
  void set(std::uint64_t unix_ms_at_0) {
    set(unix_ms_at_0, std::numeric_limits<Nanos>::max(), unix_ms_at_0);
  }
  // It runs until `clock` reads `until`. Times to live begin by another one.
  void set(std::uint64_t unix_ms_at_0, Nanos until, std::uint64_t begins_at_0) {
    const std::uint32_t sets = sets_.load(std::memory_order_relaxed);
    sets_.store(sets + 1, std::memory_order_relaxed);
    unix_ms_at_0_.store(unix_ms_at_0, std::memory_order_release);
    until_.store(until, std::memory_order_release);
    begins_at_0_.store(begins_at_0, std::memory_order_release);
    sets_.store(sets + 2, std::memory_order_release);
  }
  // When a time to live ends that begins now; rounded up.
  std::uint64_t end_of(std::uint64_t ttl_ms) const {
    return begins_at_0_.load(std::memory_order_relaxed) + ttl_ms +
           static_cast<std::uint64_t>((clock_.now() + kNanosPerMs - 1) / kNanosPerMs);
  }
  // The wall clock's time.
  std::uint64_t unix_ms() const {
    while (true) {
      const std::uint32_t sets = sets_.load(std::memory_order_acquire);
      const std::uint64_t at_0 = unix_ms_at_0_.load(std::memory_order_acquire);
      const Nanos until = until_.load(std::memory_order_acquire);
      if (sets % 2 != 0 || sets_.load(std::memory_order_relaxed) != sets) continue;
      return at_0 + static_cast<std::uint64_t>(std::min(clock_.now(), until) / kNanosPerMs);
    }
  }
  // Whether a record on disk with this expiry (0 = never) has expired.
  bool has_expired(std::uint64_t expiry_ms, Version version) const {
    if (expiry_ms == 0) return false;
    return expiry_ms <= unix_ms() ||
           (keeps_.load(std::memory_order_acquire) && is_kept_expired(expiry_ms, version));
  }
  // Records of versions up to `through` that expire up to `until_ms` stay expired, wherever the
  // clock is set. REQUIRES: the clock has reached `until_ms` after `through` was begun.
  void keep_expired(Version through, std::uint64_t until_ms);
  Nanos now() const { return clock_.now(); }  // of the clock that never jumps

 private:
  struct Kept {
    Version through;
    std::uint64_t until_ms;
  };
  bool is_kept_expired(std::uint64_t expiry_ms, Version version) const;

  const Clock& clock_;
  std::atomic<std::uint32_t> sets_{0};
  std::atomic<std::uint64_t> unix_ms_at_0_;
  std::atomic<std::uint64_t> begins_at_0_;
  std::atomic<Nanos> until_{std::numeric_limits<Nanos>::max()};
  std::atomic<bool> keeps_{false};  // kept_ is not empty
  mutable Mutex mutex_;
  // No entry covers another one: there is one for each time that the clock was set back in between.
  std::vector<Kept> kept_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
