// An object that several threads share: it is reached only under its lock.
//
//   struct Sender { QueuePair qp; SendSlots slots; };     // what must change together
//   Locked<Sender> sender({std::move(qp), SendSlots({.slots = 128})});
//   RKV_RETURN_IF_ERROR(sender.with([&](Sender& to) -> Status {     // any thread
//     const auto slot = to.slots.take(true);                      // signaled
//     Batch batch = to.qp.batch();
//     batch.write(slot.number, OpFlags::kSignaled, from, there);
//     return std::move(batch).submit();
//   }));
//
// It is rarely needed. A queue pair and its completion queue are two objects, so one thread may
// post while another polls, without a lock. A queue pair for each thread is faster than a shared
// one. It is needed when several threads post to one queue pair, or poll one queue. Providers lock
// each verb for themselves, but objects of this library are for one thread at a time (each header
// says so): a batch is several verbs, and counts of outstanding requests are not locked at all.
//
// Do not block in the function, since the others wait as long: poll in it, and wait outside. Do not
// call with() of the same object in it, which would never return.
//
// Cost: one uncontended std::mutex, beside the provider's own lock. Threads that meet at it wait
// for each other and may sleep. Fill a batch with several requests, so that they meet less often.
//
// Thread safety: any thread. The destructor and take() are for the last user.
#pragma once

#include <concepts>
#include <functional>
#include <mutex>
#include <type_traits>
#include <utility>

namespace rkv::rdma {

template <class T>
class Locked {
 public:
  explicit Locked(T value) : value_(std::move(value)) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  // Calls `use` with the object, under the lock, and returns what it returns. Blocks while another
  // thread is in with(). The result must not refer to the object: references and open batches do
  // not compile.
  template <class F>
    requires std::invocable<F, T&>
  auto with(F&& use) {
    static_assert(kMayLeave<std::invoke_result_t<F, T&>>,
                  "a result of with() must not refer to what the lock protects");
    const std::scoped_lock lock(mutex_);
    return std::invoke(std::forward<F>(use), value_);
  }
  template <class F>
    requires std::invocable<F, const T&>
  auto with(F&& use) const {
    static_assert(kMayLeave<std::invoke_result_t<F, const T&>>,
                  "a result of with() must not refer to what the lock protects");
    const std::scoped_lock lock(mutex_);
    return std::invoke(std::forward<F>(use), value_);
  }

  // Moves the object out. REQUIRES: no other thread uses this any more.
  T take() && { return std::move(value_); }

 private:
  // A batch cannot be moved, but could be returned all the same.
  template <class Out>
  static constexpr bool kMayLeave =
      std::is_void_v<Out> ||
      (std::is_object_v<Out> && !std::is_pointer_v<Out> && std::is_move_constructible_v<Out>);

  mutable std::mutex mutex_;
  T value_;
};

}  // namespace rkv::rdma
