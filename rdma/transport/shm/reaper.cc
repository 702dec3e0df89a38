#include "rdma/transport/shm/reaper.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <system_error>
#include <thread>

#include "common/mutex.h"
#include "common/thread.h"

namespace rkv::rdma::shm {
namespace {

// ---- the signal that ends waits

constexpr long kNudgeNanos = 1'000'000;  // a close that does not block takes microseconds
constexpr auto kPatience = std::chrono::milliseconds(100);
constexpr std::size_t kMostLimit = std::size_t{1} << 16;

int nudge_signal() {
  return SIGRTMAX - 5;
}

void do_nothing(int) {}

// Installs a handler: only a signal with a handler interrupts a wait.
bool install_nudge() {
  static const bool installed = [] {
    struct sigaction now{};
    if (sigaction(nudge_signal(), nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return false;
    struct sigaction nothing{};
    nothing.sa_handler = do_nothing;
    return sigaction(nudge_signal(), &nothing, nullptr) == 0;
  }();
  return installed;
}

// Sends this thread the signal repeatedly while it is armed.
class Nudge {
 public:
  Nudge() {
    sigset_t signals;
    sigfillset(&signals);
    if (install_nudge()) sigdelset(&signals, nudge_signal());
    pthread_sigmask(SIG_SETMASK, &signals, nullptr);
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = nudge_signal();
    event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    there_ = install_nudge() && timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
  }
  ~Nudge() {
    if (there_) timer_delete(timer_);
  }
  Nudge(const Nudge&) = delete;
  Nudge& operator=(const Nudge&) = delete;
  void arm(bool on) {
    if (!there_) return;
    const timespec period{.tv_sec = 0, .tv_nsec = on ? kNudgeNanos : 0};
    const itimerspec setting{.it_interval = period, .it_value = period};
    timer_settime(timer_, 0, &setting, nullptr);
  }

 private:
  timer_t timer_{};
  bool there_ = false;
};

}  // namespace

// ---- the budget

std::size_t DescriptorBudget::limit_of_process() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 512;
  return std::min<std::size_t>(files.rlim_cur / 2, kMostLimit);
}

Charge DescriptorBudget::take(std::size_t count, std::size_t most) {
  std::size_t held = held_.load(std::memory_order_relaxed);
  do {
    if (count == 0 || count > most || held > most - count) return {};
  } while (!held_.compare_exchange_weak(held, held + count, std::memory_order_relaxed));
  return Charge(shared_from_this(), count);
}

Charge DescriptorBudget::take_socket() {
  return take(1, limit() + kRefusals);
}

Charge DescriptorBudget::take_regions(std::size_t count) {
  return take(count, limit() - limit() / 4);
}

Charge DescriptorBudget::take_unasked(std::size_t count) {
  return take(count, ~std::size_t{0});
}

Charge Charge::split_one() {
  if (count_ == 0) return {};
  --count_;
  return Charge(budget_, 1);
}

void Charge::give_back() {
  if (budget_ != nullptr) budget_->held_.fetch_sub(count_, std::memory_order_relaxed);
  count_ = 0;
}

// ---- the thread

struct Reaper::State {
  struct Item {
    Fd fd;
    Charge charge;
  };
  Mutex mutex;
  ConditionVariable changed;
  std::deque<Item> items RKV_GUARDED_BY(mutex);
  bool running RKV_GUARDED_BY(mutex) = false;  // the thread exists
  bool stopping RKV_GUARDED_BY(mutex) = false;

  static void run(const std::shared_ptr<State>& state);
};

void Reaper::State::run(const std::shared_ptr<State>& state) {
  name_thread("rkv-close");
  Nudge nudge;
  MutexLock lock(state->mutex);
  for (;;) {
    while (!state->stopping && state->items.empty())
      state->changed.wait(state->mutex);
    if (state->items.empty()) break;
    {
      Item item = std::move(state->items.front());
      state->items.pop_front();
      lock.unlock();
      nudge.arm(true);
      item.fd.reset();
      nudge.arm(false);
    }  // returns the charge to the budget
    lock.lock();
  }
  state->running = false;
  state->changed.notify_all();
}

Reaper::Reaper() : state_(std::make_shared<State>()) {}

Reaper::~Reaper() {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const MutexLock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  while (state_->running && state_->changed.wait_until(state_->mutex, end)) {
  }
}

void Reaper::close(Fd fd, Charge charge) {
  if (!fd) return;
  const MutexLock lock(state_->mutex);
  state_->items.push_back({.fd = std::move(fd), .charge = std::move(charge)});
  state_->changed.notify_all();
  if (state_->running) return;
  try {
    std::thread(State::run, state_).detach();
    state_->running = true;
  } catch (const std::system_error&) {
    return;  // no thread can be started now: the next close() tries again
  }
}

void PeerSocket::reset() {
  if (!fd_) return;
  if (reaper_ == nullptr) {
    fd_.reset();
    return;
  }
  shutdown(fd_.get(), SHUT_RDWR);
  reaper_->close(std::exchange(fd_, Fd()), std::exchange(charge_, Charge()));
}

}  // namespace rkv::rdma::shm
