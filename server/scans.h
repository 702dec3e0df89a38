// Pages of scans that clients ask for, read from the database by a thread of its own: no worker
// and no writer waits for the disk.
//
//   RKV_ASSIGN_OR_RETURN(auto page, scans.ask(query, log.last_begun()));  // a worker
//   ... later, when `finished` has been called:
//   if (page->done()) answer(page->failure(), page->bytes());
//
// The database is the one place where keys are in order. It is behind the memory by what is still
// in the commit log; so a page is begun when the applier has passed everything that had a sequence
// when the page was asked for. That takes one turn of the applier, which is asked for at once: a
// millisecond as a rule, longer when the queue is full.
//
// Invariants:
//  Q1  A page shows every PUT and DELETE at or below its `through`, and one instant of the
//      database.
//  Q2  Work for a page is bounded: kMaxScanPageBytes of answer, kMaxRecordsLookedAt records,
//      kMaxBytesLookedAt of values. What ends a page short of its range gives it a token.
//  Q3  Nothing is kept for a scan between two pages. At most kMaxPages pages are asked for or held
//      at a time; another is told to try again.
//  Q4  A page shows no key that has expired, and no key that the range does not hold.
//  Q5  Every page that ask() gave is done at some time; stop() ends those that are not begun.
//
// Thread safety: ask, marks_changed: any thread, neither blocks on the disk. start, stop: the
// owner.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "common/scan.h"
#include "rkv/result.h"
#include "server/background.h"
#include "server/persistence/commit_log.h"

namespace rkv::server {

class ScanPage {
 public:
  // A copy of what is asked for, in the request's own bytes. REQUIRES: these are a query.
  ScanPage(Bytes query, std::uint64_t through, std::shared_ptr<std::atomic<std::uint32_t>> pages);
  ~ScanPage() { pages_->fetch_sub(1, std::memory_order_relaxed); }
  ScanPage(const ScanPage&) = delete;
  ScanPage& operator=(const ScanPage&) = delete;

  const ScanQuery& query() const { return query_; }
  bool done() const { return done_.load(std::memory_order_acquire); }
  // REQUIRES: done().
  const std::optional<Error>& failure() const { return failure_; }
  Bytes bytes() const { return bytes_; }
  std::uint64_t through() const { return through_; }

 private:
  friend class Scans;
  const std::vector<std::byte> asked_;
  const ScanQuery query_;  // points into asked_
  const std::shared_ptr<std::atomic<std::uint32_t>> pages_;
  // Written before done_.
  std::uint64_t through_;
  std::optional<Error> failure_;
  std::vector<std::byte> bytes_;
  std::atomic<bool> done_{false};
};

class Scans {
 public:
  static constexpr std::uint32_t kMaxPages = 64;
  static constexpr std::uint32_t kMaxRecordsLookedAt = 65'536;
  static constexpr std::size_t kMaxBytesLookedAt = kMaxValueBytes;

  struct Parts {
    const CommitLog& log;
    // Logs the numbers of one-sided counters that changed (Store::sweep_counters).
    std::function<Status()> sweep;
    std::function<void(std::uint64_t sequence)> request_write;  // as of the applier
    // Engine::read_range.
    std::function<Status(const KeyRange&, const std::function<bool(const RecordFields&)>&)> read;
    std::function<std::uint64_t()> unix_ms;  // by which keys expire
    std::function<void()> finished;          // a page is done; must not block
    MakeBackground make_background = background_threads;
  };
  explicit Scans(Parts parts) : parts_(std::move(parts)), background_(parts_.make_background()) {}
  ~Scans();  // stopped
  Scans(const Scans&) = delete;
  Scans& operator=(const Scans&) = delete;

  // `query`: the bytes of one. kBusy: too many pages are under way.
  Result<std::shared_ptr<const ScanPage>> ask(Bytes query, std::uint64_t through);
  // The log's marks, or its failed flag, have changed.
  void marks_changed();
  void start();
  void stop();

 private:
  void run();
  Status make(ScanPage& page);
  Status await_applied(std::uint64_t through);
  Status refused() const;  // by the state of the disk
  Status read(ScanPage& page) const;

  const Parts parts_;
  const std::shared_ptr<std::atomic<std::uint32_t>> pages_ =
      std::make_shared<std::atomic<std::uint32_t>>(0);
  const std::unique_ptr<Background> background_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<ScanPage>> asked_;  // guarded by mutex_, as what follows
  bool awaits_mark_ = false;
  bool stopping_ = false;
};

}  // namespace rkv::server
