// Records that operations wait for, brought from the disk into memory by threads of their own, so
// that no worker waits for the disk.
//
//   auto load = loads.ask(key);                       // a worker
//   ... later, when `finished` has been called:
//   if (load->done()) load->failure() ? refuse() : try_again(load->look());
//
// Invariants:
//  T1  A record is taken into memory only as it is in a read that may be believed (J1, V2).
//  T2  Loads of one key that overlap are one.
//  T3  Every load that ask() gave is done at some time; stop() ends those that are not begun.
//
// Thread safety: ask, marks_changed, room_made: any thread, none blocks on the disk. start, stop:
// the owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/background.h"
#include "server/disk_reads.h"
#include "server/store.h"

namespace rkv::server {

class Load {
 public:
  explicit Load(std::string_view key) : key_(key) {}
  Bytes key() const { return as_bytes(key_); }
  bool done() const { return done_.load(std::memory_order_acquire); }
  // REQUIRES: done(). Nothing: it is in memory, or look() says what there is on disk, which is
  // valid as long as this.
  const std::optional<Error>& failure() const { return failure_; }
  DiskLook look() const { return look_; }

  // The loading thread's.
  void see_nothing(std::uint64_t as_of) { look_ = SeenOnDisk{.as_of = as_of}; }
  void see(const RecordFields& record, std::uint64_t as_of, const Error& no_room);
  void finish(const Status& status) {
    if (!status) failure_ = status.error();
    done_.store(true, std::memory_order_release);
  }

 private:
  const std::string key_;
  std::optional<Error> failure_;  // written before done_, as the next
  DiskLook look_;
  RecordOnDisk record_;
  std::atomic<bool> done_{false};
};

class Loads {
 public:
  struct Parts {
    Store& store;
    DiskReads disk;
    std::function<void(std::uint64_t sequence)> request_write;  // as of the applier
    std::function<void()> finished;                             // a load is done; must not block
    std::uint32_t threads = 4;                                  // reads of the disk at a time
    MakeBackground make_background = background_threads;
  };
  explicit Loads(Parts parts) : parts_(std::move(parts)), background_(parts_.make_background()) {}
  ~Loads();  // stopped
  Loads(const Loads&) = delete;
  Loads& operator=(const Loads&) = delete;

  // Done with kIo, kCorrupt: the disk fails; kBusy: it changes too often. Where memory has no room,
  // look() has the record.
  std::shared_ptr<const Load> ask(Bytes key);
  // The log's marks, or its failed flag, have changed.
  void marks_changed() { background_->notify(); }
  void room_made() { background_->notify(); }
  void start();
  void stop();

 private:
  void run();
  // One try. Nothing: again, unless it is the last.
  std::optional<Status> try_once(Load& load, bool last);
  bool await_written(std::uint64_t sequence);
  void await_room();

  const Parts parts_;
  const std::unique_ptr<Background> background_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Load>> queue_;  // guarded by mutex_, as what follows
  std::unordered_map<std::string, std::shared_ptr<Load>> pending_;
  bool stopping_ = false;
};

}  // namespace rkv::server
