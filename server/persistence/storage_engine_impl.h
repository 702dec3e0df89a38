// Implementation of StorageEngine, shared by its sources: storage_engine.cc (batches, reads),
// storage_engine_start.cc (opening, metadata) and storage_engine_recovery.cc (recovery after a disk
// failure, copies).
//
// Thread safety: as StorageEngine's.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "server/persistence/database.h"
#include "server/persistence/storage_engine.h"
#include "server/persistence/wal/log_chain.h"
#include "server/persistence/wal/log_files.h"

namespace rkv::server {

// Identifies a directory independently of its name.
struct DirectoryIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool exists() const { return inode != 0; }
  bool operator==(const DirectoryIdentity&) const = default;
};
DirectoryIdentity identity_of(const std::string& path);

inline Status disk_has_failed() {
  return fail(Code::kIo, "the disk of the data directory has failed");
}

class StorageEngine::Impl {
 public:
  Impl(std::string path, const EngineOptions& options)
      : path_(std::move(path)),
        files_(std::make_shared<LogFiles>(env_of(options).GetFileSystem(), path_)),
        env_(env_of(options), files_),
        options_(database::options()),
        least_boot_(options.least_boot),
        unix_ms_(options.unix_ms) {
    options_.env = &env_;
    options_.listeners.push_back(log_errors_);
    options_.write_buffer_size = options.memtable_bytes;
  }
  ~Impl() { (void)close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status check_log(bool accept_damage);
  Status check_log_again();
  Status drop_behind(const LogFilePosition& end);
  Status open();
  Status open_to_read();
  Status sync_name();
  Status close();
  Status read_meta();
  Status read_drawn();
  Status claim_boot();
  Status write_batch();
  Status sync();
  Status recover();
  Status check_whole();
  Status checkpoint(const std::string& target);
  Status skip_boots();
  Status check_home();
  Status claim_through(std::uint64_t sequence);
  Status write_skip();
  Result<std::optional<std::string>> note(std::string_view name);
  Status write_note(std::string_view name, Bytes bytes);

  // Logs the full text of an error. The same error is logged at level error only once until a sync
  // has succeeded. After kCorrupt, compactions stay off in the next open().
  Status check(const char* what, const rocksdb::Status& status);

  std::string path_;
  const std::shared_ptr<LogFiles> files_;  // outlives the database, as does env_
  EnvWithFiles env_;
  const std::shared_ptr<LogErrors> log_errors_ = std::make_shared<LogErrors>();
  rocksdb::Options options_;
  std::unique_ptr<LogChain> chain_;  // outlives the database, whose options point to it
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* data_ = nullptr;
  rocksdb::ColumnFamilyHandle* meta_ = nullptr;
  rocksdb::WriteBatch batch_;  // position up to which the logs are synced
  LogFilePosition synced_;
  bool dropped_ = false;  // this start dropped what was behind damage in a log
  const std::uint32_t least_boot_;
  std::uint32_t claimed_boot_ = 0;  // highest boot number claimed
  std::uint32_t boot_ = 0;          // boot number of this start
  const std::uint64_t unix_ms_;
  std::uint64_t earlier_unix_ms_ = 0;
  std::uint64_t hash_seed_ = 0;
  std::uint64_t mark_ = 0;            // identifies the stamps of this database
  const char* last_error_ = nullptr;  // text of the last error logged
  std::atomic<std::uint64_t> reopened_{0};
  database::ReadErrors read_errors_;
  database::Records records() { return {.db = *db_, .family = data_, .errors = read_errors_}; }
  // Held exclusively while db_ is opened or closed; shared while another thread uses db_.
  // Not RKV_GUARDED_BY: the thread that opens and closes db_ reads it without the lock.
  mutable SharedMutex db_mutex_;
  // Every thread passes writer_turnstile_ before it locks db_mutex_. An exclusive locker holds
  // writer_turnstile_ while it waits for db_mutex_, so new readers cannot starve it. (One
  // std::scoped_lock of both does not do: it releases writer_turnstile_ while it waits for
  // db_mutex_.)
  mutable Mutex writer_turnstile_;
  // Not analysed: the analysis does not follow a lock that a function returns.
  ReaderLock shared() const RKV_ACQUIRE_SHARED(db_mutex_) RKV_NO_THREAD_SAFETY_ANALYSIS {
    const MutexLock pass(writer_turnstile_);
    return ReaderLock(db_mutex_);
  }
  // The database was reopened after a failure: unsynced writes may be missing until they are
  // written again.
  std::atomic<bool> incomplete_{false};
  bool reads_only_ = false;  // db_ is open for reading only, because the disk is not writable

 private:
  static const rocksdb::Env& env_of(const EngineOptions& options) {
    return options.env != nullptr ? *options.env : *rocksdb::Env::Default();
  }
  Status may_reopen();
  Status try_to_write();
  Status reopen();
  Status end_copies();
  void allow_copies();
  std::string current_log() const;
  Result<bool> data_is_empty();
  Status initialise();
  Status close_locked() RKV_REQUIRES(db_mutex_);
  Status look_at_logs(LogsFound* found);
  Result<std::uint64_t> read_or_draw(const char* key);
  Result<std::uint64_t> draw(const char* key);
  Status put_meta(const char* what, const char* key, Bytes value);
  rocksdb::Status put_synced(const rocksdb::Slice& key, Bytes value);  // any thread
  Status begin_behind(std::uint32_t claimed);
  Status write_boot(std::uint32_t number);
  void take(rocksdb::DB* db, const std::vector<rocksdb::ColumnFamilyHandle*>& handles);

  DirectoryIdentity home_;  // identity of path_ when it was opened
  Mutex copies_mutex_;
  ConditionVariable copies_ended_;
  int copies_ RKV_GUARDED_BY(copies_mutex_) = 0;           // number under way
  bool recovering_ RKV_GUARDED_BY(copies_mutex_) = false;  // no copy may begin
};

}  // namespace rkv::server
