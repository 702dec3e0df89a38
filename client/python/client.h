// rkv.Client: the client that threads of Python share.
#pragma once

#include <pybind11/pybind11.h>

namespace rkv::python {

void define_client(pybind11::module_& module);

}  // namespace rkv::python
