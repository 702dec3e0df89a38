// The interpreter's lock, given up while a call blocks.
//
// Invariants:
//  PY-3  When the interpreter ends, no thread waits for its lock in here, or will: the interpreter
//      would end such a thread by unwinding its frames, which destructors do not allow. at_exit()
//      waits for those that do, and threads that come later sleep until the process has ended.
//      A forked child has none of its parent's threads.
//
// Thread safety: any thread that holds the lock.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace rkv::python {

class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() {
    returning.fetch_add(1);
    if (is_ending.load() && std::this_thread::get_id() != ending_thread) {
      returning.fetch_sub(1);
      for (;;)
        pause();
    }
    PyEval_RestoreThread(state_);
    returning.fetch_sub(1);
  }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

  // Called by the interpreter's thread that ends it, with the lock.
  static void at_exit() {
    ending_thread = std::this_thread::get_id();
    is_ending = true;
    PyThreadState* const state = PyEval_SaveThread();
    while (returning.load() != 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    PyEval_RestoreThread(state);
  }
  // In a forked child.
  static void forget_threads() {
    is_ending = false;
    returning = 0;
  }

 private:
  static inline std::atomic<bool> is_ending = false;
  static inline std::thread::id ending_thread{};
  static inline std::atomic<int> returning = 0;
  PyThreadState* state_;
};

}  // namespace rkv::python
