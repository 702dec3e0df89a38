// Mutexes, locks and a condition variable of the standard library, with the marks that clang's
// thread-safety analysis reads. `./run lint` runs the analysis: it reports every use of a marked
// member without its mutex.
//
//   class Counter {
//    public:
//     void add() {
//       const MutexLock lock(mutex_);
//       increment();
//     }
//    private:
//     void increment() RKV_REQUIRES(mutex_) { ++count_; }
//     Mutex mutex_;
//     int count_ RKV_GUARDED_BY(mutex_) = 0;
//   };
//
// The analysis looks at one function at a time, and a lambda is a function of its own. So a wait is
// a loop around ConditionVariable::wait() instead of a predicate.
//
// Thread safety: any thread. Cost: that of the standard types.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#if defined(__clang__)
#define RKV_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define RKV_THREAD_ATTRIBUTE(attribute)
#endif

// On a class: its objects can be held by a thread. `name` is what messages call them.
#define RKV_CAPABILITY(name) RKV_THREAD_ATTRIBUTE(capability(name))
// On a class: its objects hold a mutex from construction to destruction.
#define RKV_SCOPED_CAPABILITY RKV_THREAD_ATTRIBUTE(scoped_lockable)
// On a member: read and written only while the mutex is held. PT: what the member points to.
#define RKV_GUARDED_BY(mutex) RKV_THREAD_ATTRIBUTE(guarded_by(mutex))
#define RKV_PT_GUARDED_BY(mutex) RKV_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// On a function: the caller holds the mutexes; EXCLUDES: it does not hold them.
#define RKV_REQUIRES(...) RKV_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define RKV_EXCLUDES(...) RKV_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// On a function: it takes or releases the mutexes; without arguments, the object itself.
#define RKV_ACQUIRE(...) RKV_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RKV_ACQUIRE_SHARED(...) RKV_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define RKV_RELEASE(...) RKV_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define RKV_RELEASE_SHARED(...) RKV_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define RKV_TRY_ACQUIRE(...) RKV_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
// On a function: after it, the analysis takes the mutex for held.
#define RKV_ASSERT_CAPABILITY(...) RKV_THREAD_ATTRIBUTE(assert_capability(__VA_ARGS__))
// On a function: it returns a reference to the mutex.
#define RKV_RETURN_CAPABILITY(mutex) RKV_THREAD_ATTRIBUTE(lock_returned(mutex))
// On a function: it is not analysed. A comment says why.
#define RKV_NO_THREAD_SAFETY_ANALYSIS RKV_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace rkv {

class RKV_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() RKV_ACQUIRE() { mutex_.lock(); }
  void unlock() RKV_RELEASE() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() RKV_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Does nothing. For code that the analysis cannot follow to the lock. REQUIRES: this thread holds
  // the mutex.
  void assert_held() const RKV_ASSERT_CAPABILITY(this) {}

 private:
  friend class ConditionVariable;
  std::mutex mutex_;
};

// Holds a Mutex until it is destroyed. unlock() releases it earlier, and lock() takes it again.
class [[nodiscard]] RKV_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RKV_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RKV_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // REQUIRES: lock(): not held. unlock(): held.
  void lock() RKV_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() RKV_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;  // the compiler removes it where a function only constructs the lock
};

// Held by one thread exclusively, or by several that only read.
class RKV_CAPABILITY("mutex") SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock() RKV_ACQUIRE() { mutex_.lock(); }
  void unlock() RKV_RELEASE() { mutex_.unlock(); }
  void lock_shared() RKV_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() RKV_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class [[nodiscard]] RKV_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) RKV_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~WriterLock() RKV_RELEASE() { mutex_.unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class [[nodiscard]] RKV_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) RKV_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReaderLock() RKV_RELEASE() { mutex_.unlock_shared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

// The waits release the mutex, block, and take it again before they return. They may return early,
// so the caller rechecks its condition. With a time they return false when it has passed:
//
//   while (!is_over_ && changed_.wait_until(mutex_, end)) {
//   }
class ConditionVariable {
 public:
  void wait(Mutex& mutex) RKV_REQUIRES(mutex) {
    Adopted held(mutex);
    changed_.wait(held.lock);
  }
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point time) RKV_REQUIRES(mutex) {
    Adopted held(mutex);
    return changed_.wait_until(held.lock, time) == std::cv_status::no_timeout;
  }
  bool wait_for(Mutex& mutex, std::chrono::nanoseconds time) RKV_REQUIRES(mutex) {
    return wait_until(mutex, std::chrono::steady_clock::now() + time);
  }
  void notify_one() noexcept { changed_.notify_one(); }
  void notify_all() noexcept { changed_.notify_all(); }

 private:
  // The caller's mutex as the standard type wants it. The caller keeps it.
  struct Adopted {
    explicit Adopted(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Adopted() { lock.release(); }
    Adopted(const Adopted&) = delete;
    Adopted& operator=(const Adopted&) = delete;
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}  // namespace rkv
