// Objects that a forked child inherits.
//
// A child has copies of its parent's objects, but not of its threads. Locks that other threads held
// stay locked. Sockets, shared memory and queue pairs are still the parent's. So nothing may be
// done with an inherited client, not even its end. A child that only calls exec is not concerned,
// nor is one made by vfork() or posix_spawn().
//
// Invariants:
//  FORK-1  A call of an inherited object fails before it takes a lock, and before it touches what
//      is shared with the parent.
//  FORK-2  The end of an inherited object runs no destructor: its memory stays, unused.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "rkv/export.h"

namespace rkv {

// Remembers the process that made it. Copies remember the same one.
class RKV_EXPORT ForkGuard {
 public:
  ForkGuard() : made_in_(process_.load(std::memory_order_relaxed)) {}
  // Whether this is a child of that process. Costs two loads. Only fork() is noticed, not a bare
  // system call.
  bool is_inherited() const { return made_in_ != process_.load(std::memory_order_relaxed); }

 private:
  friend struct ForkCount;

  static std::atomic<std::uint32_t> process_;  // how many forks lie between it and the first one
  std::uint32_t made_in_;
};

// Deletes an object in the process that made it, and leaves it alone in a child (FORK-2).
template <class T>
struct LeakInChild {
  LeakInChild() = default;
  LeakInChild(const std::default_delete<T>& /*of_new*/) {}  // NOLINT: of a unique_ptr
  void operator()(T* object) const {
    if (!guard.is_inherited()) delete object;
  }
  ForkGuard guard;
};
template <class T>
using ForkOwned = std::unique_ptr<T, LeakInChild<T>>;

}  // namespace rkv
