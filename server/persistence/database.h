// RocksDB as all of this folder uses it: its options, the names of what is stored, its errors as
// ours. The only header here that names RocksDB; included by sources alone.
//
// Thread safety: values and pure functions.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <string>

#include "common/layout.h"
#include "common/scan.h"
#include "rkv/result.h"

namespace rkv::server::database {

inline constexpr std::uint32_t kFormat = 1;
inline constexpr const char* kDirectory = "/db";  // below the data directory
inline constexpr const char* kMetaFamily = "rkv";
inline constexpr const char* kFormatKey = "format";
inline constexpr const char* kBootKey = "boot";
inline constexpr const char* kHashSeedKey = "hash_seed";
inline constexpr std::size_t kValueHeaderBytes = 16;  // version 8, record_traits 8

inline rocksdb::Slice slice(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline Bytes bytes_of(const rocksdb::Slice& text) {
  return as_bytes({text.data(), text.size()});
}

// RocksDB reports errors as values, but allocates and uses the standard library underneath.
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

// `text`: the status in words.
Error to_error(const rocksdb::Status& status, const std::string& text);
// Of the database and both families. They make a database where there is none.
rocksdb::Options options();
// A record as it is stored; nothing when its lengths are not those of a record of ours. Its spans
// point into what was given.
std::optional<RecordFields> record_of(const rocksdb::Slice& key, const rocksdb::Slice& value);
// Engine::read_range.
Status read_range(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family, const KeyRange& range,
                  const std::function<bool(const RecordFields&)>& visit);

// As Engine::read() and Engine::read_from().
using Visitor = std::function<Status(const RecordFields&)>;
Status read(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family, Bytes key, const Visitor& visit);
Status read_from(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* family, Bytes first,
                 const Visitor& visit);

}  // namespace rkv::server::database
