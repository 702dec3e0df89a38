#include "client/python/arguments.h"

#include <pybind11/stl.h>

#include <cmath>

#include "client/c/options.h"
#include "client/engine/option_table.h"

namespace py = pybind11;

namespace rkv::python {

namespace {

// Raises TypeError with the sentence: it is not a whole number.
py::object whole(py::handle given, const char* sentence) {
  PyObject* const number = PyNumber_Index(given.ptr());
  if (number != nullptr) return py::reinterpret_steal<py::object>(number);
  PyErr_Clear();
  throw py::type_error(sentence);
}

}  // namespace

Seconds seconds_of(py::handle given) {
  if (given.is_none()) return {};
  double seconds = 0;
  if (py::hasattr(given, "total_seconds")) {
    seconds = py::cast<double>(given.attr("total_seconds")());
  } else {
    seconds = PyUnicode_Check(given.ptr()) ? -1 : PyFloat_AsDouble(given.ptr());
    if (PyUnicode_Check(given.ptr()) || PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw py::type_error("a time is a number of seconds, or a timedelta");
    }
  }
  constexpr double kMost = 86'400.0 * 366;
  if (!(seconds > 0 && seconds <= kMost))
    throw py::value_error("a time is a number of seconds above 0, at most a year");
  return {std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)))};
}

Number number_of(py::handle given) {
  const py::object number = whole(given, "what is added is a whole number");
  const std::int64_t value = PyLong_AsLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    PyErr_SetString(PyExc_OverflowError, "a counter has 64 bits");
    throw py::error_already_set();
  }
  return {value};
}

OptionalVersion version_of(py::handle given) {
  if (given.is_none()) return {};
  const py::object number = whole(given, "a version is a whole number");
  const std::uint64_t value = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    PyErr_SetString(PyExc_OverflowError, "a version has 64 bits, and is not negative");
    throw py::error_already_set();
  }
  return {value};
}

void check_many(const py::iterable& given) {
  const bool is_one =
      PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr()) || PyByteArray_Check(given.ptr());
  if (is_one) throw py::type_error("this takes a list, and not one str or bytes");
}

Durability durability_of(const std::optional<std::string>& name) {
  if (!name) return Durability::kDefault;
  const auto level = parse_durability(*name);
  if (!level) throw py::value_error("durability is 'memory', 'wal' or 'sync', not '" + *name + "'");
  return *level;
}

rkv_options options_of(const py::kwargs& given) {
  rkv_options options;
  for (const auto& [key, value] : given) {
    std::string name = py::cast<std::string>(key);
    if (value.is_none()) {  // the default
      if (name != "server") continue;
      throw py::value_error(
          "server is None: leave it out for the server of this host, 127.0.0.1:7471");
    }
    for (char& letter : name)
      letter = letter == '_' ? '-' : letter;
    const client::ClientOption* const option = client::find_option(name);
    const bool is_time = option != nullptr && option->holds<std::chrono::milliseconds>();
    std::string text;
    if (py::isinstance<py::bool_>(value)) {
      text = py::cast<bool>(value) ? "true" : "false";
    } else if (is_time && !py::isinstance<py::str>(value)) {
      text = std::to_string(timeout_of(seconds_of(value)).count()) + "ms";
    } else {
      text = py::cast<std::string>(py::str(value));
    }
    if (name == "server" && text.find("://") != std::string::npos)
      throw py::value_error("server is HOST:PORT, and not a URL");
    // Exported: the extension of the Debian package is linked with librkv.
    rkv_error error;
    if (text.find('\0') != std::string::npos)
      throw py::value_error("the value of an option has no zero byte");
    if (rkv_options_set(&options, name.c_str(), text.c_str(), &error) != RKV_OK)
      throw py::value_error(error.text);
  }
  if (options.servers) throw py::value_error("a client of Python has one server: set server");
  return options;
}

PutOptions put_options(const Seconds& ttl, bool if_absent, const OptionalVersion& if_version,
                       const std::optional<std::string>& durability, const Seconds& timeout) {
  return {.ttl = timeout_of(ttl),
          .if_absent = if_absent,
          .if_version = if_version.version,
          .timeout = timeout_of(timeout),
          .durability = durability_of(durability)};
}

}  // namespace rkv::python
