#include "bench/kvbench/watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include "common/signals.h"

namespace rkv::kvbench {

Result<Watch> Watch::create() {
  const sigset_t set = ending_signals();
  const int done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (done < 0) return fail_call(Code::kInternal, "eventfd", errno);
  const int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) {
    const int why = errno;
    close(done);
    return fail_call(Code::kInternal, "signalfd", why);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Watch(signals, done);
}

Watch::Watch(Watch&& other) noexcept
    : signals_(std::exchange(other.signals_, -1)), done_(std::exchange(other.done_, -1)) {}

Watch::~Watch() {
  if (signals_ < 0) return;
  close(signals_);
  close(done_);
  const sigset_t set = ending_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Watch::done() {
  const std::uint64_t one = 1;
  // Cannot fail: the counter never comes near its limit.
  [[maybe_unused]] const auto written = write(done_, &one, sizeof one);
}

Watch::Event Watch::wait_until(Nanos until) {
  constexpr Nanos kLongest = 60'000;  // milliseconds; poll takes an int
  const SteadyClock clock;
  while (true) {
    const Nanos left_ms = (until - clock.now() + kNanosPerMs - 1) / kNanosPerMs;
    pollfd waited[] = {{.fd = signals_, .events = POLLIN, .revents = 0},
                       {.fd = done_, .events = POLLIN, .revents = 0}};
    const int ready = poll(waited, 2, static_cast<int>(std::clamp<Nanos>(left_ms, 0, kLongest)));
    if (ready > 0 && waited[1].revents != 0) return Event::kDone;
    if (ready > 0 && waited[0].revents != 0) {
      signalfd_siginfo info{};
      [[maybe_unused]] const auto taken = read(signals_, &info, sizeof info);
      const sigset_t set = ending_signals();
      pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
      return Event::kSignal;
    }
    if (ready == 0 && left_ms <= kLongest) return Event::kTime;
  }
}

}  // namespace rkv::kvbench
