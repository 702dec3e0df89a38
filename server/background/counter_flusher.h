// CounterFlusher: the thread that logs the numbers of one-sided counters. It sweeps all counters
// that have changed ten times a second, and whenever a request waits for it. A sweep asks the
// adapter for each number, which takes some microseconds each. A worker must not do that: its
// clients would wait.
//
//   const std::uint64_t sweep = flusher.ask();  // a worker; `over` is called afterwards
//   ... later:
//   if (const auto over = flusher.outcome(sweep)) ...  // numbers from before ask() are logged
//
// Thread safety: ask, outcome, call: any thread. All others: the owner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "common/clock.h"
#include "common/mutex.h"
#include "server/background/background_thread.h"
#include "server/background/repeated_step.h"
#include "server/store/store.h"

namespace rkv::server {

class CounterFlusher {
 public:
  // References must outlive the object. Its thread calls `over` after every sweep that was asked
  // for; `over` must not block.
  CounterFlusher(Store& store, const Clock& clock, std::function<void()> over,
                 std::unique_ptr<BackgroundThread> background = background_threads());

  void start();
  void stop();
  void call() { sweeps_.call(); }

  // Requests a sweep that begins after this call. Returns its number.
  std::uint64_t ask();
  // Returns the result of sweep number `asked`. nullopt: the sweep is not over; a full log only
  // delays it. kInternal: a device failed. kIo: the disk failed.
  std::optional<Status> outcome(std::uint64_t asked) const;
  // Runs one sweep and returns when the next is due. For the thread, and for tests without one.
  Nanos sweep();

  // Takes all counters out of their cells and logs them; retries failures. Blocks for at most
  // `patience_ms` and one pass over all counters. REQUIRES: no client is connected.
  CounterCells::Swept end(std::int64_t patience_ms);

 private:
  Store& store_;
  const Clock& clock_;
  const std::function<void()> over_;
  mutable Mutex mutex_;
  std::uint64_t asked_ RKV_GUARDED_BY(mutex_) = 0;
  std::uint64_t over_up_to_ RKV_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_up_to_ RKV_GUARDED_BY(mutex_) = 0;  // up to the last sweep that succeeded
  Status failure_ RKV_GUARDED_BY(mutex_){};              // of the last sweep that failed
  RepeatedStep sweeps_;
};

}  // namespace rkv::server
