// The clocks by which a client believes the primary of a group (client/get/trust.h).
//
// Thread safety: all functions, any thread.
#pragma once

#include "client/get/trust.h"
#include "common/clock.h"

namespace rkv::client {

class GroupClock {
 public:
  virtual ~GroupClock() = default;
  // ClockReading::passed. No system call: the kernel maps this clock into the process.
  virtual Nanos passed() const = 0;
  virtual ClockReading read() const = 0;
};

class HostGroupClock final : public GroupClock {
 public:
  Nanos passed() const override;
  ClockReading read() const override;
};

// One clock for all readings, of a test or a simulation. It is never slewed or suspended.
class SingleGroupClock final : public GroupClock {
 public:
  explicit SingleGroupClock(const Clock& clock) : clock_(clock) {}
  Nanos passed() const override { return clock_.now(); }
  ClockReading read() const override {
    const Nanos now = clock_.now();
    return {.passed = now, .rate = now, .passed_after = now};
  }

 private:
  const Clock& clock_;
};

}  // namespace rkv::client
