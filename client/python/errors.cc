#include "client/python/errors.h"

#include <array>
#include <string_view>
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

namespace {

// The base classes that Python's own code for time-outs and connections catches.
py::tuple bases_of(Code code) {
  const py::handle error(error_class);
  if (code == Code::kTimeout) return py::make_tuple(error, py::handle(PyExc_TimeoutError));
  if (code == Code::kDisconnected || code == Code::kUnreachable)
    return py::make_tuple(error, py::handle(PyExc_ConnectionError));
  return py::make_tuple(error);
}

// A value that was read, and could not be copied.
bool is_of_this_process(const Error& error) {
  return error.code == Code::kOutOfMemory && error.call != nullptr &&
         std::string_view(error.call) == "operator new";
}

}  // namespace

void define_errors(py::module_& module) {
  error_class = PyErr_NewExceptionWithDoc(
      "rkv.Error",
      "An operation has failed. code: the number in result.h; name: its words; may_have_happened: "
      "True if a write may have taken effect. results: of many keys, the list of what became of "
      "each, in the order of the arguments: its result, or its exception; else None.",
      PyExc_Exception, nullptr);
  py::handle(error_class).attr("results") = py::none();
  module.attr("Error") = py::handle(error_class);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const std::string name = std::string("rkv.") + kNames[i].name;
    const py::tuple bases = bases_of(kNames[i].code);
    classes[i] =
        PyErr_NewExceptionWithDoc(name.c_str(), to_string(kNames[i].code), bases.ptr(), nullptr);
    module.attr(kNames[i].name) = py::handle(classes[i]);
  }
  module.attr("TooLarge").attr("needed") = py::none();
}

std::string said_with(const Error& error, const std::string& refusal) {
  const bool is_of_server = to_string(error) == to_string(error.code);
  const bool is_connection = error.code == Code::kRejected || error.code == Code::kNotPrimary ||
                             error.code == Code::kUnauthenticated;
  return is_of_server || is_connection ? refusal : std::string();
}

py::object exception_of(const Error& error, const std::string& refusal) {
  PyObject* type = error_class;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].code == error.code) type = classes[i];
  }
  std::string text = to_string(error);
  if (is_of_this_process(error))
    return py::reinterpret_borrow<py::object>(PyExc_MemoryError)(error.text);
  if (!refusal.empty()) text += ": " + refusal;
  py::object made = py::reinterpret_borrow<py::object>(type)(text);
  made.attr("code") = static_cast<int>(error.code);
  made.attr("name") = to_string(error.code);
  made.attr("may_have_happened") = error.write == WriteOutcome::kMayHaveHappened;
  return made;
}

void raise(const py::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw py::error_already_set();
}

py::object exception_of_into(const Error& error, std::size_t needed) {
  py::object made = exception_of(error);
  if (error.code == Code::kTooLarge && needed != 0) made.attr("needed") = needed;
  return made;
}

void BatchResults::add_failure(const Error& error, py::object exception) {
  if (error.write == WriteOutcome::kMayHaveHappened) any_written_ = true;
  if (!first_) first_ = error;
  add(std::move(exception));
}

py::list BatchResults::get_or_raise(const std::string& refusal) && {
  if (!first_) return std::move(results_);
  if (any_written_) first_->write = WriteOutcome::kMayHaveHappened;
  const py::object raised = exception_of(*first_, said_with(*first_, refusal));
  if (!is_of_this_process(*first_)) raised.attr("results") = results_;
  raise(raised);
}

}  // namespace rkv::python
