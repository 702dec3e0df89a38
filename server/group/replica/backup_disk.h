// BackupDisk: carries replicated entries from a backup's log to its database. A backup has no
// store: the entries go through a commit log of its own. So a server's applier writes and syncs
// them, and handles failures of the disk.
//
//   BackupDisk disk(storage, clock, *commit_log, options, [] { wake(); });
//   disk.feed(log, backup.marks().replicated);   // when the mark has risen or the disk has moved
//   backup.on_disk(disk.through().wal, disk.through().sync);
//
// Invariants:
//  BDISK-1  The database gets whole blocks in the log's order, none of them above the mark.
//  BDISK-2  through() never falls, and is never above what the database has.
//
// Thread safety: one thread. `changed` is called on the applier's.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "server/group/replica/replica_storage.h"
#include "server/group/rules/messages.h"
#include "server/group/rules/replica_log.h"
#include "server/log/commit_log.h"
#include "server/log/logged_outcomes.h"
#include "server/log/replication_reader.h"
#include "server/persistence/applier.h"

namespace rkv::server {

class BackupDisk {
 public:
  // The database has everything up to `at`, synced. The storage must outlive this object. `queue`
  // is replicated (CommitLog::Group), and has room for the longest block.
  BackupDisk(ReplicaStorage& storage, const Clock& clock, std::unique_ptr<CommitLog> queue,
             const LogPosition& at, const ApplierOptions& options, std::function<void()> changed);
  ~BackupDisk();  // stop()
  BackupDisk(const BackupDisk&) = delete;
  BackupDisk& operator=(const BackupDisk&) = delete;

  // Takes the blocks of `log` behind fed() that end at or below `mark`, as many as the queue has
  // room for.
  void feed(const ReplicaLog& log, std::uint64_t mark);
  // A client waits for these versions. Versions that were not fed yet are asked for once they are
  // fed.
  void want(const Wanted& wanted);

  struct Through {
    std::uint64_t wal = 0;
    std::uint64_t sync = 0;
  };
  // The versions up to which the database has the log.
  Through through();
  const LogPosition& fed() const { return fed_; }
  // The outcomes of the writes that were fed. Nothing is noted after stop().
  std::shared_ptr<const LoggedOutcomes> outcomes() const { return outcomes_; }
  DiskState state() const { return queue_->disk_state(); }
  // Whether the disk's state is kOk, but it has not answered a write or a sync for
  // Applier::kHungAfter.
  bool hangs(Nanos now) const { return applier_.counts().hung_for(now) != 0; }
  // Whether the disk takes nothing now. The applier tries again by itself.
  bool has_failed(Nanos now) const { return queue_->failed() || hangs(now); }
  // Whether the disk has taken nothing for so long that others must not wait for it.
  bool is_given_up(Nanos now) const {
    const Nanos since = applier_.counts().failed_since;
    return hangs(now) || (since != 0 && now - since >= Applier::kHungAfter);
  }
  // Writes and syncs what was fed. Blocks. Does nothing the second time.
  Status stop();

 private:
  struct End {
    std::uint64_t sequence = 0;  // of the queue: an upper bound of the block's entries
    std::uint64_t version = 0;
  };
  bool feed_block(const EntryBlock& block);
  void request();

  ReplicaStorage& storage_;
  std::unique_ptr<CommitLog> queue_;
  // Used to raise the queue's mark by whole blocks: the applier takes nothing behind the mark.
  ReplicationReader reader_;
  Applier applier_;
  const std::shared_ptr<LoggedOutcomes> outcomes_;
  LogPosition fed_;
  std::size_t fed_bytes_ = 0;  // of the block behind fed_
  Through through_;
  std::deque<End> ends_;  // of the blocks that are not synced yet
  Wanted wanted_;
  Wanted requested_;
  bool runs_ = true;
};

}  // namespace rkv::server
