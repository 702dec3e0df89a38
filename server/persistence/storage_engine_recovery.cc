// Recovery after a disk failure (DISK-4), and copies of the database, which recovery interrupts
// (DISK-5).
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>

#include "common/log.h"
#include "server/persistence/storage_engine_impl.h"

namespace rkv::server {

using database::guarded;
using database::kMetaFamily;

DirectoryIdentity identity_of(const std::string& path) {
  struct stat found{};
  if (stat(path.c_str(), &found) != 0) return {};
  return {.device = found.st_dev, .inode = found.st_ino};
}

// Checks the logs while the server runs. Their unsynced part may be torn; it is written again.
// Damage is never accepted here, because the lost writes may still be in memory.
Status StorageEngine::Impl::check_log_again() {
  constexpr const char* kLost =
      "a write-ahead log was damaged, and synced writes are lost with it: save the records in "
      "memory that are needed by kvclient dump --keys, stop the server, then restore a backup by "
      "kvserver --restore, or start with --accept-damaged-log to go on without them";
  LogsFound found;
  RKV_RETURN_IF_ERROR(look_at_logs(&found));
  // This process knows how far it synced; the stamps in the logs may not say so yet.
  const bool lost = found.torn_bytes != 0 && found.sound_end < synced_;
  if (!found.damaged && !lost) return {};
  if (std::exchange(last_error_, kLost) != kLost)
    log_error(EventName("synced_writes_lost"), "database {}: {}", path_, kLost);
  return fail(Code::kCorrupt, kLost);
}

// Opens the database for reading only. Changes nothing on disk: the logs are replayed into memory.
Status StorageEngine::Impl::open_to_read() {
  chain_ = std::make_unique<LogChain>(env_);  // CHAIN-1
  rocksdb::Options reading = options_;
  reading.create_if_missing = false;
  reading.create_missing_column_families = false;
  reading.wal_filter = chain_.get();
  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, reading}, {kMetaFamily, reading}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  RKV_RETURN_IF_ERROR(check("open for reading", guarded([&] {
                              return rocksdb::DB::OpenForReadOnly(reading, path_, families,
                                                                  &handles, &db);
                            })));
  const DirectoryIdentity home = home_;
  take(db, handles);
  home_ = home;
  reads_only_ = true;
  return {};
}

std::string StorageEngine::Impl::current_log() const {
  const std::uint64_t number = files_->end().log;
  return number == 0 ? std::string() : fmt::format("{}/{:06}.log", path_, number);
}

// A directory that was removed under the server still accepts writes and syncs, so check for it.
Status StorageEngine::Impl::check_home() {
  constexpr const char* kMissing =
      "the data directory is missing or was replaced: put it back, or stop the server and start it "
      "on a backup";
  const std::string log = current_log();
  if (identity_of(path_) == home_ && (log.empty() || identity_of(log).exists())) return {};
  if (std::exchange(last_error_, kMissing) != kMissing)
    log_error(EventName("data_missing"), "database {}: {}", path_, kMissing);
  return std::unexpected(Error{.code = Code::kIo, .sys_errno = ENOENT, .text = kMissing});
}

// Resume() suffices when RocksDB failed to write a table. After a failed log write or sync, the log
// is not written again (LOGF-3) and RocksDB's threads must not close and sync it. The database is
// then reopened, as after a fatal error such as a failed write to RocksDB's list of files.
Status StorageEngine::Impl::recover() {
  const bool logs_are_well = files_->failure().ok() && !log_errors_->seen();
  if (db_ != nullptr && !reads_only_ && logs_are_well && check_home() &&
      guarded([&] { return db_->Resume(); }).ok()) {
    allow_copies();  // an earlier attempt may have interrupted them
    return {};
  }
  if (const Status may = may_reopen(); !may) {  // DISK-4
    if (db_ == nullptr) {
      const MutexLock pass(writer_turnstile_);
      const WriterLock alone(db_mutex_);
      (void)open_to_read();
    }
    return may;
  }
  RKV_RETURN_IF_ERROR(end_copies());
  const Status reopened = reopen();
  allow_copies();
  return reopened;
}

