// Errors of the client as exceptions of Python.
//
// Thread safety: as the interpreter's: the caller holds its lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "rkv/result.h"

namespace rkv::python {

void define_errors(pybind11::module_& module);

// The exception's object, an rkv.Error or one of its classes by code; MemoryError if this process
// has no memory for a value. `refusal`: what the server said, or empty.
pybind11::object exception_of(const Error& error, const std::string& refusal = {});
[[noreturn]] void raise(const pybind11::object& exception);
[[noreturn]] inline void raise(const Error& error, const std::string& refusal = {}) {
  raise(exception_of(error, refusal));
}
// The refusal, if the error is the server's own; an error of this process has its own sentence.
std::string said_with(const Error& error, const std::string& refusal);
// The exception of a get_into(): kTooLarge says how long the value is.
pybind11::object exception_of_into(const Error& error, std::size_t needed);

// The results of many keys: the list itself, or the first failure is raised, with the list as its
// `results`, in which the others' exceptions stand in the places of theirs.
class BatchResults {
 public:
  void add(pybind11::object result) { results_.append(std::move(result)); }
  void add_failure(const Error& error, pybind11::object exception);
  // For writes: one was made, or may have been, so the call as a whole may have happened.
  void note_write() { any_written_ = true; }
  pybind11::list get_or_raise(const std::string& refusal) &&;

 private:
  pybind11::list results_;
  std::optional<Error> first_;
  bool any_written_ = false;
};

template <class T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}

}  // namespace rkv::python
