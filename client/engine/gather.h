// Builds the result vectors of multi-key operations from their visits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <vector>

#include "rkv/client.h"

namespace rkv::client {

inline Value value_of(const ValueView& view) {
  return {.value = std::string(view.value),
          .version = view.version,
          .expires_at_ms = view.expires_at_ms,
          .is_counter = view.is_counter,
          .durability = view.durability};
}

// `run(visit)` must visit each of the `count` results once.
template <class Run>
std::vector<Result<Value>> gather_values(std::size_t count, Run run) {
  std::vector<Result<Value>> results(count, fail(Code::kInternal, nullptr));
  run([&](std::size_t index, const Result<ValueView>& result) {
    if (result) {
      results[index] = value_of(*result);
    } else {
      results[index] = std::unexpected(result.error());
    }
  });
  return results;
}

template <class Run>
std::vector<Result<std::uint64_t>> gather_versions(std::size_t count, Run run) {
  std::vector<Result<std::uint64_t>> results(count, fail(Code::kInternal, nullptr));
  run([&](std::size_t index, const Result<std::uint64_t>& version) { results[index] = version; });
  return results;
}

}  // namespace rkv::client
