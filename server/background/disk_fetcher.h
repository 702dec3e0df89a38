// DiskFetcher: loads records that operations wait for. Threads of this class bring them from disk
// into memory, so that no worker waits for the disk.
//
//   auto load = loads.ask(key);                       // a worker
//   ... later, after a call of `finished`:
//   if (load->done()) load->failure() ? refuse() : try_again(load->look());
//
// Invariants:
//  FETCH-1  A record enters memory only as a trustworthy read found it (DREAD-1, REMSEQ-2).
//  FETCH-2  Overlapping loads of one key share one Load.
//  FETCH-3  Every load that a caller of ask() still holds is done eventually. stop() ends loads
//      that were not begun, and ask() then returns loads that have failed.
//
// Thread safety: ask, marks_changed, room_made: any thread; none of them waits for the disk. start,
// stop: the owner.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/mutex.h"
#include "server/background/background_task.h"
#include "server/background/background_thread.h"
#include "server/background/disk_reads.h"
#include "server/store/store.h"

namespace rkv::server {

class Load final : public BackgroundTask {
 public:
  explicit Load(std::string_view key) : key_(key) {}
  Bytes key() const { return as_bytes(key_); }
  // The record on disk; empty if it is in memory. REQUIRES: done() without a failure(). Valid as
  // long as this object.
  DiskLookup look() const { return look_; }

  // For the loading thread.
  void see_nothing(std::uint64_t as_of) { look_ = SeenOnDisk{.as_of = as_of}; }
  void see(const RecordFields& record, std::uint64_t as_of, const Error& no_room);

 private:
  const std::string key_;
  DiskLookup look_;  // this and the next are written before finish()
  RecordOnDisk record_;
};

class DiskFetcher {
 public:
  struct Parts {
    Store& store;
    DiskReads disk;
    std::function<void(std::uint64_t sequence)> request_write;  // Applier::request_write
    std::function<void()> finished;                             // a load is done; must not block
    std::uint32_t threads = 4;                                  // disk reads at a time
    MakeBackground make_background = background_threads;
  };
  explicit DiskFetcher(Parts parts)
      : parts_(std::move(parts)), background_(parts_.make_background()) {}
  DiskFetcher(const DiskFetcher&) = delete;
  DiskFetcher& operator=(const DiskFetcher&) = delete;

  // Starts to load the record of `key`, or joins a load under way (FETCH-2). The load may fail with
  // kIo or kCorrupt (the disk fails) or kBusy (the key changes too often, or the server stops). If
  // memory has no space for the record, look() has the record.
  std::shared_ptr<const Load> ask(Bytes key);
  // Call it when the log's marks or its failed flag have changed.
  void marks_changed() { background_->notify(); }
  // Call it when eviction has freed memory.
  void room_made() { background_->notify(); }
  void start();
  void stop();

 private:
  void run();
  // Makes one try. nullopt: retry, unless `last`.
  std::optional<Status> try_once(Load& load, bool last);
  bool await_written(std::uint64_t sequence);
  void await_room();

  const Parts parts_;
  Mutex mutex_;
  std::deque<std::shared_ptr<Load>> queue_ RKV_GUARDED_BY(mutex_);
  std::unordered_map<std::string, std::shared_ptr<Load>> pending_ RKV_GUARDED_BY(mutex_);
  const std::unique_ptr<BackgroundThread> background_;
};

}  // namespace rkv::server
