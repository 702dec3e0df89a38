// The module rkv._rkv: the client of many threads and the asynchronous one for Python.
//
// Invariants:
//  PY-1  The interpreter's lock is not held while a call of the shared client blocks. Meanwhile
//      buffers pin all bytes that the call uses, and no object of Python is touched.
//  PY-2  Callbacks of the asynchronous client take the lock. The thread that polls holds it; one
//      that closes does not while it waits.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "client/python/arguments.h"
#include "client/python/async_client.h"
#include "client/python/client.h"
#include "client/python/errors.h"
#include "client/python/interrupts.h"
#include "client/python/log.h"
#include "client/python/released.h"
#include "common/at_fork.h"

PYBIND11_MODULE(_rkv, module) {
  module.doc() = "The clients of rkv. Programs import rkv.";
  static const rkv::AtFork forgotten([] {
    rkv::python::Released::forget_threads();
    rkv::python::MainThread::is_this();
  });
  rkv::python::MainThread::is(pybind11::module_::import("threading")
                                  .attr("main_thread")()
                                  .attr("ident")
                                  .cast<unsigned long>());
  module.def("log_to", &rkv::python::Log::start);
  module.def("at_exit", [] {
    rkv::python::Log::at_exit();
    rkv::python::Released::at_exit();
  });
  module.def("check_many", &rkv::python::check_many);
  rkv::python::define_errors(module);
  rkv::python::define_client(module);
  rkv::python::define_async_client(module);
}
