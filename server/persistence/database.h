// Shared code for RocksDB in this folder: options, the names of stored items, and the conversion of
// errors. Only this header, engine_impl.h, log_chain.h, log_files.h and log_reader.h include
// RocksDB's headers. Only sources, tests and benchmarks include these five.
//
// Thread safety: values and pure functions, except ReadErrors.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>

#include "common/layout.h"
#include "common/scan.h"
#include "rkv/result.h"

namespace rkv::server::database {

inline constexpr std::uint32_t kFormat = 2;
inline constexpr const char* kMetaFamily = "rkv";
inline constexpr const char* kFormatKey = "format";
inline constexpr const char* kBootKey = "boot";
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

// Converts a status to an Error. `text`: status.ToString().
Error to_error(const rocksdb::Status& status, const std::string& text);
// Options of the database and of both column families. A database opened with them is created if
// there is none.
rocksdb::Options options();
// kConflict: the directory holds another program's database, which we must not open.
Status check_families(const rocksdb::Options& options, const std::string& path);
// Decodes a stored record; nullopt when its lengths are not valid for a record. The spans of the
// result point into the arguments.
std::optional<RecordFields> record_of(const rocksdb::Slice& key, const rocksdb::Slice& value);

// Errors of reads. Each text is logged once, and at most kMostLines texts until forget(), however
// many requests read what is unreadable. Any thread. Blocks only on its log lines.
class ReadErrors {
 public:
  static constexpr std::size_t kMostLines = 20;

  Error tell(const rocksdb::DB& db, const rocksdb::Status& status);
  void forget();
  std::uint64_t damaged() const { return damaged_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> damaged_{0};  // reads that ended with kCorrupt
  std::mutex mutex_;
  std::set<std::string> told_;  // guarded by mutex_
};

// The database and the family that records are read from.
struct Records {
  rocksdb::DB& db;
  rocksdb::ColumnFamilyHandle* family;
  ReadErrors& errors;
};
// As the functions of Engine with these names.
Status read_range(const Records& records, const KeyRange& range,
                  const std::function<bool(const RecordFields&)>& visit);
using Visitor = std::function<Status(const RecordFields&)>;
Status read(const Records& records, Bytes key, const Visitor& visit);
Status read_from(const Records& records, Bytes first, const Visitor& visit);
Status checkpoint(rocksdb::DB& db, const std::string& target);

}  // namespace rkv::server::database
