// A disk that remembers what was synced: between RocksDB and the real files, it fails on demand,
// and shows what would be left if the power were lost now.
//
//   auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
//   auto engine = StorageEngine::open(dir.path(), {.env = env_on(disk)});
//   ...
//   disk->lose_power_after(37);   // changes; from then on every one fails and changes nothing
//   ...
//   disk->leave(random, other.path());  // what the machine finds when it starts again
//
// The model, no kinder than POSIX and no harsher than a journal:
//  - Of a file, what was there at its last sync is left, and of the rest a beginning of any length,
//    in which whole pages may be zero.
//  - Of a directory, the names as of its last sync are left, and of the changes since then the
//    first few, in their order. A name whose directory is not left is not there either.
//  - A directory that is made is such a change of the one above it.
// Files that existed when the model was made count as synced.
//
// Nothing reaches the real disk's platters: a sync is a note in this model, and cheap.
//
// Thread safety: all calls from any thread.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"

namespace rkv::server::test {

enum class DiskCall : std::uint8_t {
  kCreate,
  kAppend,
  kSync,
  kSyncDirectory,
  kRename,
  kRemove,
  kLink,
  kTruncate,
  kMakeDirectory,
};

class DiskModel final : public rocksdb::FileSystemWrapper {
 public:
  // kLying: sync says it is done, and is not. Shows that a test would notice.
  enum class Honesty : std::uint8_t { kHonest, kLyingAboutFiles, kLyingAboutDirectories };
  // Models everything below `root`, which exists.
  DiskModel(std::string root, Honesty honesty);
  const char* Name() const override { return "DiskModel"; }

  // Called before each change with the path it is about; what is not OK is its result.
  using Fault = std::function<rocksdb::IOStatus(DiskCall call, const std::string& path)>;
  void set_fault(Fault fault);

  // Syncs of files take so long, and other calls go on meanwhile.
  void set_sync_time(std::chrono::microseconds time) { sync_takes_us_.store(time.count()); }

  void lose_power_after(std::uint64_t changes);
  bool is_lost() const { return lost_.load(std::memory_order_acquire); }
  std::uint64_t changes() const { return changes_.load(std::memory_order_relaxed); }
  // Writes what is left into `directory`, which is empty. REQUIRES: the power is lost.
  void leave(Random& random, const std::string& directory);

  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus ReuseWritableFile(const std::string& name, const std::string& old_name,
                                      const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSWritableFile>* file,
                                      rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus CreateDir(const std::string& name, const rocksdb::IOOptions& options,
                              rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus CreateDirIfMissing(const std::string& name, const rocksdb::IOOptions& options,
                                       rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus DeleteFile(const std::string& name, const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override;
  rocksdb::IOStatus Truncate(const std::string& name, size_t size,
                             const rocksdb::IOOptions& options,
                             rocksdb::IODebugContext* context) override;

 private:
  friend class ModelFile;
  friend class ModelDirectory;

  struct Inode {
    Inode() = default;
    ~Inode();
    Inode(const Inode&) = delete;
    Inode& operator=(const Inode&) = delete;
    int fd = -1;  // outlives every name: -1 for a directory
    std::uint64_t written = 0;
    std::uint64_t synced = 0;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  // One change of names, whole or not at all; without an inode the name goes.
  using Change = std::vector<std::pair<std::string, std::shared_ptr<Inode>>>;

  void adopt(const std::string& path, bool is_directory);
  rocksdb::IOStatus may_change(DiskCall call, const std::string& path);
  std::shared_ptr<Inode> inode_of(const std::string& path, std::uint64_t synced);
  void change_names(const Change& change);
  static void apply(Names& names, const Change& change);
  void synced(Inode& inode);
  void directory_synced(const std::string& path);
  rocksdb::IOStatus make_directory(const std::string& name, const rocksdb::IOOptions& options,
                                   rocksdb::IODebugContext* context);
  rocksdb::IOStatus wrap(DiskCall call, const std::string& name,
                         const std::function<rocksdb::IOStatus()>& open,
                         std::unique_ptr<rocksdb::FSWritableFile>* file);

  const std::string root_;
  const Honesty honesty_;
  std::mutex mutex_;  // guards what follows: a change is one instant
  Fault fault_;
  Names live_;                                          // as the process sees them
  Names durable_;                                       // as of the last sync of each directory
  std::map<std::string, std::vector<Change>> pending_;  // since then, by directory
  std::uint64_t left_ = ~std::uint64_t{0};              // changes until the power is lost
  std::atomic<std::uint64_t> changes_{0};
  std::atomic<std::int64_t> sync_takes_us_{0};
  std::atomic<bool> lost_{false};
};

// With a clock that does not pause: RocksDB waits a second after a flush that failed.
std::shared_ptr<rocksdb::Env> env_on(const std::shared_ptr<DiskModel>& disk);

}  // namespace rkv::server::test
