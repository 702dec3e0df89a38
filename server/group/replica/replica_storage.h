// ReplicaStorage: the database of a replica. Beside the records it keeps which group they belong
// to, and up to which position of the group's log they go.
//
//   RKV_ASSIGN_OR_RETURN(const auto kept, ReplicaStorage::kept_in(*engine));
//   ReplicaLog log(kept.history);
//   ReplicaStorage storage(*engine, kept.history);
//   storage.note_block(block.last);   // before an applier may get the block's entries
//
// The position on the disk is the end of a block, since other replicas send whole blocks. So
// batches end with blocks, and the entries that the applier may get must end with one, too.
// Otherwise the records would be ahead of the position, and a replica that begins there would never
// get the rest.
//
// Invariants:
//  RSTORE-1  The position is written in the same batch as the entries up to it, and no batch holds
//      a part of a block. So the database has exactly the log up to the position.
//  RSTORE-2  The position never goes back.
//
// Thread safety: note_block(): any one thread. The others as Storage.
#pragma once

#include <cstdint>
#include <deque>

#include "common/mutex.h"
#include "server/group/rules/term_history.h"
#include "server/persistence/storage_engine.h"

namespace rkv::server {

class ReplicaStorage final : public Storage {
 public:
  struct Kept {
    std::uint64_t group = 0;   // 0: the database belongs to no group yet
    std::uint64_t number = 0;  // of the newest configuration that the replica has known; 0: none
    std::uint32_t term = 0;    // likewise
    TermHistory history;
  };
  // A database of no group that holds records has a history of one term. It ends with the highest
  // version that its server may have used. kCorrupt: this class never writes such notes.
  static Result<Kept> kept_in(const StorageEngine& engine);
  // From now on the database belongs to no group, as after a restore from a backup: its group may
  // live on without it. Synced. Returns whether it belonged to a group. kUnsupported: it was never
  // a primary's database, and its group has used versions that a server outside of the group would
  // use again.
  static Result<bool> leave_group(StorageEngine& engine);

  // The engine must outlive the storage.
  ReplicaStorage(StorageEngine& engine, TermHistory history);

  // Notes that the replica knows this configuration, so that it refuses older ones. Synced. Any
  // thread.
  static Status note_configuration(StorageEngine& engine, std::uint64_t number, std::uint32_t term);
  // From now on the database belongs to the group; synced.
  Status join(std::uint64_t group);
  // A block of the log ends here. Call it in ascending order.
  void note_block(const LogPosition& end);

  void add_put(const RecordFields& record) override { engine_.add_put(record); }
  void add_remove(Bytes key) override { engine_.add_remove(key); }
  void set_through(Version newest) override;
  bool may_end(Version newest) override;
  Status write_batch() override;
  void clear_batch() override { engine_.clear_batch(); }
  Status sync() override { return engine_.sync(); }
  // From now on versions are claimed on the disk. Call it when this replica is the primary: a
  // backup uses up no versions.
  void claims_versions() { claims_ = true; }
  Status claim_through(std::uint64_t sequence) override {
    return claims_ ? engine_.claim_through(sequence) : Status{};
  }
  Status recover() override { return engine_.recover(); }
  Status check_whole() override { return engine_.check_whole(); }

 private:
  void add_history();

  StorageEngine& engine_;
  TermHistory history_;  // up to the position in the batch, or on the disk
  std::uint64_t through_ = 0;
  bool claims_ = false;
  Mutex mutex_;
  std::deque<LogPosition> ends_ RKV_GUARDED_BY(mutex_);  // of blocks behind history_.last()
};

}  // namespace rkv::server
