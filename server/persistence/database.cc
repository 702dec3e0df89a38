#include "server/persistence/database.h"

#include <fmt/format.h>
#include <rocksdb/convenience.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <vector>

#include "common/log.h"
#include "server/log/disk_state.h"
#include "server/persistence/wal/log_files.h"

namespace rkv::server::database {

namespace {

// Passes RocksDB's own log lines on and keeps no file for them. Debian builds RocksDB with
// assertions: after a failed write to its log file, for example on a full disk, the next line would
// end the process. Everything important is returned as a status anyway.
class QuietLogger final : public rocksdb::Logger {
 public:
  QuietLogger() : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {  // NOLINT: RocksDB's name
    if (!log_enabled(LogLevel::kDebug)) return;
    std::array<char, 512> line{};
    (void)std::vsnprintf(line.data(), line.size(), format, arguments);
    log_line(LogLevel::kDebug, line.data());
  }
};

}  // namespace

// The error number is found by its strerror() text; RocksDB's status does not hold it.
Error to_error(const rocksdb::Status& status, const std::string& text) {
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  const auto error = [](Code code, int number, const char* sentence) {
    return Error{.code = code, .sys_errno = number, .text = sentence};
  };
  constexpr const char* kFull = "the disk of the data directory is full: free space on it";
  if (status.IsNoSpace() || says("No space left")) return error(Code::kIo, ENOSPC, kFull);
  if (says("Disk quota exceeded")) return error(Code::kIo, EDQUOT, kFull);
  if (says("File too large")) return error(Code::kIo, EFBIG, kFull);
  constexpr const char* kReadOnly =
      "the data directory is not writable: check its owner, mode and mount options";
  if (says("Permission denied")) return error(Code::kPermission, EACCES, kReadOnly);
  if (says("Read-only file system")) return error(Code::kPermission, EROFS, kReadOnly);
  if (says("Too many open files")) {
    return error(Code::kIo, EMFILE,
                 "no free file descriptor: raise the limit of open files (ulimit -n)");
  }
  if (status.IsCorruption()) {
    return error(Code::kCorrupt, 0,
                 "the database is damaged: kvserver --verify says where; restore a backup by "
                 "kvserver --restore, or move the data directory away to start empty");
  }
  if (says("lock ") && says("LOCK"))
    return error(Code::kConflict, 0, "another process has the database open");
  if (status.IsMemoryLimit()) return error(Code::kOutOfMemory, 0, "no memory for the database");
  if (status.IsIOError() || status.IsNotFound()) {
    return error(Code::kIo, EIO, "the disk of the data directory failed: see the server's log");
  }
  return error(Code::kInternal, 0, "the database refused the operation: see the server's log");
}

// Sized for two cores, with most of the memory left to the records that clients READ. The database
// gets two memtables of 32 MiB. Its cache holds little more than index and filter blocks, because
// frequently used records are in memory anyway.
rocksdb::Options options() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.write_buffer_size = std::size_t{32} << 20;
  options.max_write_buffer_number = 2;
  options.max_background_jobs = 2;  // one flush and one compaction: workers need the cores
  // Batches are sorted (last_writes.h): the place of a key is searched from that of the key before.
  // The empty prefix is the same for all keys.
  options.memtable_insert_with_hint_prefix_extractor.reset(rocksdb::NewFixedPrefixTransform(0));
  options.level_compaction_dynamic_level_bytes = true;  // least space for data that is overwritten
  // A flush of the data family alone does not free old logs, because the meta family still refers
  // to them. This limit bounds the logs, and so the time of a restart.
  options.max_total_wal_size = std::uint64_t{128} << 20;
  options.max_open_files = 256;
  // Starts writeback steadily, so that sync() does not meet a whole memtable of dirty pages.
  options.bytes_per_sync = std::uint64_t{1} << 20;
  options.wal_bytes_per_sync = std::uint64_t{512} << 10;
  // Replay stops at the first damaged record: the surviving batches are a prefix (DISK-1). Damage
  // in a log that was closed and synced is not a crash's, and is reported instead.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.track_and_verify_wals_in_manifest = true;
  // A start flushes and syncs what it finds in the log before it continues: everything of earlier
  // boots counts as synced.
  options.avoid_flush_during_recovery = false;
  options.info_log = std::make_shared<QuietLogger>();
  options.stats_dump_period_sec = 0;

  const std::vector<rocksdb::CompressionType> supported = rocksdb::GetSupportedCompressions();
  const bool has_lz4 = std::ranges::find(supported, rocksdb::kLZ4Compression) != supported.end();
  options.compression = has_lz4 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;

