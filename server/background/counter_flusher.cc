#include "server/background/counter_flusher.h"

#include <chrono>
#include <thread>
#include <utility>

namespace rkv::server {

namespace {
// The longest time until a change of a one-sided counter is in the log. MANUAL.md states it.
constexpr Nanos kPeriod = 100 * kNanosPerMs;
constexpr Nanos kWhenTheLogIsFull = kNanosPerMs;
constexpr Nanos kUntilCalled = Nanos{3'600'000} * kNanosPerMs;
}  // namespace

CounterFlusher::CounterFlusher(Store& store, const Clock& clock, std::function<void()> over,
                               std::unique_ptr<BackgroundThread> background)
    : store_(store),
      clock_(clock),
      over_(std::move(over)),
      sweeps_("rkv-sweep", clock, [this] { return sweep(); }, std::move(background)) {}

void CounterFlusher::start() {
  sweeps_.start();
}

void CounterFlusher::stop() {
  sweeps_.stop();
}

std::uint64_t CounterFlusher::ask() {
  std::uint64_t asked = 0;
  {
    const MutexLock lock(mutex_);
    asked = ++asked_;
  }
  sweeps_.call();
  return asked;
}

std::optional<Status> CounterFlusher::outcome(std::uint64_t asked) const {
  const MutexLock lock(mutex_);
  if (asked <= done_up_to_) return Status{};
  if (asked <= over_up_to_) return failure_;
  return std::nullopt;
}

Nanos CounterFlusher::sweep() {
  std::uint64_t asked = 0;
  bool waited_for = false;
  {
    const MutexLock lock(mutex_);
    asked = asked_;
    waited_for = asked > over_up_to_;
  }
  if (!waited_for && !store_.counter_cells().in_use()) return clock_.now() + kUntilCalled;
  const Status swept = store_.counter_cells().sweep();
  if (!swept && swept.error().code == Code::kBusy) return clock_.now() + kWhenTheLogIsFull;
  {
    const MutexLock lock(mutex_);
    over_up_to_ = asked;
    if (swept) {
      done_up_to_ = asked;
    } else {
      failure_ = swept;
    }
  }
  if (waited_for) over_();
  return clock_.now() + kPeriod;
}

CounterCells::Swept CounterFlusher::end(std::int64_t patience_ms) {
  const Deadline deadline = Deadline::after_ms(clock_, patience_ms);
  for (;;) {
    const CounterCells::Swept ended = store_.counter_cells().end_all();
    if (ended.status || deadline.passed()) return ended;
    // A full log waits for the applier; a disk or a device takes longer to recover.
    const bool full = ended.status.error().code == Code::kBusy;
    std::this_thread::sleep_for(std::chrono::milliseconds(full ? 1 : 50));
  }
}

}  // namespace rkv::server
