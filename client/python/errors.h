// Errors of the client as exceptions of Python.
//
// Thread safety: as the interpreter's: the caller holds its lock.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "rkv/result.h"

namespace rkv::python {

void define_errors(pybind11::module_& module);

// The exception's object, an rkv.Error or one of its classes by code.
pybind11::object exception_of(const Error& error, const std::string& refusal = {});
[[noreturn]] void raise(const Error& error, const std::string& refusal = {});

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}

}  // namespace rkv::python