  rocksdb::BlockBasedTableOptions table;
  // The store caches records. This cache holds index and filter blocks, and bounds them. They are
  // partitioned, so that a lookup needs few of them.
  table.block_cache = rocksdb::NewLRUCache(std::size_t{32} << 20);
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  table.index_type = rocksdb::BlockBasedTableOptions::kTwoLevelIndexSearch;
  table.partition_filters = true;
  // For lookups of keys that do not exist while records are being loaded.
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  table.block_size = std::size_t{8} << 10;  // a lookup reads a whole block
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Status check_families(const rocksdb::Options& options, const std::string& path) {
  std::vector<std::string> names;
  const auto listed =
      guarded([&] { return rocksdb::DB::ListColumnFamilies(options, path, &names); });
  if (!listed.ok()) {
    // No CURRENT file: there is no database yet. Any other error appears again, with a better text,
    // when the database is opened.
    return {};
  }
  const bool foreign = std::ranges::any_of(names, [](const std::string& name) {
    return name != rocksdb::kDefaultColumnFamilyName && name != kMetaFamily;
  });
  if (foreign) {
    return fail(Code::kConflict,
                "the data directory holds the database of another program: choose another "
                "--data-dir");
  }
  return {};
}

std::optional<RecordFields> record_of(const rocksdb::Slice& key, const rocksdb::Slice& value) {
  const Bytes bytes = bytes_of(value);
  if (key.empty() || key.size() > kMaxKeyBytes || bytes.size() < kValueHeaderBytes ||
      bytes.size() - kValueHeaderBytes > kMaxValueBytes) {
    return std::nullopt;
  }
  RecordFields record{.version = {load_le<std::uint64_t>(bytes.data())},
                      .key = bytes_of(key),
                      .value = bytes.subspan(kValueHeaderBytes)};
  set_record_traits(record, load_le<std::uint64_t>(bytes.data() + 8));
  return record;
}

namespace {

rocksdb::Status not_ours(const rocksdb::Slice& key, const rocksdb::Slice& value) {
  return rocksdb::Status::Corruption(fmt::format(
      "{} bytes under a key of {} bytes are not a valid record", value.size(), key.size()));
}

}  // namespace

Error ReadErrors::tell(const rocksdb::DB& db, const rocksdb::Status& status) {
  const std::string text = status.ToString();
  const Error error = to_error(status, text);
  if (error.code == Code::kCorrupt) damaged_.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  if (logged_.size() == kMostLines || !logged_.insert(text).second) return error;
  log_error(EventName("disk_read_failed"), "database {}: reading records: {}: {}{}", db.GetName(),
            text, error.text, logged_.size() == kMostLines ? " (further ones are not logged)" : "");
  return error;
}

void ReadErrors::forget() {
  const MutexLock lock(mutex_);
  logged_.clear();
}

// One iterator sees one instant, that of its creation. It does not fill the cache: a scan does not
// mean that its records will be read again.
Status read_range(const Records& records, const KeyRange& range, const RangeVisitor& visit) {
  if (range.is_empty()) return {};
  const rocksdb::Slice lower(range.lower);
  const rocksdb::Slice upper = range.upper ? rocksdb::Slice(*range.upper) : rocksdb::Slice();
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  if (!range.lower.empty()) options.iterate_lower_bound = &lower;
  if (range.upper) options.iterate_upper_bound = &upper;
  const auto read = guarded([&] {
    const std::unique_ptr<rocksdb::Iterator> at(records.db.NewIterator(options, records.family));
    range.reverse ? at->SeekToLast() : at->SeekToFirst();
    while (at->Valid()) {
      const auto record = record_of(at->key(), at->value());
      if (!record) return not_ours(at->key(), at->value());
      if (!visit(*record)) return rocksdb::Status::OK();
      range.reverse ? at->Prev() : at->Next();
    }
    return at->status();
  });
  if (read.ok()) return {};
  return std::unexpected(records.errors.tell(records.db, read));
}

Status read(const Records& records, Bytes key, const Visitor& visit) {
  rocksdb::PinnableSlice value;
  const auto found =
      guarded([&] { return records.db.Get({}, records.family, slice(key), &value); });
  if (found.IsNotFound()) return fail(Code::kNotFound, nullptr);
  if (!found.ok()) return std::unexpected(records.errors.tell(records.db, found));
  if (const auto record = record_of(slice(key), value)) return visit(*record);
  return std::unexpected(records.errors.tell(records.db, not_ours(slice(key), value)));
}

Status read_from(const Records& records, Bytes first, const RangeVisitor& visit) {
  rocksdb::ReadOptions whole;
  whole.fill_cache = false;
  // RocksDB's own readahead grows with the distance read, up to 256 KiB. A fixed readahead costs
  // each call, and a warm-up makes one call per batch: 2 MiB were most of its cost.
  std::unique_ptr<rocksdb::Iterator> at;
  auto moved = guarded([&] {
    at.reset(records.db.NewIterator(whole, records.family));
    at->Seek(slice(first));
    return at->status();
  });
  while (moved.ok() && at->Valid()) {
    const auto record = record_of(at->key(), at->value());
    if (!record) {
      moved = not_ours(at->key(), at->value());
      break;
    }
    if (!visit(*record)) return {};
    moved = guarded([&] {
      at->Next();
      return at->status();
    });
  }
  if (moved.ok()) return {};
  return std::unexpected(records.errors.tell(records.db, moved));
}

// Flushes the memtables first. The backup then consists of tables, whose every block has a
// checksum, and of a copy of the log with the writes made meanwhile.
Status checkpoint(rocksdb::DB& db, const std::string& target) {
  const auto made = guarded([&] {
    rocksdb::Checkpoint* maker = nullptr;
    rocksdb::Status status = rocksdb::Checkpoint::Create(&db, &maker);
    const std::unique_ptr<rocksdb::Checkpoint> owner(maker);
    return status.ok() ? maker->CreateCheckpoint(target) : status;
  });
  if (made.ok()) return {};
  const std::string text = made.ToString();
  if (made.IsAborted() && text.find(kCopiesStopped) != std::string::npos)
    return fail(Code::kIo, "the server is stopping: no backup was made");
  if (made.IsAborted() && text.find(kCopiesInterrupted) != std::string::npos)
    return fail(Code::kIo, refusal_of(Refused::kBackup, DiskState::kFailing).text);
  log_error(EventName("checkpoint_failed"), "database {}: checkpoint {}: {}", db.GetName(), target,
            text);
  const Error error = to_error(made, text);
  const bool full = error.code == Code::kIo && text.find("No space left") != std::string::npos;
  return fail(error.code == Code::kPermission ? Code::kPermission : Code::kIo,
              full ? "the server's disk has no space for the backup"
                   : "the backup could not be written: see the server's log");
}

}  // namespace rkv::server::database
