// Arguments that several methods have: time-outs, durability, and the options of a client.
//
// Thread safety: the caller holds the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "client/c/options.h"
#include "rkv/operations.h"

namespace rkv::python {

// A time, as Python gives it: a number of seconds, or a timedelta. None: the client's, which is 0.
struct Seconds {
  std::chrono::milliseconds time{};
};
// Raises TypeError or ValueError.
Seconds seconds_of(pybind11::handle given);
inline std::chrono::milliseconds timeout_of(const Seconds& seconds) {
  return seconds.time;
}
// A number of 64 bits. One that does not fit is an OverflowError.
struct Number {
  std::int64_t number = 0;
};
struct OptionalVersion {
  std::optional<std::uint64_t> version;
};
Number number_of(pybind11::handle given);
OptionalVersion version_of(pybind11::handle given);
Durability durability_of(const std::optional<std::string>& name);
// keyword=value as the options of rkv_options_set(): underscores for hyphens, numbers of seconds
// for durations. Raises ValueError.
rkv_options options_of(const pybind11::kwargs& given);
PutOptions put_options(const Seconds& ttl, bool if_absent, const OptionalVersion& if_version,
                       const std::optional<std::string>& durability, const Seconds& timeout);
// Raises TypeError: one key, or its letters, in the place of many.
void check_many(const pybind11::iterable& given);

}  // namespace rkv::python

namespace pybind11::detail {

// The exceptions of these casters say more than the list of signatures that pybind11 shows for a
// wrong type.
template <>
struct type_caster<rkv::python::Seconds> {
  PYBIND11_TYPE_CASTER(rkv::python::Seconds, const_name("seconds"));
  bool load(handle given, bool /*converts*/) {
    value = rkv::python::seconds_of(given);
    return true;
  }
};
template <>
struct type_caster<rkv::python::Number> {
  PYBIND11_TYPE_CASTER(rkv::python::Number, const_name("int"));
  bool load(handle given, bool /*converts*/) {
    value = rkv::python::number_of(given);
    return true;
  }
};
template <>
struct type_caster<rkv::python::OptionalVersion> {
  PYBIND11_TYPE_CASTER(rkv::python::OptionalVersion, const_name("Optional[int]"));
  bool load(handle given, bool /*converts*/) {
    value = rkv::python::version_of(given);
    return true;
  }
};

}  // namespace pybind11::detail
