// The applier: the one thread that carries the commit log to the disk.
//
// There is one stream for the whole store, not one per shard. The writes that survive a crash are
// therefore a prefix of the commit order of all writes. One number says which writes are durable,
// and a start has nothing to merge. A RocksDB batch takes a few hundred nanoseconds per record, far
// less than a PUT costs the network.
//
//   Applier applier(log, storage, clock, {}, [&] { publish(log.wal_mark(), log.sync_mark()); });
//   applier.start();
//   applier.request_sync(log.last_begun());  // a client waits for log.sync_mark() to reach it
//   applier.request_write(sequence);         // or for log.wal_mark()
//   Status status = applier.stop();          // everything begun is on disk, unless it failed
//
// Invariants:
//  APPL-1  Batches are written in commit order and cut between entries: the disk always holds a
//      prefix.
//  APPL-2  Entries stay in the log until they are synced. After a disk failure they are written
//      again, from the last synced entry on and in one batch, so that APPL-1 holds throughout.
//      Nothing accepted is lost while the process lives.
//  APPL-3  wal_mark <= what a finished write() covers; sync_mark <= what a finished sync() covers.
//  APPL-4  The log's disk state leaves kOk before the first retry. It returns to kOk after
//      everything has been written and synced again.
//  APPL-5  Of several writes of one key in a batch, only the last reaches the storage (LASTW-1,
//      LASTW-2).
//  APPL-6  A database found damaged is still written to, so that nothing accepted is lost, but its
//      state never returns to kOk: only a start can find out what is still readable. A database
//      whose log has lost synced writes is not even reopened: that would drop what is behind the
//      damage.
//  APPL-7  The log's space is given back only after the versions that may use it are claimed.
//
// Thread safety: requests and counts: any thread. start, stop, step: one thread, the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "common/clock.h"
#include "rkv/durability.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"
#include "server/persistence/last_writes.h"
#include "server/persistence/storage.h"

namespace rkv::server {

struct ApplierOptions {
  // A batch ends at either limit. Larger batches cost less per record, but a write waits longer for
  // the other data of its batch. Beyond 1 MiB the gain is small.
  std::size_t batch_bytes = std::size_t{1} << 20;
  std::uint32_t batch_records = 4096;  // log entries, before those of one key are merged
  // The applier sleeps this long after a batch that was not full; only a request wakes it. A write
  // reaches the write-ahead log that much later, and there are at most 500 batches a second.
  // Without the sleep, each put of a moderate load pays for a wake-up and a write(2). At 700 puts/s
  // under SoftRoCE in an emulated machine, 0.5 ms still cost a quarter of a core.
  int linger_us = 2000;
  // How long a write may stay unsynced when nothing requests a sync.
  int sync_interval_ms = 1000;
  // Pause after a failed attempt; doubles from min to max.
  int retry_ms_min = 100;
  int retry_ms_max = 5000;
  // How long stop() keeps trying to save everything.
  int stop_timeout_ms = 30'000;
};

class Applier {
 public:
  // The applier's thread calls `changed` after the marks or the disk state have changed; `changed`
  // must not block. All references must outlive the applier.
  Applier(CommitLog& log, Storage& storage, const Clock& clock, const ApplierOptions& options,
          std::function<void()> changed);
  ~Applier();  // REQUIRES: stop() was called, or start() was not
  Applier(const Applier&) = delete;
  Applier& operator=(const Applier&) = delete;

  void start();
  // Requests a sync that covers `sequence`; `changed` is called when sync_mark has reached it. Does
  // not block. Costs at most one system call.
  void request_sync(std::uint64_t sequence);
  // Requests a write that covers `sequence`; `changed` is called when wal_mark has reached it.
  // Requests that arrive while the disk is busy share the next write and the next sync (group
  // commit).
  void request_write(std::uint64_t sequence);
  void request(Durability level, std::uint64_t sequence) {
    level == Durability::kWal ? request_write(sequence) : request_sync(sequence);
  }

  // A busy disk may take 1 s for a sync; a disk that takes ten times as long counts as hung.
  static constexpr Nanos kHungAfter = 10 * kNanosPerSecond;

  struct Counts {
    std::uint64_t batches = 0;  // written
    std::uint64_t syncs = 0;
    std::uint64_t coalesced = 0;  // writes replaced by a later write of the same batch
    std::uint64_t failures = 0;   // how often the disk has failed
    Nanos failed_since = 0;       // 0: the disk works
    Nanos asked_since = 0;        // when the current write or sync began; 0: none
    std::uint64_t taken = 0;      // writes taken from the log
    std::uint64_t saved = 0;      // how many of `taken` are synced
    std::uint64_t unsynced() const { return taken > saved ? taken - saved : 0; }
    // How long the disk has not answered a write or a sync; 0: less than kHungAfter.
    Nanos hung_for(Nanos now) const {
      return asked_since == 0 || now - asked_since < kHungAfter ? 0 : now - asked_since;
    }
  };
  Counts counts() const {
    // `saved` first, with acquire: a later read of `taken` is then at least as large.
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
  // Writes and syncs everything begun, then ends the thread. Blocks for up to stop_timeout_ms plus
  // the call under way. REQUIRES: no write begins any more. kIo: the disk did not take everything
  // in time. The rest is lost, and a log line says how much.
  Status stop();

  // For tests without the thread: runs one turn without sleeping. True: the batch reached its
  // limit, so another turn should follow at once.
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

  std::atomic<std::uint64_t> sync_requested_{0};   // highest sequence of all request_sync() calls
  std::atomic<std::uint64_t> write_requested_{0};  // highest sequence of all request_write() calls
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> batches_{0};
  std::atomic<std::uint64_t> syncs_{0};
  std::atomic<std::uint64_t> coalesced_{0};
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<Nanos> failed_since_{0};
  std::atomic<Nanos> asked_since_{0};
  std::atomic<std::uint64_t> taken_{0};  // never decreases; never below saved_
  std::atomic<std::uint64_t> saved_{0};
  // The members below belong to the applier's thread.
  LastWrites batch_;
  std::uint64_t sync_target_ = 0;  // request being served: the next sync covers it
  Nanos unsynced_since_ = 0;       // 0: everything written is synced
  std::uint64_t refused_ = 0;      // log_.refused() when the last sync began
  bool failed_ = false;
  bool damage_is_certain_ = false;
  Nanos retry_at_ = 0;
  int retry_ms_ = 0;
  std::thread thread_;
};

}  // namespace rkv::server
