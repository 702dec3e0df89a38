// RocksDB as all of this folder uses it: its options, the names of what is stored, its errors as
// ours. Of the headers here this one, engine_impl.h, log_chain.h, log_files.h and log_reader.h name
// RocksDB, and are included by sources, tests and benchmarks alone.
//
// Thread safety: values and pure functions, but for ReadErrors.
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
// kConflict: another program's database is there, to be opened by nobody else.
Status check_families(const rocksdb::Options& options, const std::string& path);
// A record as it is stored; nothing when its lengths are not those of a record of ours. Its spans
// point into what was given.
std::optional<RecordFields> record_of(const rocksdb::Slice& key, const rocksdb::Slice& value);

// What reads have met: each text is logged once, and not more than kMostLines of them until
// forget(), however many requests ask for what cannot be read. Any thread; blocks on nothing but
// its log lines.
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

// Where records are read.
struct Records {
  rocksdb::DB& db;
  rocksdb::ColumnFamilyHandle* family;
  ReadErrors& errors;
};
// As those of Engine.
Status read_range(const Records& records, const KeyRange& range,
                  const std::function<bool(const RecordFields&)>& visit);
using Visitor = std::function<Status(const RecordFields&)>;
Status read(const Records& records, Bytes key, const Visitor& visit);
Status read_from(const Records& records, Bytes first, const Visitor& visit);
Status checkpoint(rocksdb::DB& db, const std::string& target);

}  // namespace rkv::server::database
