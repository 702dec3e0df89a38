// The simulated disk: what a server has written and what of it is certain to stay, kept across the
// server's crashes.
//
// Batches are on disk whole or not at all, and what survives is a prefix of them - the promise that
// server/persistence/engine.h makes (E1). A process that dies loses the batch it was writing at
// most; a machine that dies keeps any prefix that contains everything synced.
//
// Reads see what was written, synced or not. After a failure they go on to see it until the
// database is opened again (recover()), which may have lost what was not synced (J2).
//
// Thread safety: none.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/scan.h"
#include "rdma/sim/scheduler.h"
#include "server/persistence/storage.h"

namespace rkv::sim {

using rdma::sim::Scheduler;

struct DiskFaults {
  Nanos write = 20'000;  // a write takes up to so long
  Nanos sync = 200'000;
  std::uint64_t fail_in = 0;  // one in so many writes and syncs fails, and then all until recover()
  std::uint64_t recover_fails_in = 0;
  Nanos read = 50'000;
  std::uint64_t read_fails_in = 0;
  bool drops_when_full = false;  // canary: while it is full, writes are dropped and said to be done
  bool stays_full = false;       // canary: nobody is told that there is room again
  bool mixes_large = false;      // canary: large values are kept with their bytes in another order
  std::uint64_t lies_in = 0;     // canary: one in so many syncs that keeps nothing
  std::uint64_t stale_in = 0;    // canary: one in so many reads of a record that shows an older one
  std::uint64_t hides_in = 0;    // canary: one in so many records that a read of many leaves out
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

  // What a server started now would load.
  const Records& records() const { return synced_; }
  // What was there before the story begins.
  void preload(const std::string& key, Record record) {
    synced_[key] = record;
    visible_[key] = std::move(record);
  }
  std::uint64_t reads() const { return reads_; }
  // Without room it takes no write; reads go on.
  void set_full(bool full) { full_ = full; }

  enum class End { kProcess, kMachine };
  // The server is dead: fixes what survives. Its Storage has no effect any more.
  void crash(End end);

 private:
  friend class DiskStorage;
  struct Change {
    std::string key;
    std::optional<Record> record;  // nothing: removed
  };
  using Batch = std::vector<Change>;
  void apply(Records& records, const Batch& batch);
  // What is in the database becomes `written_` on top of what is synced.
  void show_written();

  Scheduler& scheduler_;
  DiskFaults faults_;
  Records synced_;
  std::vector<Batch> written_;  // since the last sync
  Records visible_;             // to reads: synced_ and written_ together
  Records replaced_;            // by key, what visible_ had before; kept for the canary alone
  std::vector<Batch> left_;     // while broken_: what of written_ the next opening will find
  bool incomplete_ = false;     // opened again, and what was lost is not written again yet
  std::uint64_t reopened_ = 0;
  std::uint64_t reads_ = 0;
  std::uint64_t owner_ = 1;  // which server may write: counted up by crash()
  bool broken_ = false;
  bool full_ = false;
};

// One server's way to the disk.
class DiskStorage final : public server::Storage {
 public:
  explicit DiskStorage(Disk& disk) : disk_(disk), owner_(disk.owner_) {}

  void add_put(const RecordFields& record) override;
  void add_remove(Bytes key) override;
  Status write_batch() override;
  void clear_batch() override;
  Status sync() override;
  Status recover() override;

  // As those of server::Engine.
  using Visitor = std::function<Status(const RecordFields&)>;
  Status read(Bytes key, const Visitor& visit);
  Status read_from(Bytes first, const Visitor& visit);
  Status read_range(const KeyRange& range, const std::function<bool(const RecordFields&)>& visit);
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
