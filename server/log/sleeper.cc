#include "server/log/sleeper.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace rkv::server {

namespace {

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, std::int64_t us) {
  const timespec timeout{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1000};
  // Spurious wake-ups are harmless: the callers check their condition again.
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &timeout, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace

void Sleeper::sleep(State state, bool ready, std::int64_t us) {
  if (!ready && !interrupted_.load(std::memory_order_seq_cst)) futex_wait(state_, state, us);
  state_.store(kAwake, std::memory_order_relaxed);
  interrupted_.exchange(false, std::memory_order_acquire);
}

// The exchange lets only one of several callers pay for the system call.
void Sleeper::wake() {
  std::uint32_t expected = kAwaitsEntry;
  if (state_.compare_exchange_strong(expected, kAwake)) futex_wake(state_);
}

void Sleeper::interrupt() {
  interrupted_.store(true, std::memory_order_seq_cst);
  if (state_.exchange(kAwake, std::memory_order_seq_cst) != kAwake) futex_wake(state_);
}

}  // namespace rkv::server
