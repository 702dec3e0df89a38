// Work to be done in a forked child before it runs.
//
// Invariants:
//  ATFORK-1  The list is locked during a fork: the child finds it whole.
//
// Thread safety: any thread.
#pragma once

#include <functional>

#include "rkv/export.h"

namespace rkv {

// Calls `in_child` in each child that is forked while this lives, and in its children, on their
// only thread. `in_child` must wait for no lock that another thread may have held.
class RKV_EXPORT AtFork {
 public:
  explicit AtFork(std::function<void()> in_child);
  ~AtFork();
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

 private:
  friend struct AtForkList;

  const std::function<void()> in_child_;
  AtFork* next_ = nullptr;
  AtFork* previous_ = nullptr;
};

}  // namespace rkv
