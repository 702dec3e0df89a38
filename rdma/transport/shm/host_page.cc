#include "rdma/transport/shm/host_page.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <thread>
#include <tuple>

#include "common/mutex.h"
#include "common/thread.h"

namespace rkv::rdma::shm {
namespace {

// One cache line: a client loads both fields with every READ.
struct alignas(64) Page {
  std::uint32_t life;  // robust futex: the holder's thread id while it lives
  std::uint32_t unused;
  std::uint64_t regions_gone;
};

// The list that the kernel walks when the holder exits: it has one futex. Not shown to clients.
struct Control {
  robust_list_head head;
  robust_list entry;
};

}  // namespace

struct HostPage::Holder {
  SharedMemory shared;
  SharedMemory control;
  Mutex mutex;
  ConditionVariable changed;
  enum class State : std::uint8_t { kStarting, kHeld, kFailed };
  State state RKV_GUARDED_BY(mutex) = State::kStarting;
  bool stop RKV_GUARDED_BY(mutex) = false;
  std::thread thread;

  Page* page() const { return shared.memory.as<Page>(); }

  void set_life(std::uint32_t value) const {
    std::atomic_ref<std::uint32_t>(page()->life).store(value, std::memory_order_seq_cst);
  }

  // Replaces the list that the C library created for this thread, which holds no robust mutex.
  bool hold() const {
    auto* list = control.memory.as<Control>();
    const auto* word = shared.memory.data() + offsetof(Page, life);
    list->entry.next = &list->head.list;
    list->head = {
        .list = {.next = &list->entry},
        .futex_offset = word - control.memory.data() - std::ptrdiff_t{offsetof(Control, entry)},
        .list_op_pending = nullptr};
    if (syscall(SYS_set_robust_list, &list->head, sizeof list->head) != 0) return false;
    set_life(static_cast<std::uint32_t>(syscall(SYS_gettid)));
    return true;
  }

  void run() {
    name_thread("rkv-host-page");
    const bool held = hold();
    const MutexLock lock(mutex);
    state = held ? State::kHeld : State::kFailed;
    changed.notify_all();
    while (!stop)
      changed.wait(mutex);
    set_life(0);
  }

  bool start() {
    auto started = start_without_signals([this] { run(); });  // HOSTPAGE-2
    const MutexLock lock(mutex);
    if (!started) {
      state = State::kFailed;
      return false;
    }
    thread = std::move(*started);
    while (state == State::kStarting)
      changed.wait(mutex);
    return true;
  }

  bool is_held() {
    const MutexLock lock(mutex);
    return state == State::kHeld;
  }
};

Result<std::unique_ptr<HostPage>> HostPage::create() {
  auto holder = std::make_unique<Holder>();
  RKV_ASSIGN_OR_RETURN(holder->shared,
                       make_shared_memory("rkv-host", kPageBytes, Sealing::kOthersRead));
  RKV_ASSIGN_OR_RETURN(holder->control,
                       make_shared_memory("rkv-control", kPageBytes, Sealing::kOthersRead));
  // (HOSTPAGE-6) Keep the pages from being swapped out, if the lock limit permits it.
  std::ignore = mlock(holder->shared.memory.data(), kPageBytes);
  std::ignore = mlock(holder->control.memory.data(), kPageBytes);
  if (!holder->start()) {
    return fail_call(Code::kOutOfMemory, "pthread_create", 0,
                     "a thread could not be started: raise the limit of processes (ulimit -u)");
  }
  std::unique_ptr<HostPage> page(new HostPage(std::move(holder)));
  if (!page->holder_->is_held()) {
    return fail_call(
        Code::kUnsupported, "set_robust_list", 0,
        "this system does not support robust futexes, which report the death of a process");
  }
  return page;
}

HostPage::HostPage(std::unique_ptr<Holder> holder) : holder_(std::move(holder)) {}

HostPage::~HostPage() {
  {
    const MutexLock lock(holder_->mutex);
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
  // Release: the news is in the sockets before the number increases (HOSTPAGE-5).
  store(count, load(count, std::memory_order_relaxed) + 1, std::memory_order_release);
}

bool HostView::alive_after_copy() const {
  loads_before_loads();  // the copy completes before the word is loaded (HOSTPAGE-1)
  const std::uint32_t state =
      std::atomic_ref<std::uint32_t>(page_.as<Page>()->life).load(std::memory_order_relaxed);
  return (state & FUTEX_TID_MASK) != 0 && (state & FUTEX_OWNER_DIED) == 0;
}

std::uint64_t HostView::regions_gone() const {
  return load(page_.as<Page>()->regions_gone, std::memory_order_acquire);
}

}  // namespace rkv::rdma::shm
