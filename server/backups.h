// Backups that clients ask for: one at a time, made by a thread of their own, so that neither a
// worker nor the applier waits for the disk.
//
//   RKV_ASSIGN_OR_RETURN(auto backup, backups.ask(name, log.last_begun()));  // a worker
//   ... later, when `finished` has been called:
//   if (backup->done()) answer(backup->failure());
//
// Invariants:
//  D1  A backup holds every write at or below its `through`: it is begun when these are synced.
//  D2  `<directory>/<name>` is a whole backup or is not there: it is made under another name and
//      gets its own when everything is synced. What a crash has left is removed by the next backup
//      of that name.
//      Servers that share a directory make one at a time, by a lock on it.
//  D3  Nothing outside of `directory` is written, and nothing in it that was there before.
//  D4  Every backup that ask() gave is done at some time. stop() ends it soon, and without a backup
//      unless it was just about to get its name.
//
// Thread safety: ask, marks_changed: any thread, neither blocks on the disk. start, stop: the
// owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "rkv/result.h"
#include "server/background.h"
#include "server/persistence/commit_log.h"

namespace rkv::server {

class Backup {
 public:
  Backup(std::string_view name, std::uint64_t through) : name_(name), through_(through) {}
  const std::string& name() const { return name_; }
  std::uint64_t through() const { return through_; }
  bool done() const { return done_.load(std::memory_order_acquire); }
  // REQUIRES: done().
  const std::optional<Error>& failure() const { return failure_; }
  void finish(const Status& status) {
    if (!status) failure_ = status.error();
    done_.store(true, std::memory_order_release);
  }

 private:
  const std::string name_;
  const std::uint64_t through_;
  std::optional<Error> failure_;  // written before done_
  std::atomic<bool> done_{false};
};

class Backups {
 public:
  struct Parts {
    const CommitLog& log;
    // Makes a copy of the database in a directory that is not there yet (Engine::checkpoint).
    std::function<Status(const std::string& target)> checkpoint;
    std::function<void()> stop_checkpoints;                    // makes it end soon
    std::function<void(std::uint64_t sequence)> request_sync;  // as of the applier
    std::function<void()> finished;                            // a backup is done; must not block
    MakeBackground make_background = background_threads;
  };
  // `directory` exists.
  Backups(std::string directory, Parts parts);
  ~Backups();  // stopped
  Backups(const Backups&) = delete;
  Backups& operator=(const Backups&) = delete;

  // `name` is a backup's name (wire.h). Done with kConflict when there is one of that name, with
  // kIo or kPermission when the disk or the system refuse, with kBusy when another server is making
  // one in the directory. kBusy: another one is being made.
  Result<std::shared_ptr<const Backup>> ask(std::string_view name, std::uint64_t through);
  // The log's marks, or its failed flag, have changed.
  void marks_changed();
  void start();
  // Ends a backup that is being made, soon, and lets none begin; does not wait. Any thread.
  void begin_stop();
  void stop();

 private:
  void run();
  Status make(const Backup& backup) const;

  const std::string directory_;
  const Parts parts_;
  const std::unique_ptr<Background> background_;
  std::mutex mutex_;
  std::shared_ptr<Backup> current_;    // guarded by mutex_
  std::atomic<bool> stopping_{false};  // set with mutex_ held
};

}  // namespace rkv::server
