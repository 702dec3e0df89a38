// ExpiryClock: the time by which keys expire. It is the wall clock, which the server follows, as an
// offset of a clock that never jumps.
//
// A record whose removal could not be logged is still on disk. It stays expired when the clock is
// set back: otherwise a key that was absent would exist again.
//
// Invariants:
//  EXPCLOCK-1  A record for which has_expired() was true because of keep_expired() has expired at
//      some time of this start: its version was begun before that time, which its expiry precedes.
//
// Thread safety: all operations from any thread. The offset is relaxed, because no other data
// depends on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/layout.h"
#include "common/mutex.h"

namespace rkv::server {

class ExpiryClock {
 public:
  // `unix_ms_at_0` is the wall clock's time when `clock` read 0. `clock` must outlive the object.
  ExpiryClock(const Clock& clock, std::uint64_t unix_ms_at_0)
      : clock_(clock), unix_ms_at_0_(unix_ms_at_0) {}

  // Corrects the wall clock's time when `clock` read 0.
  void set(std::uint64_t unix_ms_at_0) {
    unix_ms_at_0_.store(unix_ms_at_0, std::memory_order_relaxed);
  }
  // The wall clock's time `ahead` from now.
  std::uint64_t unix_ms(Nanos ahead = 0) const {
    return unix_ms_at_0_.load(std::memory_order_relaxed) +
           static_cast<std::uint64_t>((clock_.now() + ahead) / kNanosPerMs);
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
  std::atomic<std::uint64_t> unix_ms_at_0_;
  std::atomic<bool> keeps_{false};  // kept_ is not empty
  mutable Mutex mutex_;
  // None covers another: there is one for each time that the clock was set back in between.
  std::vector<Kept> kept_ RKV_GUARDED_BY(mutex_);
};

}  // namespace rkv::server
