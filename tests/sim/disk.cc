#include "tests/sim/disk.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rkv::sim {

void Disk::apply(Records& records, const Batch& batch) {
  for (const Change& change : batch) {
    if (change.record) {
      if (&records == &visible_ && records.contains(change.key)) {
        replaced_[change.key] = records[change.key];
      }
      records[change.key] = *change.record;
    } else {
      records.erase(change.key);
    }
  }
}

void Disk::crash(End end) {
  ++owner_;
  if (broken_) written_ = std::move(left_);
  broken_ = false;
  std::size_t survive = written_.size();
  if (end == End::kMachine) survive = scheduler_.random().below(written_.size() + 1);
  for (std::size_t i = 0; i < survive; ++i)
    apply(synced_, written_[i]);
  written_.clear();
  show_written();
  incomplete_ = false;
  ++reopened_;
  scheduler_.trace(20, survive);
}

void Disk::show_written() {
  visible_ = synced_;
  for (const Batch& batch : written_)
    apply(visible_, batch);
}

namespace {

RecordFields fields_of(const std::string& key, const Disk::Record& record) {
  return {.version = record.version,
          .expiry_ms = record.expiry_ms,
          .counter = record.counter,
          .key = as_bytes(key),
          .value = as_bytes(record.value)};
}

}  // namespace

void DiskStorage::add_put(const RecordFields& record) {
  batch_.push_back({.key = std::string(as_text(record.key)),
                    .record = Disk::Record{.version = record.version,
                                           .value = std::string(as_text(record.value)),
                                           .expiry_ms = record.expiry_ms,
                                           .counter = record.counter}});
  std::string& value = batch_.back().record->value;
  if (disk_.faults_.mixes_large && is_large(value.size())) {
    std::ranges::rotate(value, value.begin() + 1);
  }
}

void DiskStorage::add_remove(Bytes key) {
  batch_.push_back({.key = std::string(as_text(key)), .record = std::nullopt});
}

void DiskStorage::clear_batch() {
  batch_.clear();
}

// Leaves open whether the batch was written and how much of the unsynced data is left.
Status DiskStorage::broken(bool may_be_there) {
  disk_.broken_ = true;
  Scheduler& scheduler = disk_.scheduler_;
  disk_.left_ = disk_.written_;
  if (may_be_there && scheduler.chance(2)) disk_.left_.push_back(batch_);
  if (scheduler.chance(2)) {
    disk_.left_.resize(scheduler.random().below(disk_.left_.size() + 1));
  }
  return fail(Code::kIo, "the simulated disk failed");
}

// Keeps the old data; the new data may be there or not: a write may fail halfway.
Status DiskStorage::no_room() {
  if (!disk_.broken_) (void)broken(true);
  return std::unexpected(
      Error{.code = Code::kIo, .sys_errno = ENOSPC, .call = "write of the simulation"});
}

Status DiskStorage::write_batch() {
  Scheduler& scheduler = disk_.scheduler_;
  scheduler.sleep(scheduler.up_to(disk_.faults_.write));
  if (dead() || disk_.broken_) return fail(Code::kIo, "the simulated disk is broken");
  if (disk_.full_ && disk_.faults_.drops_when_full) {
    clear_batch();
    return {};
  }
  if (disk_.full_) return no_room();
  if (scheduler.chance(disk_.faults_.fail_in)) return broken(true);
  disk_.apply(disk_.visible_, batch_);
  disk_.written_.push_back(std::move(batch_));
  disk_.incomplete_ = false;
  clear_batch();
  // A crash here: the batch is on disk, and no client has the answer.
  scheduler.sleep(scheduler.up_to(disk_.faults_.write));
  return {};
}

Status DiskStorage::sync() {
  Scheduler& scheduler = disk_.scheduler_;
  scheduler.sleep(scheduler.up_to(disk_.faults_.sync));
  if (dead() || disk_.broken_) return fail(Code::kIo, "the simulated disk is broken");
  if (scheduler.chance(disk_.faults_.fail_in)) return broken(false);
  if (scheduler.chance(disk_.faults_.lies_in)) return {};
  for (const Disk::Batch& batch : disk_.written_)
    disk_.apply(disk_.synced_, batch);
  disk_.written_.clear();
  scheduler.sleep(scheduler.up_to(disk_.faults_.sync));
  return {};
}

Status DiskStorage::recover() {
  Scheduler& scheduler = disk_.scheduler_;
  scheduler.sleep(scheduler.up_to(disk_.faults_.write));
  if (dead() || scheduler.chance(disk_.faults_.recover_fails_in)) {
    return fail(Code::kIo, "the simulated disk is still broken");
  }
  const bool full = disk_.full_ || (disk_.broken_ && disk_.faults_.stays_full);
  if (full && !disk_.faults_.drops_when_full) return no_room();
  if (disk_.broken_) {
    disk_.written_ = std::move(disk_.left_);
    disk_.show_written();
    disk_.incomplete_ = true;
    ++disk_.reopened_;
  }
  disk_.broken_ = false;
  return {};
}

// ------------------------------------------------------------------------------------- reads

Status DiskStorage::begin_read() {
  Scheduler& scheduler = disk_.scheduler_;
  ++disk_.reads_;
  scheduler.sleep(scheduler.up_to(disk_.faults_.read));
  if (dead() || scheduler.chance(disk_.faults_.read_fails_in)) {
    return fail(Code::kIo, "the simulated disk could not be read");
  }
  return {};
}

Status DiskStorage::read(Bytes key, const Visitor& visit) {
  RKV_RETURN_IF_ERROR(begin_read());
  const std::string name(as_text(key));
  const bool stale = disk_.scheduler_.chance(disk_.faults_.stale_in);
  const Disk::Records& source =
      stale && disk_.replaced_.contains(name) ? disk_.replaced_ : disk_.visible_;
  const auto found = source.find(name);
  if (found == source.end()) return fail(Code::kNotFound, nullptr);
  const Disk::Record record = found->second;  // the state now; later writes do not affect it
  disk_.scheduler_.sleep(disk_.scheduler_.up_to(disk_.faults_.read));
  return visit(fields_of(name, record));
}

Status DiskStorage::read_range(const KeyRange& range,
                               const std::function<bool(const RecordFields&)>& visit) {
  RKV_RETURN_IF_ERROR(begin_read());
  if (disk_.incomplete_) return fail(Code::kIo, "the simulated disk has lost writes");
  const Disk::Records snapshot = disk_.visible_;
  const auto give = [&](const auto& entry) {
    const bool shown = range.holds(entry.first) && !disk_.scheduler_.chance(disk_.faults_.hides_in);
    return !shown || visit(fields_of(entry.first, entry.second));
  };
  if (range.reverse) {
    for (auto entry = snapshot.rbegin(); entry != snapshot.rend() && give(*entry); ++entry) {
    }
  } else {
    for (auto entry = snapshot.begin(); entry != snapshot.end() && give(*entry); ++entry) {
    }
  }
  return {};
}

// Reads one instant of the database, like an iterator of it.
Status DiskStorage::read_from(Bytes first, const RangeVisitor& visit) {
  RKV_RETURN_IF_ERROR(begin_read());
  const Disk::Records snapshot(disk_.visible_.lower_bound(std::string(as_text(first))),
                               disk_.visible_.end());
  for (const auto& [key, record] : snapshot) {
    if (dead()) return fail(Code::kIo, "the simulated server is dead");
    if (disk_.scheduler_.chance(disk_.faults_.hides_in)) continue;
    if (!visit(fields_of(key, record))) break;
  }
  return {};
}

}  // namespace rkv::sim
