#include "client/python/errors.h"

#include <array>
#include <utility>

namespace py = pybind11;

namespace rkv::python {

namespace {

struct Named {
  Code code;
  const char* name;
};
// In the order of result.h.
constexpr std::array kNames = {Named{Code::kNotFound, "NotFound"},
                               Named{Code::kInvalidArgument, "InvalidArgument"},
                               Named{Code::kTooLarge, "TooLarge"},
                               Named{Code::kConflict, "Conflict"},
                               Named{Code::kWrongType, "WrongType"},
                               Named{Code::kOutOfRange, "OutOfRange"},
                               Named{Code::kValueChanged, "ValueChanged"},
                               Named{Code::kCancelled, "Cancelled"},
                               Named{Code::kOutOfMemory, "OutOfMemory"},
                               Named{Code::kBusy, "Busy"},
                               Named{Code::kDisconnected, "Disconnected"},
                               Named{Code::kStale, "Stale"},
                               Named{Code::kNotPrimary, "NotPrimary"},
                               Named{Code::kTimeout, "Timeout"},
                               Named{Code::kUnreachable, "Unreachable"},
                               Named{Code::kVersionMismatch, "VersionMismatch"},
                               Named{Code::kPermission, "PermissionDenied"},
                               Named{Code::kNoDevice, "NoDevice"},
                               Named{Code::kUnsupported, "Unsupported"},
                               Named{Code::kIo, "IoError"},
                               Named{Code::kCorrupt, "Corrupt"},
                               Named{Code::kRejected, "Rejected"},
                               Named{Code::kInternal, "Internal"},
                               Named{Code::kUnauthenticated, "Unauthenticated"}};

// The classes live as long as the interpreter.
PyObject* error_class = nullptr;
std::array<PyObject*, kNames.size()> classes{};

}  // namespace

void define_errors(py::module_& module) {
  error_class = PyErr_NewExceptionWithDoc(
      "rkv.Error",
      "An operation has failed. code: the number in result.h; name: its words; may_have_happened: "
      "True if a write may have taken effect.",
      PyExc_Exception, nullptr);
  module.attr("Error") = py::handle(error_class);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::string name = std::string("rkv.") + kNames[i].name;
    classes[i] =
        PyErr_NewExceptionWithDoc(name.c_str(), to_string(kNames[i].code), error_class, nullptr);
    module.attr(kNames[i].name) = py::handle(classes[i]);
  }
}

py::object exception_of(const Error& error, const std::string& refusal) {
  PyObject* type = error_class;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].code == error.code) type = classes[i];
  }
  std::string text = to_string(error);
  if (!refusal.empty()) text += ": " + refusal;
  py::object made = py::reinterpret_borrow<py::object>(type)(text);
  made.attr("code") = static_cast<int>(error.code);
  made.attr("name") = to_string(error.code);
  made.attr("may_have_happened") = error.write == WriteOutcome::kMayHaveHappened;
  return made;
}

void raise(const Error& error, const std::string& refusal) {
  const py::object made = exception_of(error, refusal);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw py::error_already_set();
}

}  // namespace rkv::python
