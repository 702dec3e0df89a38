#include "server/background/disk_fetcher.h"

#include <utility>

namespace rkv::server {

namespace {

// Limit for keys that change all the time and for memory that stays full.
constexpr int kTries = 64;
// Marks and free memory are announced without a lock, because their callers must not wait. So a
// thread can miss an announcement; its wait then ends after this time.
constexpr Nanos kNap = 2 * kNanosPerMs;
// Number of owners of a load that no request waits for: the loading thread and pending_.
constexpr long kOurs = 2;
constexpr const char* kNoMoreLoads = "the server is stopping";

// True if waiting for eviction will not help, or has not helped by the last try.
bool is_no_room(Code code, bool last) {
  return code == Code::kOutOfMemory || code == Code::kTooLarge || (code == Code::kBusy && last);
}

}  // namespace

void DiskFetcher::start() {
  for (std::uint32_t i = 0; i < parts_.threads; ++i)
    background_->start("rkv-disk-reads", [this] { run(); });
}

void DiskFetcher::stop() {
  background_->stop(mutex_);
  const MutexLock lock(mutex_);
  for (const auto& load : queue_)
    load->finish(fail(Code::kBusy, kNoMoreLoads));
  queue_.clear();
  pending_.clear();
}

std::shared_ptr<const Load> DiskFetcher::ask(Bytes key) {
  const std::string text(as_text(key));
  std::shared_ptr<Load> load;
  {
    const MutexLock lock(mutex_);
    if (background_->stopping()) {  // (FETCH-3)
      load = std::make_shared<Load>(text);
      load->finish(fail(Code::kBusy, kNoMoreLoads));
      return load;
    }
    auto& place = pending_[text];
    if (place != nullptr) return place;  // (FETCH-2)
    load = place = std::make_shared<Load>(text);
    queue_.push_back(load);
  }
  background_->notify();  // wakes all: other threads may wait for marks or memory
  return load;
}

void DiskFetcher::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!background_->stopping() && queue_.empty())
      background_->wait(mutex_);
    if (background_->stopping()) return;
    const std::shared_ptr<Load> load = std::move(queue_.front());
    queue_.pop_front();
    if (load.use_count() == kOurs) {  // the connections of its clients have ended
      pending_.erase(std::string(as_text(load->key())));
      continue;
    }
    lock.unlock();
    std::optional<Status> over;
    for (int tries = 1; tries <= kTries && !over; ++tries)
      over = try_once(*load, tries == kTries);
    if (!over) over = fail(Code::kBusy, "the key changes too often: try again");
    lock.lock();
    pending_.erase(std::string(as_text(load->key())));  // first: later callers need a later read
    load->finish(*over);
    lock.unlock();
    parts_.finished();
    lock.lock();
  }
}

void Load::see(const RecordFields& record, std::uint64_t as_of, const Error& no_room) {
  record_ = {.version = record.version,
             .expiry_ms = record.expiry_ms,
             .counter = record.counter,
             .large = is_large(record.value.size()),
             .no_room = no_room};
  if (!record_.large) record_.value.assign(record.value.begin(), record.value.end());
  look_ = SeenOnDisk{.as_of = as_of, .record = &record_};
}

std::optional<Status> DiskFetcher::try_once(Load& load, bool last) {
  if (!await_written(parts_.store.disk().removal_sequence(load.key()))) {
    return fail(Code::kIo, "the server's disk has failed, and the key's last change is not on it");
  }
  const DiskReads::AsOf as_of = parts_.disk.begin();
  const Status read = parts_.disk.read(load.key(), [&](const RecordFields& record) -> Status {
    if (!parts_.disk.still_holds(as_of)) return fail(Code::kStale, nullptr);
    const Status taken = parts_.store.loader().load(record, as_of.sequence, true);
    if (taken || !is_no_room(taken.error().code, last)) return taken;
    load.see(record, as_of.sequence, taken.error());
    return {};
  });
  if (read) return std::optional<Status>(std::in_place);
  switch (read.error().code) {
    case Code::kNotFound:  // also if the record has expired: the next look does not find it either
      if (!parts_.disk.still_holds(as_of)) return std::nullopt;
      load.see_nothing(as_of.sequence);
      return std::optional<Status>(std::in_place);
    case Code::kStale:
      return std::nullopt;
    case Code::kBusy:
      await_room();
      return std::nullopt;
    default:
      return read;
  }
}

// Returns false if the disk has failed or the server stops, and `sequence` is not written.
bool DiskFetcher::await_written(std::uint64_t sequence) {
  if (sequence <= parts_.disk.written()) return true;
  parts_.request_write(sequence);
  const MutexLock lock(mutex_);
  while (!background_->stopping() && !parts_.disk.log.failed() && sequence > parts_.disk.written())
    background_->wait(mutex_, kNap);
  return sequence <= parts_.disk.written();
}

void DiskFetcher::await_room() {
  const MutexLock lock(mutex_);
  if (!background_->stopping()) background_->wait(mutex_, kNap);
}

}  // namespace rkv::server
