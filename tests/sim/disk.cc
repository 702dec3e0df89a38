#include "tests/sim/disk.h"

#include <utility>

namespace rkv::sim {

void Disk::apply(Records& records, const Batch& batch) {
  for (const Change& change : batch) {
    if (change.record) {
      records[change.key] = *change.record;
    } else {
      records.erase(change.key);
    }
  }
}

void Disk::crash(End end) {
  ++owner_;
  broken_ = false;
  std::size_t survive = written_.size();
  if (end == End::kMachine) survive = scheduler_.random().below(written_.size() + 1);
  for (std::size_t i = 0; i < survive; ++i)
    apply(synced_, written_[i]);
  written_.clear();
  scheduler_.trace(20, survive);
}

void DiskStorage::add_put(const RecordFields& record) {
  batch_.push_back({.key = std::string(as_text(record.key)),
                    .record = Disk::Record{.version = record.version,
                                           .value = std::string(as_text(record.value))}});
}

void DiskStorage::add_remove(Bytes key) {
  batch_.push_back({.key = std::string(as_text(key)), .record = std::nullopt});
}

void DiskStorage::clear_batch() {
  batch_.clear();
}

// Whether the batch got there is left open, as is how much of what was not synced is left.
Status DiskStorage::broken(bool may_be_there) {
  disk_.broken_ = true;
  Scheduler& scheduler = disk_.scheduler_;
  if (may_be_there && scheduler.chance(2)) disk_.written_.push_back(batch_);
  if (scheduler.chance(2)) {
    disk_.written_.resize(scheduler.random().below(disk_.written_.size() + 1));
  }
  return fail(Code::kIo, "the simulated disk failed");
}

Status DiskStorage::write_batch() {
  Scheduler& scheduler = disk_.scheduler_;
  scheduler.sleep(scheduler.up_to(disk_.faults_.write));
  if (dead() || disk_.broken_) return fail(Code::kIo, "the simulated disk is broken");
  if (scheduler.chance(disk_.faults_.fail_in)) return broken(true);
  disk_.written_.push_back(std::move(batch_));
  clear_batch();
  // A crash here: the batch is there, and nobody was told.
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
    Disk::apply(disk_.synced_, batch);
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
  disk_.broken_ = false;
  return {};
}

}  // namespace rkv::sim
