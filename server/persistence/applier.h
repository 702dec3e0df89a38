// The applier: the one thread that carries the commit log to the disk.
//
// One stream for the whole store, not one per shard: then what survives a crash is a prefix of the
// commit order of all writes together, one number says what is durable, and there is nothing to
// merge at start. A batch of RocksDB takes a few hundred nanoseconds a record, far less than a
// put costs the network.
//
//   Applier applier(log, storage, clock, {}, [&] { publish(log.wal_mark(), log.sync_mark()); });
//   applier.start();
//   applier.request_sync(log.last_begun());  // a client waits for log.sync_mark() to reach it
//   applier.request_write(sequence);         // or for log.wal_mark()
//   Status status = applier.stop();          // everything begun is on disk, unless it failed
//
// Invariants:
//  A1  Batches are written in commit order and cut between entries: the disk always holds a prefix.
//  A2  Entries stay in the log until they are synced. When the disk fails they are written again,
//      from the last synced one and in one batch, so that A1 holds throughout; nothing accepted is
//      lost while the process lives.
//  A3  wal_mark <= what a finished write() covers; sync_mark <= what a finished sync() covers.
//  A4  The log's disk state leaves "well" before the first retry and comes back after everything
//      has been written and synced again.
//  A5  Of several writes of one key in a batch the last alone reaches the storage (B1, B2).
//  A6  A database that has been found damaged is written to, so that nothing accepted is lost, but
//      never called well again: it takes a start to find out what can still be read. One whose log
//      has lost synced writes is not even opened anew: that would drop what is behind the damage.
//
//  A7  No room in the log is given back before the versions that may come to lie there are claimed.
//
// Thread safety: requests and counts from any thread. start, stop, step: one thread, the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "common/clock.h"
#include "rkv/durability.h"
#include "rkv/result.h"
#include "server/persistence/commit_log.h"
#include "server/persistence/last_writes.h"
#include "server/persistence/storage.h"

namespace rkv::server {

struct ApplierOptions {
  // A batch ends at either. Larger batches cost less a record and make waiters of a flush wait for
  // more of others' data; beyond 1 MiB the gain is small.
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::uint32_t batch_records = 4096;  // taken from the log; those of one key are written once
  // After a batch that was not full the applier sleeps this long, come what may but a request: so
  // much longer until the write-ahead log has a write, in exchange for 500 batches a second at
  // most. Without it every put of a moderate load pays for a wake-up and a write(2): at 700 puts/s
  // under SoftRoCE in an emulated machine 0.5 ms still cost a quarter of a core.
  int linger_us = 2000;
  // How long a write may stay unsynced when nobody asks.
  int sync_interval_ms = 1000;
  // Pause after a failed try; doubles up to the second.
  int retry_ms_min = 100;
  int retry_ms_max = 5000;
  // How long stop() keeps trying while the disk fails.
  int stop_timeout_ms = 30'000;
};

class Applier {
 public:
  // `changed` is called by the applier's thread after the marks or the failed flag have changed;
  // it must not block. All references must outlive the applier.
  Applier(CommitLog& log, Storage& storage, const Clock& clock, const ApplierOptions& options,
          std::function<void()> changed);
  ~Applier();  // stop() was called, or start() was not
  Applier(const Applier&) = delete;
  Applier& operator=(const Applier&) = delete;

  void start();
  // Asks for a sync that covers `sequence`; `changed` tells when sync_mark has reached it. Costs a
  // system call at most.
  void request_sync(std::uint64_t sequence);
  // The same for a write that covers it, and wal_mark. What is requested while the disk is at work
  // shares the next write and the next sync (group commit).
  void request_write(std::uint64_t sequence);
  void request(Durability level, std::uint64_t sequence) {
    level == Durability::kWal ? request_write(sequence) : request_sync(sequence);
  }

  // Ten times the second that a disk with much to do may take for a sync.
  static constexpr Nanos kHungAfter = 10 * kNanosPerSecond;

  struct Counts {
    std::uint64_t batches = 0;  // written
    std::uint64_t syncs = 0;
    std::uint64_t coalesced = 0;  // writes that a later one of the same batch made void
    std::uint64_t failures = 0;   // times that the disk has failed
    Nanos failed_since = 0;       // 0: it is well
    Nanos asked_since = 0;        // when the write or sync under way was begun; 0: none is
    std::uint64_t taken = 0;      // writes taken from the log
    std::uint64_t saved = 0;      // of those, synced
    std::uint64_t unsynced() const { return taken > saved ? taken - saved : 0; }
    // How long the disk has not answered a write or a sync; 0: less than kHungAfter.
    Nanos hung_for(Nanos now) const {
      return asked_since == 0 || now - asked_since < kHungAfter ? 0 : now - asked_since;
    }
  };
  Counts counts() const {
    // First, and acquired: whatever is read of `taken` afterwards counts all of these.
    const std::uint64_t saved = saved_.load(std::memory_order_acquire);
    return {.batches = batches_.load(std::memory_order_relaxed),
            .syncs = syncs_.load(std::memory_order_relaxed),
            .coalesced = coalesced_.load(std::memory_order_relaxed),
            .failures = failures_.load(std::memory_order_relaxed),
            .failed_since = failed_since_.load(std::memory_order_relaxed),
            .asked_since = asked_since_.load(std::memory_order_relaxed),
            .taken = taken_.load(std::memory_order_relaxed),
            .saved = saved};
  }
  // Writes and syncs everything begun, ends the thread. No write may begin any more. kIo when the
  // disk did not take it within the time: the rest is lost, and the log line says how much.
  Status stop();

  // One turn without sleeping, for tests without the thread: true when a batch was written that
  // had reached its limit, so that another turn should follow at once.
  bool step();

 private:
  void run();
  void sleep();
  void drain();
  bool collect(std::uint64_t through);
  bool take(std::uint64_t through);
  bool write();
  template <class Call>
  Status ask_disk(Call call);
  bool sync_due(bool more) const;
  void sync();
  bool all_saved();
  void retry();
  bool write_again();
  void save_the_rest();
  void recovered();
  bool is_well();
  void fail(const char* what, const Error& error);
  bool wanted() const;

  CommitLog& log_;
  Storage& storage_;
  const Clock& clock_;
  const ApplierOptions options_;
  const std::function<void()> changed_;

  std::atomic<std::uint64_t> sync_requested_{0};   // highest of all request_sync()
  std::atomic<std::uint64_t> write_requested_{0};  // of all request_write()
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> batches_{0};
  std::atomic<std::uint64_t> syncs_{0};
  std::atomic<std::uint64_t> coalesced_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<Nanos> failed_since_{0};
  std::atomic<Nanos> asked_since_{0};
  std::atomic<std::uint64_t> taken_{0};  // never goes back, and never is below saved_
  std::atomic<std::uint64_t> saved_{0};
  // The rest belongs to the applier's thread.
  LastWrites batch_;
  std::uint64_t sync_target_ = 0;  // the request being served: the next sync waits for this
  Nanos unsynced_since_ = 0;       // 0: everything written is synced
  std::uint64_t refused_ = 0;      // of the log, when the last sync began
  bool failed_ = false;
  bool damage_is_certain_ = false;
  Nanos retry_at_ = 0;
  int retry_ms_ = 0;
  std::thread thread_;
};

}  // namespace rkv::server
