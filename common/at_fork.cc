#include "common/at_fork.h"

#include <pthread.h>

#include <utility>

#include "common/mutex.h"

namespace rkv {

// ATFORK-1
struct AtForkList {
  Mutex mutex;
  AtFork* first RKV_GUARDED_BY(mutex) = nullptr;

  void add(AtFork& one) {
    const MutexLock lock(mutex);
    one.next_ = first;
    if (first != nullptr) first->previous_ = &one;
    first = &one;
  }
  void remove(AtFork& one) {
    const MutexLock lock(mutex);
    (one.previous_ != nullptr ? one.previous_->next_ : first) = one.next_;
    if (one.next_ != nullptr) one.next_->previous_ = one.previous_;
  }
  void run() RKV_REQUIRES(mutex) {
    for (const AtFork* one = first; one != nullptr; one = one->next_)
      one->in_child_();
  }
};

namespace {

// Never destroyed: a process may fork while it ends.
AtForkList& list() {
  static AtForkList* const instance = [] {
    pthread_atfork([] { list().mutex.lock(); }, [] { list().mutex.unlock(); },
                   [] {
                     list().run();
                     list().mutex.unlock();
                   });
    return new AtForkList;
  }();
  return *instance;
}

}  // namespace

AtFork::AtFork(std::function<void()> in_child) : in_child_(std::move(in_child)) {
  list().add(*this);
}

AtFork::~AtFork() {
  list().remove(*this);
}

}  // namespace rkv
