// Waits in the main thread until the workers end, a signal (SIGINT, SIGTERM) arrives, or a time is
// reached.
//
// Thread safety: wait_until() from one thread; done() from any.
#pragma once

#include "common/clock.h"
#include "rkv/result.h"

namespace rkv::kvbench {

class Watch {
 public:
  // Blocks the two signals in this thread and in the threads it starts, so that wait_until()
  // receives them.
  static Result<Watch> create();
  Watch(Watch&& other) noexcept;
  Watch& operator=(Watch&&) = delete;
  ~Watch();

  void done();

  enum class Event : unsigned char { kTime, kDone, kSignal };
  // Returns at `until` (steady nanoseconds) at the latest. After one signal, a second signal ends
  // the process as usual.
  Event wait_until(Nanos until);

 private:
  Watch(int signals, int done) : signals_(signals), done_(done) {}
  int signals_;
  int done_;
};

}  // namespace rkv::kvbench
