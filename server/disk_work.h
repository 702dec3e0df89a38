// DiskWork: the threads between a server's memory and its disk: the applier, backups, scans, and
// what loads records.
//
//   DiskWork disk(parts);
//   if (auto failure = disk.open_backups()) return failure;
//   disk.attach(store);                  // before the workers, which refer to its parts
//   disk.start_applier(storage, disk_moved);
//   disk.start_readers();
//   disk.start_loading();
//   disk.begin_stop();                   // then end the workers
//   disk.stop_reading(); disk.stop_scans();
//   return disk.stop();
//
// Thread safety: one owner; of its parts, what each says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "common/clock.h"
#include "server/background/backups.h"
#include "server/background/disk_fetcher.h"
#include "server/background/scans.h"
#include "server/background/warm_up.h"
#include "server/data_directory.h"
#include "server/log/commit_log.h"
#include "server/monitor/facts.h"
#include "server/persistence/applier.h"
#include "server/program/failure.h"
#include "server/program/options.h"
#include "server/store/store.h"

namespace rkv::server {

class DiskWork {
 public:
  // All must outlive it. REQUIRES: the directory's database is open.
  struct Parts {
    const Options& options;
    const Clock& clock;
    DataDirectory& data;
    CommitLog& log;
    std::function<void()> wake_workers;  // called once workers run
  };
  explicit DiskWork(Parts parts);

  // Makes what backups need, if --backup-dir is given.
  std::optional<Failure> open_backups();
  // The store must outlive it.
  void attach(Store& store);
  // Starts the applier, which writes to `storage`, and calls `disk_moved` on its thread whenever
  // the log's marks have moved. REQUIRES: attached.
  void start_applier(Storage& storage, std::function<void()> disk_moved);
  // Starts backups and scans. REQUIRES: the applier is started.
  void start_readers();
  // Loads records from disk while clients are served. REQUIRES: the applier is started.
  void start_loading();
  // The marks of the log have moved. Does not block.
  void marks_changed();

  // Ends a backup that is under way: a copy may take hours, and while the disk is in trouble other
  // threads may wait for it.
  void begin_stop();
  // Ends backups and what loads records. Blocks until their threads have ended.
  void stop_reading();
  // Likewise. REQUIRES: no counter is swept to memory any more.
  void stop_scans();
  // Saves all accepted writes. Blocks on the disk. REQUIRES: the applier is started.
  Status stop();

  Backups* backups() const { return backups_.get(); }  // nullptr: backups are disabled
  Scans& scans() { return *scans_; }
  DiskFetcher& fetcher() { return *fetcher_; }         // REQUIRES: attached
  Applier* applier() const { return applier_.get(); }  // nullptr: it was not started
  LoadFacts load() const;

 private:
  DiskReads reads() const;

  const Parts parts_;
  StorageEngine& engine_;
  Store* store_ = nullptr;
  std::unique_ptr<Applier> applier_;
  std::unique_ptr<Backups> backups_;
  std::unique_ptr<Scans> scans_;
  std::unique_ptr<DiskFetcher> fetcher_;
  std::unique_ptr<WarmUp> warm_up_;
  std::uint64_t estimated_records_ = 0;  // on disk at the start
};

}  // namespace rkv::server
