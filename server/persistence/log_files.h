// The files of RocksDB, with two promises about write-ahead logs that RocksDB does not give.
//
//   auto files = std::make_shared<LogFiles>(env.GetFileSystem());
//   ... rocksdb::DB::Open with it; then db->FlushWAL(true) and
//   if (!files->failure().ok()) ...  // not synced; nothing is until the database is opened anew
//
// Invariants:
//  W1  No log has a byte before those that came before it are synced. Else a lost machine could
//  leave
//      a log short, by whole records, and the next one whole; a start would see nothing wrong and
//      keep what came later without what came earlier (E1).
//  W2  RocksDB never hears that the sync of a log has failed; failure() says so. RocksDB syncs a
//  log
//      that it has closed from its own threads as well, and the second of two syncs that fail ends
//      the process in a library that is built with assertions, as Debian's is.
//  W3  After a failed sync no log is synced any more. A second try may well succeed, of pages that
//      the kernel has dropped after the first.
//
// Thread safety: all calls from any thread, as RocksDB needs it. Outlives the database.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <mutex>
#include <string>

namespace rkv::server {

class LogFiles final : public rocksdb::FileSystemWrapper {
 public:
  explicit LogFiles(std::shared_ptr<rocksdb::FileSystem> files)
      : FileSystemWrapper(std::move(files)) {}
  const char* Name() const override { return "rkv.LogFiles"; }

  // Of the first sync that failed; OK: none has.
  rocksdb::IOStatus failure();
  // The database is opened anew: what was in its logs is found, written and synced elsewhere.
  void forget_failure();

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override;

 private:
  friend class LogFile;
  rocksdb::IOStatus sync(rocksdb::FSWritableFile& file, const rocksdb::IOOptions& options,
                         rocksdb::IODebugContext* context);
  rocksdb::IOStatus sync_newest();
  void closed(const rocksdb::FSWritableFile* file);

  std::mutex mutex_;  // guards what follows
  rocksdb::IOStatus failure_;
  rocksdb::FSWritableFile* newest_ = nullptr;  // log, if it is open still
};

}  // namespace rkv::server
