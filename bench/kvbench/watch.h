// What the main thread waits for while others work: their end, a signal (SIGINT, SIGTERM), or a
// time.
//
// Thread safety: one thread waits; done() from any.
#pragma once

#include "common/clock.h"
#include "rkv/result.h"

namespace rkv::kvbench {

class Watch {
 public:
  // Blocks the two signals in this thread and those it starts, so that they are read here.
  static Result<Watch> create();
  Watch(Watch&& other) noexcept;
  Watch& operator=(Watch&&) = delete;
  ~Watch();

  void done();

  enum class Event : unsigned char { kTime, kDone, kSignal };
  // Returns at `until` (steady nanoseconds) at the latest. After a signal the next one ends the
  // process, as is usual.
  Event wait_until(Nanos until);

 private:
  Watch(int signals, int done) : signals_(signals), done_(done) {}
  int signals_;
  int done_;
};

}  // namespace rkv::kvbench
