// Arguments that several methods have: time-outs, durability, and the options of a client.
//
// Thread safety: the caller holds the interpreter's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <optional>
#include <string>

#include "client/c/options.h"
#include "rkv/operations.h"

namespace rkv::python {

// Seconds, as Python gives them; None: the client's.
std::chrono::milliseconds timeout_of(const std::optional<double>& seconds);
Durability durability_of(const std::optional<std::string>& name);
// keyword=value as the options of rkv_options_set(): underscores for hyphens, numbers of seconds
// for durations. Raises ValueError.
rkv_options options_of(const pybind11::kwargs& given);
PutOptions put_options(const std::optional<double>& ttl, bool if_absent,
                       const std::optional<std::uint64_t>& if_version,
                       const std::optional<std::string>& durability,
                       const std::optional<double>& timeout);

}  // namespace rkv::python
