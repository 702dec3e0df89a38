#include "rdma/shm/host_page.h"

#include <linux/futex.h>
#include <pthread.h>

#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <mutex>
#include <system_error>
#include <thread>

#include "common/check.h"

namespace rkv::rdma::shm {
namespace {

// One cache line: a client looks at both with every READ.
struct alignas(64) Page {
  pthread_mutex_t life;
  std::uint64_t regions_gone;
};
static_assert(sizeof(Page) == 64);

// The word that the kernel knows: thread id of the holder, and FUTEX_OWNER_DIED. glibc keeps it
// first, and cannot move it: processes built against different versions share such mutexes.
static_assert(offsetof(pthread_mutex_t, __data.__lock) == 0);

bool make_robust(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  if (pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    pthread_mutex_init(mutex, &attributes) == 0;
  pthread_mutexattr_destroy(&attributes);
  return made;
}

}  // namespace

struct HostPage::Holder {
  SharedMemory shared;
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  bool stop = false;
  std::thread thread;

  Page* page() const { return shared.memory.as<Page>(); }

  void run() {
    pthread_mutex_lock(&page()->life);
    std::unique_lock lock(mutex);
    held = true;
    changed.notify_all();
    changed.wait(lock, [this] { return stop; });
    pthread_mutex_unlock(&page()->life);
  }

  bool start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the thread (H2)
    try {
      thread = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      // No thread: told by its not being joinable.
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!thread.joinable()) return false;
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return held; });
    return true;
  }
};

Result<std::unique_ptr<HostPage>> HostPage::create() {
  auto holder = std::make_unique<Holder>();
  RKV_ASSIGN_OR_RETURN(holder->shared,
                       make_shared_memory("rkv-host", kPageBytes, Sealing::kOthersRead));
  if (!make_robust(&holder->page()->life)) {
    return fail_call(Code::kUnsupported, "pthread_mutex_init", 0,
                     "this system has no robust mutexes between processes");
  }
  if (!holder->start()) {
    return fail_call(Code::kOutOfMemory, "pthread_create", 0,
                     "no thread could be started: look at the limit of processes (ulimit -u)");
  }
  return std::unique_ptr<HostPage>(new HostPage(std::move(holder)));
}

HostPage::HostPage(std::unique_ptr<Holder> holder) : holder_(std::move(holder)) {}

HostPage::~HostPage() {
  {
    const std::scoped_lock lock(holder_->mutex);
    holder_->stop = true;
  }
  holder_->changed.notify_all();
  holder_->thread.join();
}

int HostPage::fd() const {
  return holder_->shared.fd.get();
}

void HostPage::count_gone() {
  std::uint64_t& count = holder_->page()->regions_gone;
  // Release: the news lies in the sockets before the number rises (H5).
  store(count, load(count, std::memory_order_relaxed) + 1, std::memory_order_release);
}

bool HostView::alive_after_copy() const {
  loads_before_loads();  // the copy is over when the mutex is looked at (H1)
  const auto* word = page_.as<std::uint32_t>();
  const std::uint32_t state = std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(word))
                                  .load(std::memory_order_relaxed);
  return (state & FUTEX_TID_MASK) != 0 && (state & FUTEX_OWNER_DIED) == 0;
}

std::uint64_t HostView::regions_gone() const {
  return load(page_.as<Page>()->regions_gone, std::memory_order_acquire);
}

}  // namespace rkv::rdma::shm
