// Detached: a coroutine of a test, of which nobody waits for the end.
#pragma once

#include <coroutine>
#include <exception>

namespace rkv::testing_support {

struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

}  // namespace rkv::testing_support
