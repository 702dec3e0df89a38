// The module rkv._rkv: the client of many threads and the asynchronous one for Python.
//
// Invariants:
//  PY-1  The interpreter's lock is not held while a call of the shared client blocks. Until then
//  all
//      bytes that the call uses are pinned by buffers, and no object of Python is touched.
//  PY-2  Callbacks of the asynchronous client run on the thread that polls, which holds the lock.
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "client/python/async_client.h"
#include "client/python/client.h"
#include "client/python/errors.h"

PYBIND11_MODULE(_rkv, module) {
  module.doc() = "The clients of rkv. Programs import rkv.";
  rkv::python::define_errors(module);
  rkv::python::define_client(module);
  rkv::python::define_async_client(module);
}
