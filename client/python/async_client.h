// rkv._rkv.AsyncCore: the asynchronous client, below rkv.AsyncClient, which is written in Python.
#pragma once

#include <pybind11/pybind11.h>

namespace rkv::python {

void define_async_client(pybind11::module_& module);

}  // namespace rkv::python
