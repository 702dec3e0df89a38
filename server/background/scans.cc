#include "server/background/scans.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace rkv::server {

namespace {

constexpr const char* kStopping = "the server is being stopped";

ScanQuery query_in(Bytes bytes) {
  const auto query = decode_scan_query(bytes);
  RKV_CHECK(query, "a scan that was not checked when it came");
  return *query;
}

}  // namespace

ScanTask::ScanTask(Bytes query, std::uint64_t through,
                   std::shared_ptr<std::atomic<std::uint32_t>> pages)
    : asked_(query.begin(), query.end()),
      query_(query_in(asked_)),
      pages_(std::move(pages)),
      through_(through) {
  pages_->fetch_add(1, std::memory_order_relaxed);
}

void Scans::start() {
  background_->start("rkv-scans", [this] { run(); });
}

// The limit need not be exact: workers that ask at the same time may exceed it by a few.
Result<std::shared_ptr<const ScanTask>> Scans::ask(Bytes query, std::uint64_t through) {
  if (pages_->load(std::memory_order_relaxed) >= kMaxPages) {
    return fail(Code::kBusy, "too many scans are under way: try again a little later");
  }
  auto page = std::make_shared<ScanTask>(query, through, pages_);
  {
    const MutexLock lock(mutex_);
    if (background_->stopping()) return fail(Code::kBusy, kStopping);
    asked_.push_back(page);
  }
  background_->notify();
  return page;
}

// Takes the mutex so that a thread between reading the marks and waiting does not miss the call.
void Scans::marks_changed() {
  {
    const MutexLock lock(mutex_);
    if (!awaits_mark_) return;
  }
  background_->notify();
}

void Scans::run() {
  for (;;) {
    std::shared_ptr<ScanTask> page;
    {
      const MutexLock lock(mutex_);
      while (!background_->stopping() && asked_.empty())
        background_->wait(mutex_);
      if (asked_.empty()) return;
      page = std::move(asked_.front());
      asked_.pop_front();
    }
    if (page.use_count() == 1) continue;  // the connection of its client has ended
    page->finish(make(*page));
    page.reset();
    parts_.finished();
  }
}

// Sweeps the counters in cells first. Their numbers then reach the database together with all
// writes from before the page was requested.
Status Scans::make(ScanTask& page) {
  if (const Status swept = parts_.sweep(); !swept) {
    return swept.error().code == Code::kIo ? refused() : swept;
  }
  page.through_ = std::max(page.through_, parts_.log.last_begun());
  RKV_RETURN_IF_ERROR(await_applied(page.through_));
  return read(page);
}

Status Scans::await_applied(std::uint64_t through) {
  // The scan reads this server's database. In a replicated log nothing above the replicated mark is
  // there (CLOG-6), so a page shows nothing that a fail-over takes back.
  const auto applied = [&] { return parts_.log.wal_mark() >= through; };
  if (!applied()) parts_.request_write(through);
  const MutexLock lock(mutex_);
  awaits_mark_ = true;
  while (!background_->stopping() && !parts_.log.failed() && !applied())
    background_->wait(mutex_);
  awaits_mark_ = false;
  if (background_->stopping()) return fail(Code::kIo, kStopping);
  if (applied()) return {};
  return refused();
}

Status Scans::refused() const {
  return std::unexpected(parts_.log.refusal(Refused::kScan));
}

Status Scans::read(ScanTask& page) const {
  ScanPageWriter writer(page.query());
  std::uint32_t records = 0;
  std::size_t bytes = 0;
  bool more = false;
  RKV_RETURN_IF_ERROR(parts_.read(range_of(page.query()), [&](const RecordFields& record) {
    more = true;
    if (records == kMaxRecordsLookedAt || bytes >= kMaxBytesLookedAt) return false;
    if (parts_.has_expired(record)) {
      writer.pass(record.key);
    } else if (!writer.add(record)) {
      return false;
    }
    ++records;
    bytes += record.value.size();
    more = false;
    return true;
  }));
  page.bytes_ = std::move(writer).finish(more);
  return {};
}

}  // namespace rkv::server
