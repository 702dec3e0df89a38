// Signals while the interpreter's main thread is in a call: what a handler raises, such as
// KeyboardInterrupt, ends the call.
//
// Thread safety: any thread.
#pragma once

#include <Python.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "client/python/released.h"
#include "rkv/interruption.h"

namespace rkv::python {

// The interpreter runs handlers on one thread alone.
class MainThread {
 public:
  static void is(unsigned long ident) { thread = ident; }
  // In a forked child, which has no other.
  static void is_this() { thread = pthread_self(); }
  static bool is_here() { return pthread_equal(thread, pthread_self()) != 0; }

 private:
  static inline pthread_t thread{};
};

// While it lives, handlers run when this thread has waited for a while, if it is the main one. What
// they raise is Python's current error afterwards. Created without the interpreter's lock.
class HandlesSignals {
 public:
  HandlesSignals() {
    if (MainThread::is_here()) interruption_.emplace(handle);
  }

 private:
  static bool handle() {
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool has_raised = PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return has_raised;
  }
  std::optional<Interruption> interruption_;
};

// Returns what `work` returns; nothing if a handler has raised meanwhile. The main thread lets
// another one do it, which goes on then: `work` owns what it needs. Called with the interpreter's
// lock; `work` has not.
template <class Work>
auto apart(Work work) -> std::optional<std::invoke_result_t<Work>> {
  struct State {
    std::mutex mutex;
    std::condition_variable ends;
    std::optional<std::invoke_result_t<Work>> result;
  };
  if (!MainThread::is_here()) {
    const Released released;
    return work();
  }
  const auto state = std::make_shared<State>();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::optional<Work> here;
  try {
    std::thread([state, work]() mutable {
      auto result = work();
      const std::scoped_lock lock(state->mutex);
      state->result.emplace(std::move(result));
      state->ends.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // no thread: then Ctrl-C waits
    here.emplace(std::move(work));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (here) {
    const Released released;
    return (*here)();
  }
  for (;;) {
    {
      const Released released;
      std::unique_lock lock(state->mutex);
      const bool has_ended = state->ends.wait_for(lock, Interruption::kPause,
                                                  [&] { return state->result.has_value(); });
      if (has_ended) return std::move(state->result);
    }
    if (PyErr_CheckSignals() != 0) return std::nullopt;
  }
}

}  // namespace rkv::python
