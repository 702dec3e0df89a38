// The code of an error, or nothing without an error: error() of a good result is undefined.
#pragma once

#include <optional>

#include "rkv/result.h"

namespace rkv::rdma::testing {

template <class T>
std::optional<Code> code_of(const Result<T>& result) {
  if (result) return std::nullopt;
  return result.error().code;
}

}  // namespace rkv::rdma::testing
