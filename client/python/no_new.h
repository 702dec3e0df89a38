// Classes whose objects the extension alone makes.
//
// Invariants:
//  PY-4  Each object of the extension's classes has its C++ object. pybind11 would let
//      `Class.__new__(Class)` make one without, whose methods would use memory that was never
//      written.
//
// Thread safety: the caller holds the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

namespace rkv::python {

// Makes Class(), Class.__new__() and copies a TypeError, those of classes derived from it too.
// Objects that functions return are made as before (PY-4).
inline void forbid_new(const pybind11::handle& type) {
  auto* const made = reinterpret_cast<PyTypeObject*>(type.ptr());
  made->tp_new = nullptr;
  PyType_Modified(made);
}

}  // namespace rkv::python