// Runs while the database is still open. RocksDB's threads pause, so that they remove no file
// during the check of the logs.
Status StorageEngine::Impl::may_reopen() {
  RKV_RETURN_IF_ERROR(check_home());
  RKV_RETURN_IF_ERROR(try_to_write());
  const bool pauses = db_ != nullptr && guarded([&] { return db_->PauseBackgroundWork(); }).ok();
  const Status sound = check_log_again();
  if (pauses) (void)guarded([&] { return db_->ContinueBackgroundWork(); });
  return sound;
}

namespace {

// Writes, syncs and removes a file as large as the database's logs and the other files that opening
// writes.
rocksdb::Status write_as_logs(rocksdb::FileSystem& files, const std::string& path) {
  constexpr std::size_t kMargin = std::size_t{1} << 20;  // lists of files and a new log
  std::vector<std::string> names;
  rocksdb::IOStatus status = files.GetChildren(path, {}, &names, nullptr);
  std::uint64_t bytes = kMargin;
  for (const std::string& name : names) {
    std::uint64_t length = 0;
    if (log_number(name) == 0) continue;
    if (files.GetFileSize(path + "/" + name, {}, &length, nullptr).ok()) bytes += length;
  }
  const std::string probe = path + "/000000.dbtmp";
  std::unique_ptr<rocksdb::FSWritableFile> file;
  if (status.ok()) status = files.NewWritableFile(probe, {}, &file, nullptr);
  const std::string zeros(kMargin, '\0');
  for (std::uint64_t done = 0; status.ok() && done < bytes; done += zeros.size())
    status = file->Append(zeros, {}, nullptr);
  if (status.ok()) status = file->Fsync({}, nullptr);
  if (file != nullptr) (void)file->Close({}, nullptr);
  (void)files.DeleteFile(probe, {}, nullptr);
  return status;
}

}  // namespace

// Opening replays the logs into tables, which may become as large as the logs. RocksDB removes a
// file with the name of this probe at a start.
Status StorageEngine::Impl::try_to_write() {
  return check("try to write",
               guarded([&] { return write_as_logs(*options_.env->GetFileSystem(), path_); }));
}

Status StorageEngine::Impl::reopen() {
  const MutexLock pass(writer_turnstile_);
  const WriterLock alone(db_mutex_);
  reopened_.fetch_add(1);
  (void)close_locked();  // the caller writes the unsynced rest again
  db_.reset();
  incomplete_.store(true, std::memory_order_relaxed);
  files_->forget_failure();
  log_errors_->forget();
  read_errors_.forget();
  options_.create_if_missing = false;  // an empty database would not be a recovery
  Status opened = open();
  if (!opened) (void)open_to_read();
  return opened;
}

// DISK-5. A copy may take hours. Writes to its files fail from now on, and no copy begins before
// allow_copies().
Status StorageEngine::Impl::end_copies() {
  constexpr auto kPatience = std::chrono::seconds(1);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const MutexLock lock(copies_mutex_);
  recovering_ = true;
  files_->interrupt_copies();
  while (copies_ != 0 && copies_ended_.wait_until(copies_mutex_, end)) {
  }
  if (copies_ == 0) return {};
  return fail(Code::kIo, "the disk has failed, and a backup has not ended yet");
}

void StorageEngine::Impl::allow_copies() {
  const MutexLock lock(copies_mutex_);
  recovering_ = false;
  files_->allow_copies();
}

// After check() has seen damage there are no compactions: each compaction that meets a damaged
// table makes the database refuse writes.
Status StorageEngine::Impl::check_whole() {
  RKV_RETURN_IF_ERROR(check("read back", guarded([&] { return db_->VerifyChecksum(); })));
  options_.disable_auto_compactions = false;
  return check("compact again", guarded([&] { return db_->EnableAutoCompaction({data_, meta_}); }));
}

// The database is not closed while copies_ counts a copy. recover() waits for the count without
// holding writer_turnstile_, so readers are not blocked.
Status StorageEngine::Impl::checkpoint(const std::string& target) {
  {
    const MutexLock lock(copies_mutex_);
    if (recovering_) return disk_has_failed();
    ++copies_;
  }
  Status made = disk_has_failed();
  {
    const auto lock = shared();
    if (db_ != nullptr && !reads_only_) made = database::checkpoint(*db_, target);
  }
  const MutexLock lock(copies_mutex_);
  --copies_;
  copies_ended_.notify_all();
  return made;
}

}  // namespace rkv::server
