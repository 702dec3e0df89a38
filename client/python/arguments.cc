#include "client/python/arguments.h"

#include <pybind11/stl.h>

#include <cmath>

#include "client/c/options.h"

namespace py = pybind11;

namespace rkv::python {

std::chrono::milliseconds timeout_of(const std::optional<double>& seconds) {
  if (!seconds) return std::chrono::milliseconds(0);
  constexpr double kMost = 86'400.0 * 366;
  if (!(*seconds > 0 && *seconds <= kMost))
    throw py::value_error("a time is a number of seconds above 0, at most a year");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
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
    if (value.is_none()) continue;  // the default
    std::string name = py::cast<std::string>(key);
    for (char& letter : name)
      letter = letter == '_' ? '-' : letter;
    const bool is_time = name == "timeout" || name == "connect-timeout" ||
                         name == "first-backoff" || name == "longest-backoff";
    std::string text;
    if (py::isinstance<py::bool_>(value)) {
      text = py::cast<bool>(value) ? "true" : "false";
    } else if (is_time && !py::isinstance<py::str>(value)) {
      text = std::to_string(timeout_of(py::cast<double>(value)).count()) + "ms";
    } else {
      text = py::cast<std::string>(py::str(value));
    }
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

PutOptions put_options(const std::optional<double>& ttl, bool if_absent,
                       const std::optional<std::uint64_t>& if_version,
                       const std::optional<std::string>& durability,
                       const std::optional<double>& timeout) {
  return {.ttl = timeout_of(ttl),
          .if_absent = if_absent,
          .if_version = if_version,
          .timeout = timeout_of(timeout),
          .durability = durability_of(durability)};
}

}  // namespace rkv::python
