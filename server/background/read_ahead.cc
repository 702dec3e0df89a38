#include "server/background/read_ahead.h"

#include <new>

#include "common/check.h"

namespace rkv::server {

namespace {
// Bounds a batch, as kMostRecords does: during a read the database cannot be reopened and old files
// cannot be removed.
constexpr std::size_t kBatchBytes = std::size_t{4} << 20;
}  // namespace

void ReadAhead::Batch::read_from(const DiskReads& disk) {
  records_.clear();
  bytes_.clear();
  if (bytes_.capacity() > 2 * kBatchBytes) bytes_.shrink_to_fit();  // a large value was in it
  bool full = false;
  try {
    read_ = disk.read_from(as_bytes(first_), [&](const RecordFields& record) {
      full = records_.size() == most_ || bytes_.size() >= kBatchBytes;
      if (!full) add(record);
      return !full;
    });
  } catch (const std::bad_alloc&) {
    records_.clear();
    read_ = fail(Code::kOutOfMemory, "the server has no memory for records that it loads");
  }
  last_ = !full;
  if (!disk.still_holds(as_of_)) {
    records_.clear();
    read_ = fail(Code::kStale, nullptr);
  }
  // The bytes stay where they are from here on.
  const Bytes bytes(bytes_);
  std::size_t used = 0;
  for (RecordFields& record : records_) {
    record.key = bytes.subspan(used, record.key.size());
    record.value = bytes.subspan(used + record.key.size(), record.value.size());
    used += record.key.size() + record.value.size();
  }
  next_ = first_;
  if (records_.empty()) return;
  next_.assign(as_text(records_.back().key));
  next_.push_back('\0');
}

void ReadAhead::Batch::add(const RecordFields& record) {
  records_.push_back(record);
  bytes_.insert(bytes_.end(), record.key.begin(), record.key.end());
  bytes_.insert(bytes_.end(), record.value.begin(), record.value.end());
}

void ReadAhead::start() {
  background_->start("rkv-read-ahead", [this] { run(); });
}

void ReadAhead::stop() {
  background_->stop(mutex_);
  batches_ = {};
}

void ReadAhead::ask(const std::string& first, const DiskReads::AsOf& as_of, std::size_t most) {
  RKV_CHECK(!asked_, "a batch is asked for before the last one was awaited");
  asked_ = true;
  Batch& batch = batches_[next_];
  batch.first_ = first;
  batch.as_of_ = as_of;
  batch.most_ = most;
  {
    const MutexLock lock(mutex_);
    reading_ = true;
  }
  background_->notify();
}

const ReadAhead::Batch& ReadAhead::await() {
  RKV_CHECK(asked_, "a batch is awaited that was not asked for");
  {
    const MutexLock lock(mutex_);
    while (reading_)
      background_->wait(mutex_);
  }
  asked_ = false;
  const Batch& batch = batches_[next_];
  next_ = 1 - next_;
  return batch;
}

void ReadAhead::run() {
  const auto should_read = [this] {
    const MutexLock lock(mutex_);
    while (!reading_ && !background_->stopping())
      background_->wait(mutex_);
    return !background_->stopping();
  };
  while (should_read()) {
    batches_[next_].read_from(disk_);
    {
      const MutexLock lock(mutex_);
      reading_ = false;
    }
    background_->notify();
  }
}

}  // namespace rkv::server
