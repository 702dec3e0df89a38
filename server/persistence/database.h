// The database as a whole: its options, the conversion of its errors, and reads of its records.
// Only this header, storage_engine_impl.h, and rocksdb_calls.h, log_chain.h, log_files.h and
// log_reader.h in wal/ include RocksDB's headers. Only sources, tests and benchmarks include these
// six.
//
// Thread safety: values and pure functions, except ReadErrors.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/options.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "common/layout.h"
#include "common/mutex.h"
#include "common/scan.h"
#include "rkv/result.h"
#include "server/persistence/wal/rocksdb_calls.h"

namespace rkv::server::database {

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
  Mutex mutex_;
  std::set<std::string> logged_ RKV_GUARDED_BY(mutex_);
};

// The database and the family that records are read from.
struct Records {
  rocksdb::DB& db;
  rocksdb::ColumnFamilyHandle* family;
  ReadErrors& errors;
};
// Like the functions of StorageEngine with these names.
using RangeVisitor = std::function<bool(const RecordFields&)>;
Status read_range(const Records& records, const KeyRange& range, const RangeVisitor& visit);
using Visitor = std::function<Status(const RecordFields&)>;
Status read(const Records& records, Bytes key, const Visitor& visit);
Status read_from(const Records& records, Bytes first, const RangeVisitor& visit);
Status checkpoint(rocksdb::DB& db, const std::string& target);

}  // namespace rkv::server::database
