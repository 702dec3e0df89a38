#include "server/persistence/applier.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"
#include "common/thread.h"

namespace rkv::server {

Applier::Applier(CommitLog& log, Storage& storage, const Clock& clock,
                 const ApplierOptions& options, std::function<void()> changed)
    : log_(log),
      storage_(storage),
      clock_(clock),
      options_(options),
      changed_(std::move(changed)),
      batch_(random_from_kernel()),
      retry_ms_(options.retry_ms_min) {}

Applier::~Applier() {
  RKV_CHECK(!thread_.joinable(), "an applier is destroyed while it runs");
}

void Applier::start() {
  thread_ = std::thread([this] { run(); });
}

namespace {
void raise_to(std::atomic<std::uint64_t>& highest, std::uint64_t sequence) {
  std::uint64_t before = highest.load(std::memory_order_relaxed);
  while (before < sequence &&
         !highest.compare_exchange_weak(before, sequence, std::memory_order_release,
                                        std::memory_order_relaxed)) {
  }
}
}  // namespace

void Applier::request_sync(std::uint64_t sequence) {
  raise_to(sync_requested_, sequence);
  if (log_.sync_mark() < sequence) log_.interrupt();
}

void Applier::request_write(std::uint64_t sequence) {
  raise_to(write_requested_, sequence);
  if (log_.wal_mark() < sequence) log_.interrupt();
}

Status Applier::stop() {
  if (thread_.joinable()) {
    stopping_.store(true, std::memory_order_release);
    log_.interrupt();
    thread_.join();
  } else {
    drain();
  }
  // Writes that a group's other replicas do not have yet were not answered, and the next primary
  // decides about them. So they do not count as lost here.
  if (log_.sync_mark() >= log_.last_for_disk()) return {};
  log_error(EventName("writes_lost"),
            "{} bytes of accepted writes could not be saved: the disk has failed",
            (log_.last_for_disk() - log_.sync_mark()) * 8);
  return rkv::fail(Code::kIo, "accepted writes could not be saved: the disk has failed");
}

void Applier::run() {
  name_thread("rkv-disk");
  while (!stopping_.load(std::memory_order_acquire)) {
    if (!step()) sleep();
  }
  drain();
}

void Applier::drain() {
  const Deadline deadline = Deadline::after_ms(clock_, options_.stop_timeout_ms);
  request_sync(log_.last_for_disk());
  while (log_.sync_mark() < log_.last_for_disk() && !deadline.passed()) {
    if (!step()) sleep();
  }
}

// Sleeps between turns. After a full batch there is no sleep; a request or an entry ends it soon.
void Applier::sleep() {
  if (failed_) {
    const Nanos left = std::max<Nanos>(retry_at_ - clock_.now(), 0);
    log_.nap(static_cast<int>(left / 1000) + 1);
    return;
  }
  if (wanted()) return log_.wait_for_entries(1);
  if (unsynced_since_ == 0) return log_.wait_for_entries(1000);
  log_.nap(options_.linger_us);
  const Nanos left = unsynced_since_ + options_.sync_interval_ms * kNanosPerMs - clock_.now();
  log_.wait_for_entries(static_cast<int>(std::clamp<Nanos>(left / kNanosPerMs + 1, 0, 1000)));
}

// A request waits for an entry that is not finished yet.
bool Applier::wanted() const {
  return sync_requested_.load(std::memory_order_acquire) > log_.sync_mark() ||
         write_requested_.load(std::memory_order_acquire) > log_.wal_mark();
}

bool Applier::step() {
  if (failed_) {
    if (clock_.now() < retry_at_) return false;
    retry();
    if (failed_) return false;
  }
  const bool full = collect(0);
  if (!write()) return false;
  if (sync_target_ <= log_.sync_mark()) {
    sync_target_ = sync_requested_.load(std::memory_order_acquire);
  }
  if (sync_due(full)) sync();
  return full;
}

// Takes finished entries out of the log: up to the batch limits or, if `through` is set, everything
// at or below `through` whatever its size. True when a limit ended it.
bool Applier::take(std::uint64_t through) {
  const auto at_limit = [&] {
    if (through != 0) return log_.consumed() >= through;
    return batch_.bytes() >= options_.batch_bytes || batch_.added() >= options_.batch_records;
  };
  CommitLog::Entry entry;
  Version newest;
  while (!at_limit() || (through == 0 && !storage_.may_end(newest))) {
    if (!log_.consume(&entry)) return false;
    batch_.add(entry);
    newest = entry.record.version;
  }
  return true;
}

// Takes entries and adds them to the storage's batch. True when a limit ended the batch.
bool Applier::collect(std::uint64_t through) {
  const bool limited = take(through);
  // Entries taken again after a failure were counted before.
  if (through == 0) taken_.fetch_add(batch_.added(), std::memory_order_relaxed);
  Version newest;
  batch_.for_each([&](const CommitLog::Entry& entry) {
    newest = std::max(newest, entry.record.version);
    if (entry.kind == CommitLog::Kind::kPut) {
      storage_.add_put(entry.record);
    } else {
      storage_.add_remove(entry.record.key);
    }
  });
  storage_.set_through(newest);
  coalesced_.fetch_add(batch_.void_ones(), std::memory_order_relaxed);
  batch_.clear();
  return limited;
}

// Calls the disk and publishes since when, so that others can see a hanging disk, which does not
// even answer with an error. (Recovery is not timed: the disk's state is not kOk by then, and a
// replay of the log may take long.)
template <class Call>
Status Applier::ask_disk(Call call) {
  asked_since_.store(clock_.now(), std::memory_order_relaxed);
  Status answer = call();
  asked_since_.store(0, std::memory_order_relaxed);
  return answer;
}

bool Applier::write() {
  if (log_.consumed() == log_.wal_mark()) return true;
  if (const Status written = ask_disk([&] { return storage_.write_batch(); }); !written) {
    fail("writing to the database", written.error());
    return false;
  }
  batches_.fetch_add(1, std::memory_order_relaxed);
  log_.set_wal_mark(log_.consumed());
  if (unsynced_since_ == 0) unsynced_since_ = clock_.now();
  changed_();
  return true;
}

// A request is due as soon as its entries are written. Later requests share the next sync. So later
// requests never delay an earlier one, and one sync serves many.
// `more`: entries are waiting to be taken, which the sync could cover too.
bool Applier::sync_due(bool more) const {
  const std::uint64_t written = log_.wal_mark();
  const std::uint64_t synced = log_.sync_mark();
  if (written == synced) return false;
  if (sync_target_ > synced && written >= sync_target_) return true;
  // Unsynced entries and their attachments occupy the log's space (APPL-2). A sync frees it when
  // they fill a quarter of the log, or at once when a write was refused for lack of space.
  if (log_.bytes_consumed() >= log_.capacity_bytes() / 4) return true;
  if (!more && log_.refused() != refused_) return true;
  return clock_.now() - unsynced_since_ >= options_.sync_interval_ms * kNanosPerMs;
}

void Applier::sync() {
  const std::uint64_t covered = log_.wal_mark();
  refused_ = log_.refused();
  if (const Status synced = ask_disk([&] { return storage_.sync(); }); !synced) {
    fail("syncing the database", synced.error());
    return;
  }
  syncs_.fetch_add(1, std::memory_order_relaxed);
  log_.set_sync_mark(covered);
  (void)all_saved();
  changed_();
}

// Returns false if everything is synced, but the log's space could not be given back.
bool Applier::all_saved() {
  // APPL-7: after advance() frees what is consumed, a new entry may end up to this sequence.
  const std::uint64_t last = log_.consumed() + log_.capacity_bytes() / 8;
  if (const Status claimed = ask_disk([&] { return storage_.claim_through(last); }); !claimed) {
    fail("claiming version numbers", claimed.error());
    return false;
  }
  // Release: a thread that reads this count reads a taken_ at least as large.
  saved_.store(taken_.load(std::memory_order_relaxed), std::memory_order_release);
  unsynced_since_ = 0;
  log_.advance();
  return true;
}

void Applier::fail(const char* what, const Error& error) {
  retry_ms_ = failed_ ? std::min(2 * retry_ms_, options_.retry_ms_max) : options_.retry_ms_min;
  retry_at_ = clock_.now() + retry_ms_ * kNanosPerMs;
  if (!failed_) {
    failed_ = true;
    failures_.fetch_add(1, std::memory_order_relaxed);
    failed_since_.store(clock_.now(), std::memory_order_relaxed);
  }
  const DiskState before = log_.disk_state();
  const DiskState state = disk_state_of(error);
  if (state == before || before == DiskState::kDamaged) return;
  log_.set_disk_state(state);
  log_error(EventName("disk_failed"),
            "{} failed, the disk is {} ({}): writes are refused until the disk works, reads go on",
            what, field("disk_state", to_string(state)), field("why", to_string(error)));
  changed_();
}

void Applier::retry() {
  const bool damaged = log_.disk_state() == DiskState::kDamaged;
  if (damage_is_certain_ && log_.sync_mark() >= log_.last_for_disk()) {
    retry_at_ = clock_.now() + options_.retry_ms_max * kNanosPerMs;
    return;
  }
  if (!write_again()) return;
  if (!damaged || is_well()) {
    recovered();
  } else {
    save_the_rest();
  }
  changed_();
}

// Saves the writes that were accepted before the damage was known and have arrived since.
void Applier::save_the_rest() {
  while (collect(0)) {
    if (!write()) return;
  }
  if (write() && log_.wal_mark() > log_.sync_mark()) sync();
}

// Writes everything since the last sync again, in one batch (APPL-2): parts of it may be on disk
// already, and a crash between two batches would leave newer parts beside older ones.
bool Applier::write_again() {
  const auto failed = [&](const Status& status) {
    fail("retrying", status.error());
    return false;
  };
  storage_.clear_batch();
  if (const Status well = storage_.recover(); !well) return failed(well);
  const std::uint64_t through = log_.consumed();
  log_.rewind();
  (void)collect(through);
  RKV_CHECK(log_.consumed() == through, "entries consumed before cannot be consumed again");
  if (const Status written = ask_disk([&] { return storage_.write_batch(); }); !written)
    return failed(written);
  batches_.fetch_add(1, std::memory_order_relaxed);
  log_.set_wal_mark(through);
  if (const Status synced = ask_disk([&] { return storage_.sync(); }); !synced)
    return failed(synced);
  syncs_.fetch_add(1, std::memory_order_relaxed);
  log_.set_sync_mark(through);
  return all_saved();
}

// Whether a storage that reported damage is sound after all. Called once everything is saved
// (APPL-6). A failing disk may return errors that look like damage.
bool Applier::is_well() {
  if (damage_is_certain_) return false;
  const Status whole = storage_.check_whole();
  if (whole) return true;
  fail("reading the database back", whole.error());
  if (whole.error().code != Code::kCorrupt) return false;
  damage_is_certain_ = true;
  log_error(
      EventName("database_damaged"),
      "the database is damaged: all accepted writes are saved, new writes stay refused; records in "
      "memory or in undamaged tables can be read until the server stops: save those that are "
      "needed by kvclient dump --keys, then run kvserver --verify and restore a backup");
  return false;
}

void Applier::recovered() {
  failed_ = false;
  const Nanos since = failed_since_.exchange(0, std::memory_order_relaxed);
  log_.set_disk_state(DiskState::kOk);
  log_warn(EventName("disk_well"),
           "the disk is ok again after {} ms: no accepted write was lost, writes are accepted",
           field("ms", (clock_.now() - since) / kNanosPerMs));
}

}  // namespace rkv::server
