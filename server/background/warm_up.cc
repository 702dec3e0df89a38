#include "server/background/warm_up.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "server/background/progress.h"

namespace rkv::server {

namespace {

// Each record has about 12 cache lines: together about as many misses as can be in flight.
constexpr std::size_t kPrefetched = 16;
// Shortest batch. Keys may change so often that most of a longer batch would be read again.
constexpr std::size_t kLeastRecords = 32;
constexpr Nanos kShortPause = kNanosPerMs;
constexpr Nanos kWhileItCannotBe = 1000 * kNanosPerMs;  // the disk fails or the index is full

}  // namespace

void WarmUp::start() {
  reader_.start();
  background_->start("rkv-warm-up", [this] { run(); });
}

void WarmUp::stop() {
  background_->stop(mutex_);
  reader_.stop();  // already done unless only one of the two threads could be started
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
  reader_.stop();
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

// Takes the batch of records from next_ on. Meanwhile the next batch is read.
WarmUp::End WarmUp::batch() {
  if (wait_for_ > parts_.disk.written()) {
    parts_.request_write(wait_for_);
    wait(kShortPause);
    return End::kMore;
  }
  if (!reader_.asked()) {
    const DiskReads::AsOf as_of = parts_.disk.begin();
    parts_.store.disk().set_progress(as_bytes(next_), as_of.sequence);  // must precede the read
    reader_.ask(next_, as_of, batch_records_);
  }
  const ReadAhead::Batch& read = reader_.await();
  parts_.store.disk().set_progress(as_bytes(next_), read.as_of().sequence);
  if (read.read() && !read.is_last() && parts_.bytes_per_second == 0) read_ahead(read);
  Status done = take_all(read);
  if (done) done = read.read();
  // At the time of the read there was no record after the last one. Later records come through
  // memory.
  if (done && read.is_last()) return End::kWhole;
  if (done) batch_records_ = std::min(2 * batch_records_, ReadAhead::kMostRecords);
  const End end = done ? End::kMore : after(done.error());
  if (done && reader_.asked()) return end;
  if (reader_.asked()) reader_.await();  // that batch does not begin at next_
  parts_.store.disk().set_progress(as_bytes(next_), kAboveAllSequences);
  if (pause_ != 0) wait(std::exchange(pause_, 0));
  return end;
}

// Lets the next batch be read while `read` is taken. Until then the progress has the sequence as of
// which `read` was read. So evictions rely on that sequence for keys of the next batch, too
// (WARM-3).
void WarmUp::read_ahead(const ReadAhead::Batch& read) {
  const DiskReads::AsOf as_of = parts_.disk.begin();
  if (as_of.sequence < read.as_of().sequence) return;
  reader_.ask(read.next(), as_of, batch_records_);
}

// Decides how to continue after a record could not be read or taken.
WarmUp::End WarmUp::after(const Error& error) {
  if (error.code == Code::kStale) {  // the key, or the disk's state, has changed: read again
    batch_records_ = std::max(batch_records_ / 2, kLeastRecords);
    return End::kMore;
  }
  if (error.code == Code::kBusy) {
    pause_ = kShortPause;
    return End::kMore;
  }
  if (error.code == Code::kIo || error.code == Code::kOutOfMemory) {
    if (!std::exchange(logged_that_it_waits_, true)) {
      log_warn(EventName("loading_waits"), "loading waits after {} records: {}", records(),
               to_string(error));
    }
    pause_ = kWhileItCannotBe;
    return End::kMore;
  }
  why_ = to_string(error);
  return End::kFailed;
}

// Takes records up to the first one that cannot be taken. The rest is read again, from next_ on.
// Records lie all over the store's memory, so the cache misses of several records are overlapped.
Status WarmUp::take_all(const ReadAhead::Batch& read) {
  const std::span<const RecordFields> records = read.records();
  const Loader& loader = parts_.store.loader();
  for (std::size_t i = 0; i < std::min(kPrefetched, records.size()); ++i)
    loader.prefetch(records[i].key);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i + kPrefetched < records.size()) loader.prefetch(records[i + kPrefetched].key);
    RKV_RETURN_IF_ERROR(take_next(records[i], read.as_of()));
  }
  return {};
}

// REQUIRES: `record` has the lowest key of the records that have not been taken.
Status WarmUp::take_next(const RecordFields& record, const DiskReads::AsOf& as_of) {
  parts_.store.disk().set_progress(record.key, as_of.sequence);
  RKV_RETURN_IF_ERROR(take(record, as_of));
  next_.assign(as_text(record.key));
  next_.push_back('\0');  // the first key after the record's
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

// If memory is full, only spare space is used: warming up evicts nothing, as no client asked for
// these records.
bool WarmUp::has_room() {
  if (!parts_.store.evictor().is_needed()) return true;
  constexpr std::uint64_t kEvery = 64;
  if (room_checked_++ % kEvery == 0) has_room_ = parts_.store.evictor().has_spare_room();
  return has_room_;
}

}  // namespace rkv::server
