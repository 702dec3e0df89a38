// How this folder and its parent call RocksDB: the names of stored items, spans of bytes,
// exceptions.
//
// Thread safety: constants and pure functions.
#pragma once

#include <rocksdb/slice.h>
#include <rocksdb/status.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "common/bytes.h"

namespace rkv::server::database {

inline constexpr std::uint32_t kFormat = 2;
inline constexpr const char* kMetaFamily = "rkv";
inline constexpr const char* kFormatKey = "format";
inline constexpr const char* kBootKey = "boot";
inline constexpr const char* kNotePrefix = "note/";
inline std::string note_key(std::string_view name) {
  return std::string(kNotePrefix).append(name);
}
inline constexpr const char* kTimeKey = "unix_ms";
inline constexpr const char* kHashSeedKey = "hash_seed";
inline constexpr const char* kMarkKey = "log_mark";
inline constexpr std::size_t kValueHeaderBytes = 16;  // version 8, record_traits 8

inline rocksdb::Slice slice(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes bytes_of(const rocksdb::Slice& text) {
  return as_bytes({text.data(), text.size()});
}

// Calls a RocksDB function and turns exceptions into a status. RocksDB reports errors as values,
// but its allocations and the standard library below it may throw.
template <class Call>
rocksdb::Status guarded(Call&& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return rocksdb::Status::MemoryLimit();
  } catch (const std::exception& error) {
    return rocksdb::Status::Aborted(error.what());
  } catch (...) {
    return rocksdb::Status::Aborted("unknown exception");
  }
}

}  // namespace rkv::server::database
