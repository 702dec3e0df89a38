#include "server/background/warm_up.h"

#include <utility>

#include "common/log.h"
#include "server/background/progress.h"

namespace rkv::server {

namespace {

// Bounds a batch: during one the database cannot be reopened and old files cannot be removed.
constexpr std::uint64_t kBatchRecords = 1024;
constexpr std::uint64_t kBatchBytes = std::uint64_t{4} << 20;
// Each record has about 12 cache lines: together about as many misses as can be in flight.
constexpr std::size_t kAheadRecords = 16;
constexpr std::size_t kAheadBytes = std::size_t{64} << 10;
constexpr Nanos kShortPause = kNanosPerMs;
constexpr Nanos kWhileItCannotBe = 1000 * kNanosPerMs;  // the disk fails or the index is full

}  // namespace

void WarmUp::start() {
  background_->start("rkv-warm-up", [this] { run(); });
}

void WarmUp::wait(Nanos time) {
  const Nanos until = parts_.clock.now() + time;
  const MutexLock lock(mutex_);
  while (!background_->stopping()) {
    const Nanos left = until - parts_.clock.now();
    if (left <= 0) return;
    background_->wait(mutex_, left);
  }
}

void WarmUp::run() {
  const Nanos started = parts_.clock.now();
  Progress progress(parts_.clock, "loading", parts_.estimated_records);
  End end = End::kMore;
  while (end == End::kMore && !background_->stopping()) {
    end = batch();
    progress.advance(records());
    if (parts_.bytes_per_second == 0) continue;
    const double due = static_cast<double>(bytes_) / static_cast<double>(parts_.bytes_per_second);
    const Nanos ahead = static_cast<Nanos>(due * 1e9) - (parts_.clock.now() - started);
    if (ahead > 0) wait(ahead);
  }
  progress.finish(records());
  if (end == End::kFailed) {
    log_warn(EventName("loading_stopped"),
             "loading has stopped after {} records: {}: keys that are not in memory are looked up "
             "on disk, by requests, also those that do not exist",
             records(), why_);
  }
  if (end != End::kWhole) return;
  parts_.store.disk().end_loading();
  log_info(EventName("loaded"), "loaded: {} records in {} ms, {} of them stay on disk",
           field("records", records()), field("ms", (parts_.clock.now() - started) / kNanosPerMs),
           field("kept_on_disk", kept_on_disk_));
}

// Takes records from next_ on, up to the limits of a batch.
WarmUp::End WarmUp::batch() {
  if (wait_for_ > parts_.disk.written()) {
    parts_.request_write(wait_for_);
    wait(kShortPause);
    return End::kMore;
  }
  const DiskReads::AsOf as_of = parts_.disk.begin();
  parts_.store.disk().set_progress(as_bytes(next_), as_of.sequence);  // must precede the read
  const End end = read_batch(as_of);
  if (end == End::kWhole) return end;
  parts_.store.disk().set_progress(as_bytes(next_), kAboveAllSequences);
  if (pause_ != 0) wait(std::exchange(pause_, 0));
  return end;
}

WarmUp::End WarmUp::read_batch(const DiskReads::AsOf& as_of) {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  ahead_.clear();
  bool full = false;
  Status taken;
  const auto visit = [&](const RecordFields& record) {
    full = count == kBatchRecords || bytes >= kBatchBytes;
    if (full) return false;
    count += 1;
    bytes += record.key.size() + record.value.size();
    parts_.store.loader().prefetch(record.key);
    if (ahead_.add(record)) return true;
    taken = take_ahead(as_of);
    if (taken && !ahead_.add(record)) taken = take_next(record, as_of);
    return taken.has_value();
  };
  const Status read = parts_.disk.read_from(as_bytes(next_), visit);
  if (!read) return after(read.error());
  if (taken) taken = take_ahead(as_of);
  if (!taken) return after(taken.error());
  // If the batch is not full, there was no record after the last one at as_of. Later records come
  // through memory.
  return !full && parts_.disk.still_holds(as_of) ? End::kWhole : End::kMore;
}

// Decides how loading goes on after a record could not be read or taken.
WarmUp::End WarmUp::after(const Error& error) {
  if (error.code == Code::kStale) return End::kMore;  // the disk's state has changed: read again
  if (error.code == Code::kBusy) {
    pause_ = kShortPause;
    return End::kMore;
  }
  if (error.code == Code::kIo || error.code == Code::kOutOfMemory) {
    if (!std::exchange(told_, true)) {
      log_warn(EventName("loading_waits"), "loading waits after {} records: {}", records(),
               to_string(error));
    }
    pause_ = kWhileItCannotBe;
    return End::kMore;
  }
  why_ = to_string(error);
  return End::kFailed;
}

bool WarmUp::Ahead::add(const RecordFields& record) {
  const std::size_t used = bytes_.size();
  const std::size_t length = record.key.size() + record.value.size();
  if (records_.size() == kAheadRecords || used + length > kAheadBytes) return false;
  bytes_.reserve(kAheadBytes);  // never reallocates, so the spans stay valid
  bytes_.insert(bytes_.end(), record.key.begin(), record.key.end());
  bytes_.insert(bytes_.end(), record.value.begin(), record.value.end());
  RecordFields& copy = records_.emplace_back(record);
  const Bytes all = Bytes(bytes_).subspan(used);
  copy.key = all.first(record.key.size());
  copy.value = all.subspan(record.key.size());
  return true;
}

void WarmUp::Ahead::clear() {
  records_.clear();
  bytes_.clear();
}

// Stops at the first record that cannot be taken. The rest is read again, from next_ on.
Status WarmUp::take_ahead(const DiskReads::AsOf& as_of) {
  Status taken;
  for (const RecordFields& record : ahead_.records()) {
    taken = take_next(record, as_of);
    if (!taken) break;
  }
  ahead_.clear();
  return taken;
}

// `record` must have the lowest key of those that have not been taken.
Status WarmUp::take_next(const RecordFields& record, const DiskReads::AsOf& as_of) {
  if (!parts_.disk.still_holds(as_of)) return fail(Code::kStale, nullptr);
  parts_.store.disk().set_progress(record.key, as_of.sequence);
  RKV_RETURN_IF_ERROR(take(record, as_of));
  next_.assign(as_text(record.key));
  next_.push_back('\0');  // the first key after it
  records_.fetch_add(1, std::memory_order_relaxed);
  bytes_ += record.key.size() + record.value.size();
  return {};
}

// kBusy, kStale: try again later.
Status WarmUp::take(const RecordFields& record, const DiskReads::AsOf& as_of) {
  // In full memory a large record would evict many others.
  const bool full = parts_.store.evictor().is_needed();
  bool to_memory = has_room() && !(full && is_large(record.value.size()));
  Status taken;
  if (to_memory) {
    taken = parts_.store.loader().load(record, as_of.sequence);
    const Code code = taken ? Code{} : taken.error().code;
    const bool no_room = code == Code::kBusy || code == Code::kOutOfMemory;
    to_memory = code != Code::kTooLarge && !(full && no_room);
  }
  if (!to_memory) taken = parts_.store.loader().load_on_disk(record, as_of.sequence);
  if (taken) {
    kept_on_disk_ += to_memory ? 0 : 1;
    return {};
  }
  if (taken.error().code == Code::kNotFound) return {};  // expired
  if (taken.error().code == Code::kStale)
    wait_for_ = parts_.store.disk().removal_sequence(record.key);
  return taken;
}

// In full memory only spare space is used: warming up evicts nothing, as no client asked for it.
bool WarmUp::has_room() {
  if (!parts_.store.evictor().is_needed()) return true;
  constexpr std::uint64_t kEvery = 64;
  if (room_checked_++ % kEvery == 0) has_room_ = parts_.store.evictor().has_spare_room();
  return has_room_;
}

}  // namespace rkv::server
