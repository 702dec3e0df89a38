// The thread that takes the numbers of one-sided counters to the log: of all that changed, ten
// times a second, and when somebody waits for it. A sweep asks the adapter for each number, some
// microseconds each, which no worker does: its other clients would wait.
//
//   const std::uint64_t sweep = sweeper.ask();          // a worker; is called back when it is over
//   ... later:
//   if (const auto over = sweeper.outcome(sweep)) ...   // what was counted before ask() is logged
//
// Thread safety: ask, outcome, call: any thread. The rest: the owner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "common/clock.h"
#include "server/background.h"
#include "server/stepper.h"
#include "server/store.h"

namespace rkv::server {

class Sweeper {
 public:
  // References must outlive it. `over` is called by the sweeper's thread when a sweep is over that
  // somebody asked for; it must not block.
  Sweeper(Store& store, const Clock& clock, std::function<void()> over,
          std::unique_ptr<Background> background = background_threads());

  void start();
  void stop();
  void call() { stepper_.call(); }

  // A sweep that begins after this: its number.
  std::uint64_t ask();
  // Nothing: not over. A log that is full delays it and is no outcome. kInternal: a device failed;
  // kIo: the disk.
  std::optional<Status> outcome(std::uint64_t asked) const;
  // One sweep; when the next is due. For the thread, and for tests without one.
  Nanos sweep();

  // Takes all counters out of their cells and logs them, trying again what failed. Blocks, for
  // `patience_ms` and a pass over all counters at most. Clients have gone.
  Store::Swept end(std::int64_t patience_ms);

 private:
  Store& store_;
  const Clock& clock_;
  const std::function<void()> over_;
  mutable std::mutex mutex_;  // guards what follows
  std::uint64_t asked_ = 0;
  std::uint64_t over_up_to_ = 0;
  std::uint64_t done_up_to_ = 0;  // of those, without a failure
  Status failure_{};              // of the last that had one
  Stepper stepper_;
};

}  // namespace rkv::server
