// Backups that clients request. A thread of this class makes them, one at a time, so that neither a
// worker nor the applier waits for the disk.
//
//   RKV_ASSIGN_OR_RETURN(auto backup, backups.ask(name, log.last_begun()));  // a worker
//   ... later, after a call of `finished`:
//   if (backup->done()) answer(backup->failure());
//
// Invariants:
//  BKUP-1  A backup holds every write at or below its `through`: it begins when these writes are
//      synced.
//  BKUP-2  `<directory>/<name>` is a complete backup or does not exist: a backup is made under a
//      temporary name and renamed when everything is synced. The next backup of a name removes the
//      rest that a crash has left. A lock on the directory lets servers that share it make one
//      backup at a time.
//  BKUP-3  Nothing outside of `directory` is written, and nothing that existed before is changed.
//  BKUP-4  Every backup that ask() returned is done eventually. stop() ends it soon, and without a
//      backup unless it was about to be renamed.
//
// Thread safety: ask, marks_changed, begin_stop: any thread; ask and marks_changed do not wait for
// the disk. start, stop: the owner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/mutex.h"
#include "rkv/result.h"
#include "server/background/background_task.h"
#include "server/background/background_thread.h"
#include "server/log/commit_log.h"

namespace rkv::server {

class BackupTask final : public BackgroundTask {
 public:
  BackupTask(std::string_view name, std::uint64_t through) : name_(name), through_(through) {}
  const std::string& name() const { return name_; }
  std::uint64_t through() const { return through_; }

 private:
  const std::string name_;
  const std::uint64_t through_;
};

class Backups {
 public:
  struct Parts {
    const CommitLog& log;
    // Copies the database into a directory that does not exist yet (StorageEngine::checkpoint).
    std::function<Status(const std::string& target)> checkpoint;
    std::function<void()> stop_checkpoints;  // makes a running checkpoint end soon
    std::function<void(std::uint64_t sequence)> request_sync;  // Applier::request_sync
    std::function<void()> finished;                            // a backup is done; must not block
    MakeBackground make_background = background_threads;
  };
  // REQUIRES: `directory` exists.
  Backups(std::string directory, Parts parts);
  Backups(const Backups&) = delete;
  Backups& operator=(const Backups&) = delete;

  // Requests a backup. `name` must be valid for a backup (wire.h). kBusy: another backup is being
  // made, or the server stops. The backup itself may fail: kConflict if the name exists, kIo or
  // kPermission if the disk or the system refuses, kBusy if another server is making a backup in
  // the directory.
  Result<std::shared_ptr<const BackupTask>> ask(std::string_view name, std::uint64_t through);
  // Call it when the log's marks or its failed flag have changed.
  void marks_changed();
  void start();
  // Makes a running backup end soon and refuses new ones. Does not block.
  void begin_stop();
  void stop();

 private:
  void run();
  Status make(const BackupTask& backup) const;

  const std::string directory_;
  const Parts parts_;
  Mutex mutex_;
  std::shared_ptr<BackupTask> current_ RKV_GUARDED_BY(mutex_);
  const std::unique_ptr<BackgroundThread> background_;
};

}  // namespace rkv::server
