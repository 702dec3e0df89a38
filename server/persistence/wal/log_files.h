// The file system under RocksDB. Adds two guarantees about write-ahead logs that RocksDB does not
// give, and lets copies of the database be interrupted.
//
//   auto files = std::make_shared<LogFiles>(env.GetFileSystem(), "/var/lib/rkv/db");
//   ... rocksdb::DB::Open with it; then db->FlushWAL(true) and
//   if (!files->failure().ok()) ...  // not synced; nothing is until the database is reopened
//
// Invariants:
//  LOGF-1  No log gets a byte before all earlier logs are synced. Otherwise a lost machine could
//      leave a log short by whole records and the next one complete. A start would notice nothing,
//      and keep later writes without earlier ones (DISK-1).
//  LOGF-2  RocksDB never sees that the sync of a log has failed; failure() reports it. RocksDB also
//      syncs closed logs from its own threads. The second of two failed syncs ends the process if
//      the library is built with assertions, as Debian's is.
//  LOGF-3  After a failed sync no log is synced any more. A second sync may succeed although the
//      kernel has dropped the pages after the first.
//  LOGF-4  A file written outside the database's directory belongs to a copy: it is not a log of
//      the database, whatever its name. Writes to it fail after stop_copies(), and between
//      interrupt_copies() and allow_copies().
//  LOGF-5  Between two records, end() is the end of the log; a sync that begins then covers
//      everything up to it.
//
// Thread safety: all calls from any thread, as RocksDB requires. Must outlive the database.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/listener.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "server/persistence/wal/log_stamp.h"

namespace rkv::server {

// These texts are in the status of an interrupted copy.
inline constexpr const char* kCopiesStopped = "copies are stopped";
inline constexpr const char* kCopiesInterrupted = "copies are interrupted";

// Number of a log from its name; 0: not a log.
std::uint64_t log_number(const std::string& path);

class LogFiles final : public rocksdb::FileSystemWrapper {
 public:
  LogFiles(std::shared_ptr<rocksdb::FileSystem> files, const std::string& database)
      : FileSystemWrapper(std::move(files)), own_(plain(database + "/")) {}
  const char* Name() const override { return "rkv.LogFiles"; }

  // Status of the first sync that failed; OK: none failed.
  rocksdb::IOStatus failure();
  // Call when the database is reopened: the replay finds the logs' content and syncs it elsewhere.
  void forget_failure();

  // End of the log that is being written; {} if there is none or a write to it failed.
  LogFilePosition end();

  // Permanently: the server is shutting down.
  void stop_copies() { copies_->stopped.store(true, std::memory_order_relaxed); }
  // Until allow_copies(): the database is about to be reopened.
  void interrupt_copies() { copies_->interrupted.store(true, std::memory_order_relaxed); }
  void allow_copies() { copies_->interrupted.store(false, std::memory_order_relaxed); }

  // Shared with the files of a copy, which may outlive this object.
  struct Copies {
    std::atomic<bool> stopped{false};
    std::atomic<bool> interrupted{false};
  };

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override;

 private:
  friend class LogFile;
  rocksdb::IOStatus sync(rocksdb::FSWritableFile& file, const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* context);
  rocksdb::IOStatus sync_newest();
  void appended(const rocksdb::FSWritableFile* file, std::size_t bytes, bool well);
  void closed(const rocksdb::FSWritableFile* file);

  // Normalizes a path: no doubled slashes, no dots.
  static std::string plain(const std::string& name) {
    return std::filesystem::path(name).lexically_normal();
  }

  const std::string own_;  // prefix of the names of the database's files
  const std::shared_ptr<Copies> copies_ = std::make_shared<Copies>();
  Mutex mutex_;
  rocksdb::IOStatus failure_ RKV_GUARDED_BY(mutex_);
  // The newest log, if it is still open, and its end.
  rocksdb::FSWritableFile* newest_ RKV_GUARDED_BY(mutex_) = nullptr;
  LogFilePosition end_ RKV_GUARDED_BY(mutex_);
};

// The environment `other` with different files.
class EnvWithFiles final : public rocksdb::EnvWrapper {
 public:
  EnvWithFiles(const rocksdb::Env& other, const std::shared_ptr<rocksdb::FileSystem>& files)
      : EnvWrapper(rocksdb::NewCompositeEnv(files)) {
    file_system_ = files;
    system_clock_ = other.GetSystemClock();
  }
  const char* Name() const override { return "rkv.EnvWithFiles"; }
};

// Files whose logs end early for their reader. RocksDB itself cannot read damaged logs (seen with
// 7.8.3). If it is to skip damage, a bit that makes a record look recycled puts it into an endless
// loop. If it is to stop at damage, it refuses the logs when a family has tables of later writes.
// It also refuses a log that is too short.
class CutLogs final : public rocksdb::FileSystemWrapper {
 public:
  CutLogs(const std::shared_ptr<rocksdb::FileSystem>& files, const LogFilePosition& end)
      : FileSystemWrapper(files), end_(end) {}
  const char* Name() const override { return "rkv.CutLogs"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* context) override;

  // Reports a log as larger than any size that the database may have recorded for it.
  rocksdb::IOStatus GetFileSize(const std::string& name, const rocksdb::IOOptions& options,
                                std::uint64_t* bytes, rocksdb::IODebugContext* context) override;

 private:
  const LogFilePosition end_;
};

// Records whether RocksDB failed to write to its log, which may then end in a partial record.
class LogErrors final : public rocksdb::EventListener {
 public:
  void OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                         rocksdb::Status* /*error*/) override {
    if (reason == rocksdb::BackgroundErrorReason::kWriteCallback ||
        reason == rocksdb::BackgroundErrorReason::kMemTable) {
      seen_.store(true, std::memory_order_relaxed);
    }
  }
  bool seen() const { return seen_.load(std::memory_order_relaxed); }
  void forget() { seen_.store(false, std::memory_order_relaxed); }

 private:
  std::atomic<bool> seen_{false};
};

}  // namespace rkv::server
