// The files of RocksDB, with two promises about write-ahead logs that RocksDB does not give, and
// copies of the database that can be given up.
//
//   auto files = std::make_shared<LogFiles>(env.GetFileSystem(), "/var/lib/rkv/db");
//   ... rocksdb::DB::Open with it; then db->FlushWAL(true) and
//   if (!files->failure().ok()) ...  // not synced; nothing is until the database is reopened
//
// Invariants:
//  W1  No log has a byte before those that came before it are synced. Else a lost machine could
//      leave a log short, by whole records, and the next one whole; a start would see nothing wrong
//      and keep what came later without what came earlier (E1).
//  W2  RocksDB never hears that the sync of a log has failed; failure() says so. RocksDB syncs a
//      log that it has closed from its own threads as well, and the second of two syncs that fail
//      ends the process in a library that is built with assertions, as Debian's is.
//  W3  After a failed sync no log is synced any more. A second try may well succeed, of pages that
//      the kernel has dropped after the first.
//  W4  What is written outside of the database's directory is a copy: no log of the database,
//      whatever its name, and it fails when stop_copies() has been called, or between
//      interrupt_copies() and allow_copies().
//  W5  end() between two records is where the log ends; a sync that begins then covers all up to
//  it.
//
// Thread safety: all calls from any thread, as RocksDB needs it. Outlives the database.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/listener.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "server/persistence/log_stamp.h"

namespace rkv::server {

// In the text of what such a copy fails with.
inline constexpr const char* kCopiesStopped = "copies are stopped";
inline constexpr const char* kCopiesInterrupted = "copies are interrupted";

// Of the name of a log; 0: it is none.
std::uint64_t log_number(const std::string& path);

class LogFiles final : public rocksdb::FileSystemWrapper {
 public:
  LogFiles(std::shared_ptr<rocksdb::FileSystem> files, const std::string& database)
      : FileSystemWrapper(std::move(files)), own_(plain(database + "/")) {}
  const char* Name() const override { return "rkv.LogFiles"; }

  // Of the first sync that failed; OK: none has.
  rocksdb::IOStatus failure();
  // The database is reopened: what was in its logs is found, written and synced elsewhere.
  void forget_failure();

  // Of the log that is written to; {} when there is none, or a write to it has failed.
  LogPosition end();

  // For good: the server is to end.
  void stop_copies() { copies_->stopped.store(true, std::memory_order_relaxed); }
  // The database is to be reopened.
  void interrupt_copies() { copies_->interrupted.store(true, std::memory_order_relaxed); }
  void allow_copies() { copies_->interrupted.store(false, std::memory_order_relaxed); }

  // A copy's files may outlive this.
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

  // Without doubled slashes and dots.
  static std::string plain(const std::string& name) {
    return std::filesystem::path(name).lexically_normal();
  }

  const std::string own_;  // beginning of the names of the database's files
  const std::shared_ptr<Copies> copies_ = std::make_shared<Copies>();
  std::mutex mutex_;  // guards what follows
  rocksdb::IOStatus failure_;
  rocksdb::FSWritableFile* newest_ = nullptr;  // log, if it is open still
  LogPosition end_;                            // of it
};

// As another one, but for its files.
class EnvWithFiles final : public rocksdb::EnvWrapper {
 public:
  EnvWithFiles(const rocksdb::Env& other, const std::shared_ptr<rocksdb::FileSystem>& files)
      : EnvWrapper(rocksdb::NewCompositeEnv(files)) {
    file_system_ = files;
    system_clock_ = other.GetSystemClock();
  }
  const char* Name() const override { return "rkv.EnvWithFiles"; }
};

// Files whose logs end early for their reader. RocksDB cannot read damaged logs (seen with 7.8.3).
// If it is to skip damage, a bit that makes a record look recycled keeps it in an endless loop. If
// it is to stop there, it refuses the logs when a family has tables of later writes. It also
// refuses a log that is too short.
class CutLogs final : public rocksdb::FileSystemWrapper {
 public:
  CutLogs(const std::shared_ptr<rocksdb::FileSystem>& files, const LogPosition& end)
      : FileSystemWrapper(files), end_(end) {}
  const char* Name() const override { return "rkv.CutLogs"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* context) override;

  // As large as the database may have noted.
  rocksdb::IOStatus GetFileSize(const std::string& name, const rocksdb::IOOptions& options,
                                std::uint64_t* bytes, rocksdb::IODebugContext* context) override;

 private:
  const LogPosition end_;
};

// Whether RocksDB has failed to write to its log: then a part of a record may be at its end.
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
