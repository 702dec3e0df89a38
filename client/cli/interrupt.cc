#include "client/cli/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>

namespace rkv::cli {

namespace {

std::atomic<int> interrupt_event{-1};
static_assert(std::atomic<int>::is_always_lock_free);  // a signal handler uses it

// The thread that is interrupted may not be the one that waits, so an event is kept.
void note_interrupt(int) {
  const int error = errno;
  const std::uint64_t one = 1;
  // Cannot fail: the event is far from full.
  [[maybe_unused]] const ssize_t written = write(interrupt_event, &one, sizeof one);
  errno = error;
}

}  // namespace

Interrupt::Interrupt() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_ < 0) return;
  struct sigaction now{};
  if (sigaction(SIGINT, nullptr, &before_) != 0 || before_.sa_handler == SIG_IGN) return;
  interrupt_event = event_;
  now.sa_handler = note_interrupt;
  now.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  is_caught_ = sigaction(SIGINT, &now, nullptr) == 0;
}

Interrupt::~Interrupt() {
  if (is_caught_) sigaction(SIGINT, &before_, nullptr);
  if (event_ >= 0) close(event_);
}

bool Interrupt::wait_until(std::chrono::steady_clock::time_point time) const {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(time - std::chrono::steady_clock::now());
    const auto most = std::numeric_limits<int>::max();
    pollfd event{.fd = event_, .events = POLLIN, .revents = 0};
    const int ready =
        poll(&event, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, most)));
    if (ready > 0) return true;
    if (ready == 0 && left.count() <= most) return false;
  }
}

}  // namespace rkv::cli
