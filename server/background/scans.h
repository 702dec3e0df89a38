// Scans: pages of scans that clients request. A thread of this class reads them from the database,
// so that no worker and no writer waits for the disk.
//
//   RKV_ASSIGN_OR_RETURN(auto page, scans.ask(query, log.last_begun()));  // a worker
//   ... later, after a call of `finished`:
//   if (page->done()) answer(page->failure(), page->bytes());
//
// Keys are in order only in the database, which lags behind memory by the contents of the commit
// log. So before the thread makes a page, it waits until the applier has written every write that
// has a sequence by then. That takes one turn of the applier, which is requested at once: usually a
// millisecond, longer when the queue is full.
//
// Invariants:
//  SCANS-1  A page shows one instant of the database, with every PUT and DELETE at or below
//      `through`.
//  SCANS-2  Work for a page is bounded: kMaxScanPageBytes of result, kMaxRecordsLookedAt records,
//      kMaxBytesLookedAt of values. A page that ends before its range does has a token.
//  SCANS-3  The server keeps nothing for a scan between two pages. At most kMaxPages pages are
//      requested or held at a time; a further request gets kBusy.
//  SCANS-4  A page shows no expired key and no key outside of its range.
//  SCANS-5  Every page that a caller of ask() still holds is done eventually. stop() ends pages
//      that were not begun.
//
// Thread safety: ask, marks_changed: any thread; neither waits for the disk. start, stop: the
// owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/scan.h"
#include "rkv/result.h"
#include "server/background/background_task.h"
#include "server/background/background_thread.h"
#include "server/log/commit_log.h"

namespace rkv::server {

class ScanTask final : public BackgroundTask {
 public:
  // Copies `query`, the encoded query of the request. REQUIRES: it decodes.
  ScanTask(Bytes query, std::uint64_t through, std::shared_ptr<std::atomic<std::uint32_t>> pages);
  ~ScanTask() { pages_->fetch_sub(1, std::memory_order_relaxed); }

  const ScanQuery& query() const { return query_; }
  // The next two: REQUIRES: done().
  Bytes bytes() const { return bytes_; }
  std::uint64_t through() const { return through_; }

 private:
  friend class Scans;
  const std::vector<std::byte> asked_;                       // the encoded query
  const ScanQuery query_;                                    // points into asked_
  const std::shared_ptr<std::atomic<std::uint32_t>> pages_;  // counts the pages that exist
  // The next two are written before finish().
  std::uint64_t through_;
  std::vector<std::byte> bytes_;
};

class Scans {
 public:
  static constexpr std::uint32_t kMaxPages = 64;
  static constexpr std::uint32_t kMaxRecordsLookedAt = 65'536;
  static constexpr std::size_t kMaxBytesLookedAt = kMaxValueBytes;

  struct Parts {
    const CommitLog& log;
    // Logs the changed numbers of one-sided counters (CounterCells::sweep).
    std::function<Status()> sweep;
    std::function<void(std::uint64_t sequence)> request_write;  // Applier::request_write
    // StorageEngine::read_range.
    std::function<Status(const KeyRange&, const std::function<bool(const RecordFields&)>&)> read;
    std::function<bool(const RecordFields&)> has_expired;
    std::function<void()> finished;  // a page is done; must not block
    MakeBackground make_background = background_threads;
  };
  explicit Scans(Parts parts) : parts_(std::move(parts)), background_(parts_.make_background()) {}
  Scans(const Scans&) = delete;
  Scans& operator=(const Scans&) = delete;

  // Requests a page. `query` is an encoded query. The page shows every write at or below `through`,
  // at least. kBusy: too many pages are under way, or the server stops.
  Result<std::shared_ptr<const ScanTask>> ask(Bytes query, std::uint64_t through);
  // Call it when the log's marks or its failed flag have changed.
  void marks_changed();
  void start();
  void stop() { background_->stop(mutex_); }

 private:
  void run();
  Status make(ScanTask& page);
  Status await_applied(std::uint64_t through);
  Status refused() const;  // the error for the disk's state
  Status read(ScanTask& page) const;

  const Parts parts_;
  const std::shared_ptr<std::atomic<std::uint32_t>> pages_ =
      std::make_shared<std::atomic<std::uint32_t>>(0);
  Mutex mutex_;
  std::deque<std::shared_ptr<ScanTask>> asked_ RKV_GUARDED_BY(mutex_);
  bool awaits_mark_ RKV_GUARDED_BY(mutex_) = false;
  const std::unique_ptr<BackgroundThread> background_;
};

}  // namespace rkv::server
