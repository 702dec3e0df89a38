// The library's log in Python's `logging`, as the logger "rkv".
//
// A line may come from any thread, which may hold locks of the library or Python's. So the sink
// only queues it, and a thread of its own, which is started with the first line, gives it to
// Python.
//
// Invariants:
//  PY-5  A thread that logs never waits for the interpreter's lock.
//
// Thread safety: start() and at_exit() with the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace rkv::python {

class Log {
 public:
  // Lines go to `logger` from now on.
  static void start(const pybind11::object& logger);
  // Gives Python the lines of before, and drops those that come later. Gives up the interpreter's
  // lock meanwhile.
  static void at_exit();
};

}  // namespace rkv::python
