// Includes rkv/clock.h and adds a clock for tests.
#pragma once

#include "rkv/clock.h"  // IWYU pragma: export

namespace rkv {

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_ = 1;
};

}  // namespace rkv
