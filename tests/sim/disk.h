// The simulated disk: it holds the data that a server has written, and knows which part certainly
// survives. It persists across the server's crashes.
//
// Batches are on disk whole or not at all, and a prefix of them survives: the promise of
// server/persistence/storage_engine.h (DISK-1). A process that dies loses at most the batch that it
// was writing. A machine that dies keeps any prefix that contains everything synced.
//
// Reads see all written data, synced or not. After a failure they continue to see it until the
// database is reopened (recover()), which may have lost unsynced data (DREAD-2).
//
// Thread safety: none.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/scan.h"
#include "server/persistence/storage.h"
#include "tests/sim/network/scheduler.h"

namespace rkv::sim {

using rdma::sim::Scheduler;

struct DiskFaults {
  Nanos write = 20'000;  // maximum time of a write
  Nanos sync = 200'000;
  std::uint64_t fail_in = 0;  // one in this many writes and syncs fails, then all until recover()
  std::uint64_t recover_fails_in = 0;
  Nanos read = 50'000;
  std::uint64_t read_fails_in = 0;
  bool drops_when_full = false;  // canary: while full, writes are dropped and reported as done
  bool stays_full = false;       // canary: the server never learns that there is space again
  bool mixes_large = false;      // canary: large values are stored with reordered bytes
  std::uint64_t lies_in = 0;     // canary: one in this many syncs persists nothing
  std::uint64_t stale_in = 0;    // canary: one in this many reads returns an older record
  std::uint64_t hides_in = 0;    // canary: reads of many leave out one in this many records
};

class Disk {
 public:
  struct Record {
    Version version;
    std::string value;
    std::uint64_t expiry_ms = 0;
    bool counter = false;
  };
  using Records = std::map<std::string, Record>;

  explicit Disk(Scheduler& scheduler) : scheduler_(scheduler) {}
  DiskFaults& faults() { return faults_; }

  // The content that a server started now would load.
  const Records& records() const { return synced_; }
  // Adds content that exists before the run begins.
  void preload(const std::string& key, Record record) {
    synced_[key] = record;
    visible_[key] = std::move(record);
  }
  std::uint64_t reads() const { return reads_; }
  // A full disk accepts no write; reads continue.
  void set_full(bool full) { full_ = full; }

  enum class End { kProcess, kMachine };
  // The server is dead: decides what survives. Its Storage has no effect from now on.
  void crash(End end);

 private:
  friend class DiskStorage;
  struct Change {
    std::string key;
    std::optional<Record> record;  // empty: removed
  };
  using Batch = std::vector<Change>;
  void apply(Records& records, const Batch& batch);
  // The database's content becomes `written_` on top of the synced content.
  void show_written();

  Scheduler& scheduler_;
  DiskFaults faults_;
  Records synced_;
  std::vector<Batch> written_;  // since the last sync
  Records visible_;             // what reads see: synced_ and written_ together
  Records replaced_;            // by key: the previous record in visible_; for the canary only
  std::vector<Batch> left_;     // while broken_: the part of written_ that the next opening finds
  bool incomplete_ = false;     // reopened, and the lost data is not written again yet
  std::uint64_t reopened_ = 0;
  std::uint64_t reads_ = 0;
  std::uint64_t owner_ = 1;  // the server that may write: incremented by crash()
  bool broken_ = false;
  bool full_ = false;
};

// One server's access to the disk.
class DiskStorage final : public server::Storage {
 public:
  explicit DiskStorage(Disk& disk) : disk_(disk), owner_(disk.owner_) {}

  void add_put(const RecordFields& record) override;
  void add_remove(Bytes key) override;
  Status write_batch() override;
  void clear_batch() override;
  Status sync() override;
  Status recover() override;

  // As in server::StorageEngine.
  using Visitor = std::function<Status(const RecordFields&)>;
  Status read(Bytes key, const Visitor& visit);
  using RangeVisitor = std::function<bool(const RecordFields&)>;
  Status read_from(Bytes first, const RangeVisitor& visit);
  Status read_range(const KeyRange& range, const RangeVisitor& visit);
  std::uint64_t reopened() const { return disk_.reopened_; }

 private:
  Status begin_read();

  bool dead() const { return owner_ != disk_.owner_; }
  Status broken(bool may_be_there);
  Status no_room();

  Disk& disk_;
  std::uint64_t owner_;
  Disk::Batch batch_;
};

}  // namespace rkv::sim
