#include "server/group/replica/backup_disk.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/check.h"
#include "server/group/replica/entry_block.h"

namespace rkv::server {

BackupDisk::BackupDisk(ReplicaStorage& storage, const Clock& clock,
                       std::unique_ptr<CommitLog> queue, const LogPosition& at,
                       const ApplierOptions& options, std::function<void()> changed)
    : storage_(storage),
      queue_(std::move(queue)),
      reader_(*queue_),
      applier_(*queue_, storage, clock, options, std::move(changed)),
      outcomes_(std::make_shared<LoggedOutcomes>(Version{at.version})),
      fed_(at),
      through_{.wal = at.version, .sync = at.version} {
  applier_.start();
}

BackupDisk::~BackupDisk() {
  (void)stop();
}

void BackupDisk::feed(const ReplicaLog& log, std::uint64_t mark) {
  if (!runs_) return;
  while (fed_ != log.last()) {
    const EntryBlock* const block = log.after(fed_);
    if (block == nullptr || block->last.version > mark) break;
    storage_.note_block(block->last);
    if (!feed_block(*block)) break;
    for (CommitLog::Entry entry; reader_.next(&entry);) {
    }
    queue_->set_replicated_mark(reader_.position());
    fed_ = block->last;
    fed_bytes_ = 0;
    ends_.push_back({.sequence = queue_->last_begun(), .version = fed_.version});
  }
  request();
}

// Returns false if the queue is full, or the disk has failed.
bool BackupDisk::feed_block(const EntryBlock& block) {
  while (fed_bytes_ != block.bytes->size()) {
    const auto entry = first_entry(Bytes(*block.bytes).subspan(fed_bytes_));
    RKV_CHECK(entry.has_value(), "a block was checked when it was received");
    const RecordFields& record = entry->record;
    const auto room = queue_->try_reserve(record.key.size(), record.value.size());
    if (!room) return false;
    CommitLog::Attachment attachment;
    if (record.value.size() > kMaxInlineBytes) {
      attachment = std::make_unique_for_overwrite<std::byte[]>(record.value.size());
      std::memcpy(attachment.get(), record.value.data(), record.value.size());
    }
    queue_->finish(queue_->begin(*room), entry->kind, record, std::move(attachment));
    outcomes_->note(*entry);
    fed_bytes_ += entry_bytes(*entry);
  }
  return true;
}

void BackupDisk::want(const Wanted& wanted) {
  wanted_.wal = std::max(wanted_.wal, wanted.wal);
  wanted_.sync = std::max(wanted_.sync, wanted.sync);
  request();
}

// Asks once for all wanted versions that were fed. Versions that are not fed yet are asked for
// later.
void BackupDisk::request() {
  if (!runs_ || ends_.empty()) return;
  const auto is_new = [this](std::uint64_t wanted, std::uint64_t& requested, std::uint64_t has) {
    if (wanted <= requested || wanted <= has) return false;
    requested = std::min(wanted, fed_.version);
    return true;
  };
  if (is_new(wanted_.sync, requested_.sync, through_.sync))
    applier_.request_sync(ends_.back().sequence);
  if (is_new(wanted_.wal, requested_.wal, through_.wal))
    applier_.request_write(ends_.back().sequence);
}

BackupDisk::Through BackupDisk::through() {
  const std::uint64_t sync = queue_->sync_mark();  // first: it never passes the other
  const std::uint64_t wal = queue_->wal_mark();
  const auto behind = std::ranges::upper_bound(ends_, wal, {}, &End::sequence);
  if (behind != ends_.begin()) through_.wal = std::prev(behind)->version;
  for (; !ends_.empty() && ends_.front().sequence <= sync; ends_.pop_front())
    through_.sync = ends_.front().version;
  return through_;
}

Status BackupDisk::stop() {
  if (!std::exchange(runs_, false)) return {};
  return applier_.stop();
}

}  // namespace rkv::server
