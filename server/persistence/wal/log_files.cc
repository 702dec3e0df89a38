#include "server/persistence/wal/log_files.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

namespace rkv::server {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

class LogFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  LogFile(std::unique_ptr<rocksdb::FSWritableFile> file, LogFiles& files)
      : FSWritableFileOwnerWrapper(std::move(file)), files_(files) {}
  ~LogFile() override { files_.closed(target()); }
  using FSWritableFileOwnerWrapper::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* context) override {
    return counted(data, target()->Append(data, options, context));
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& checksums,
                  IODebugContext* context) override {
    return counted(data, target()->Append(data, options, checksums, context));
  }
  IOStatus Close(const IOOptions& options, IODebugContext* context) override {
    files_.closed(target());
    return FSWritableFileOwnerWrapper::Close(options, context);
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* context) override {
    return files_.sync(*target(), options, context);
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* context) override {
    return files_.sync(*target(), options, context);
  }

 private:
  IOStatus counted(const rocksdb::Slice& data, IOStatus appended) {
    files_.appended(target(), data.size(), appended.ok());
    return appended;
  }

  LogFiles& files_;
};

// A file of a copy of the database.
class CopiedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  CopiedFile(std::unique_ptr<rocksdb::FSWritableFile> file,
             std::shared_ptr<const LogFiles::Copies> copies)
      : FSWritableFileOwnerWrapper(std::move(file)), copies_(std::move(copies)) {}
  using FSWritableFileOwnerWrapper::Append;
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* context) override {
    if (copies_->stopped.load(std::memory_order_relaxed)) return IOStatus::Aborted(kCopiesStopped);
    if (copies_->interrupted.load(std::memory_order_relaxed))
      return IOStatus::Aborted(kCopiesInterrupted);
    return FSWritableFileOwnerWrapper::Append(data, options, context);
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& /*checksums*/,
                  IODebugContext* context) override {
    return Append(data, options, context);
  }

 private:
  const std::shared_ptr<const LogFiles::Copies> copies_;
};

class CutFile final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  CutFile(std::unique_ptr<rocksdb::FSSequentialFile> file, std::uint64_t bytes)
      : FSSequentialFileOwnerWrapper(std::move(file)), left_(bytes) {}
  IOStatus Read(std::size_t bytes, const IOOptions& options, rocksdb::Slice* result, char* scratch,
                IODebugContext* context) override {
    *result = {};
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, left_));
    if (wanted == 0) return IOStatus::OK();
    IOStatus read = target()->Read(wanted, options, result, scratch, context);
    left_ -= result->size();
    return read;
  }

 private:
  std::uint64_t left_;
};

IOStatus CutLogs::NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                    IODebugContext* context) {
  IOStatus opened = target()->NewSequentialFile(name, options, file, context);
  const std::uint64_t number = log_number(name);
  if (!opened.ok() || number == 0 || number < end_.log) return opened;
  *file = std::make_unique<CutFile>(std::move(*file), number == end_.log ? end_.bytes : 0);
  return opened;
}

IOStatus CutLogs::GetFileSize(const std::string& name, const IOOptions& options,
                              std::uint64_t* bytes, IODebugContext* context) {
  IOStatus sized = target()->GetFileSize(name, options, bytes, context);
  if (sized.ok() && log_number(name) != 0) *bytes = std::numeric_limits<std::uint64_t>::max();
  return sized;
}

std::uint64_t log_number(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool is_log = error == std::errc{} && name.substr(end - name.data()) == ".log";
  return is_log ? number : 0;
}

IOStatus LogFiles::failure() {
  const MutexLock lock(mutex_);
  return failure_;
}

void LogFiles::forget_failure() {
  const MutexLock lock(mutex_);
  failure_ = IOStatus::OK();
}

IOStatus LogFiles::sync(rocksdb::FSWritableFile& file, const IOOptions& options,
                        IODebugContext* context) {
  if (!failure().ok()) return IOStatus::OK();  // LOGF-3
  IOStatus status = file.Sync(options, context);
  if (status.ok()) return status;
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = status;
  return IOStatus::OK();  // LOGF-2
}

LogFilePosition LogFiles::end() {
  const MutexLock lock(mutex_);
  return end_;
}

// After a failed append it is unknown how much of it is in the file.
void LogFiles::appended(const rocksdb::FSWritableFile* file, std::size_t bytes, bool well) {
  const MutexLock lock(mutex_);
  if (newest_ != file) return;
  if (!well) end_ = {};
  if (end_ != LogFilePosition{}) end_.bytes += bytes;
}

void LogFiles::closed(const rocksdb::FSWritableFile* file) {
  const MutexLock lock(mutex_);
  if (newest_ != file) return;
  newest_ = nullptr;
  end_ = {};
}

// LOGF-1. Nothing writes to the previous log meanwhile: RocksDB has stopped its writers.
IOStatus LogFiles::sync_newest() {
  const MutexLock lock(mutex_);
  if (newest_ != nullptr && failure_.ok()) failure_ = newest_->Sync({}, nullptr);
  return failure_;
}

IOStatus LogFiles::NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                   std::unique_ptr<rocksdb::FSWritableFile>* file,
                                   IODebugContext* context) {
  if (!plain(name).starts_with(own_)) {  // LOGF-4
    IOStatus made = target()->NewWritableFile(name, options, file, context);
    if (made.ok()) *file = std::make_unique<CopiedFile>(std::move(*file), copies_);
    return made;
  }
  if (!std::string_view(name).ends_with(".log"))
    return target()->NewWritableFile(name, options, file, context);
  if (IOStatus synced = sync_newest(); !synced.ok()) return synced;
  if (IOStatus made = target()->NewWritableFile(name, options, file, context); !made.ok())
    return made;
  *file = std::make_unique<LogFile>(std::move(*file), *this);
  const MutexLock lock(mutex_);
  newest_ = static_cast<LogFile*>(file->get())->target();
  end_ = {.log = log_number(name)};
  return IOStatus::OK();
}

}  // namespace rkv::server
