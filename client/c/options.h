// Options of C: those of a client, by name, and those of operations, whose structs may be shorter
// or longer than the library's.
//
// Thread safety: none; the functions have no shared state.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "client/c/errors.h"
#include "rkv/c.h"
#include "rkv/operations.h"
#include "rkv/options.h"
#include "rkv/shard_map.h"

struct rkv_options {  // NOLINT(readability-identifier-naming)
  rkv::ClientOptions client;
  std::size_t connections = 1;
  std::optional<rkv::ShardMap> servers{};  // of one store; set: client.server is not used
};

namespace rkv::c {

// Sets the option of that name. Returns what is wrong; empty: nothing.
std::string set_option(rkv_options& options, std::string_view name, std::string_view value);

// Copies the struct of a caller, which an older or newer header has defined. Fields that the caller
// does not know are 0. Null: all are. False: it has no valid size, or it sets fields that this
// library does not know.
template <class Options>
bool copy_options(const Options* given, Options& own) {
  own = {};
  own.struct_size = sizeof own;
  if (given == nullptr) return true;
  constexpr std::size_t kMost = 4096;
  const std::size_t size = given->struct_size;
  if (size < sizeof size || size > kMost) return false;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof own; i < size; ++i) {
    if (bytes[i] != 0) return false;
  }
  std::memcpy(&own, bytes, size < sizeof own ? size : sizeof own);
  own.struct_size = sizeof own;
  return true;
}

// The timeout among the options of an operation.
struct DeleteOptions;
inline Timeout& timeout_of(Timeout& timeout) {
  return timeout;
}
template <class Options>
Timeout& timeout_of(Options& options) {
  if constexpr (std::is_same_v<Options, DeleteOptions>) {
    return options.write.timeout;
  } else {
    return options.timeout;
  }
}

rkv_status get_options(const rkv_get_options* given, GetOptions& options, rkv_error* error);
rkv_status write_options(const rkv_write_options* given, PutOptions& options, rkv_error* error);
rkv_status wrong_size(rkv_error* error);
// Converts the options of a write other than a put. RKV_INVALID_ARGUMENT: they set a field that it
// does not have.
rkv_status plain_options(const rkv_write_options* given, WriteOptions& options, rkv_error* error);
// The same with the version that a delete may ask for.
struct DeleteOptions {
  WriteOptions write{};
  std::optional<std::uint64_t> if_version{};
};
rkv_status delete_options(const rkv_write_options* given, DeleteOptions& options, rkv_error* error);
// Converts the options of a get_counter, which has only a time-out.
rkv_status timeout_option(const rkv_get_options* given, Timeout& timeout, rkv_error* error);

}  // namespace rkv::c
