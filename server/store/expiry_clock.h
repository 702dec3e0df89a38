// ExpiryClock: the time by which keys expire. It is the wall clock, which the server follows, as an
// offset of a clock that never jumps.
//
// Thread safety: all operations from any thread. The offset is relaxed, because no other data
// depends on it.
#pragma once

#include <atomic>
#include <cstdint>

#include "common/clock.h"

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
  // Whether a record with this expiry (0 = never) has expired.
  bool has_passed(std::uint64_t expiry_ms) const {
    return expiry_ms != 0 && expiry_ms <= unix_ms();
  }
  Nanos now() const { return clock_.now(); }  // of the clock that never jumps

 private:
  const Clock& clock_;
  std::atomic<std::uint64_t> unix_ms_at_0_;
};

}  // namespace rkv::server
