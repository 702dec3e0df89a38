#include "server/persistence/log_files.h"

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
  LogFiles& files_;
};

IOStatus LogFiles::failure() {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

void LogFiles::forget_failure() {
  const std::scoped_lock lock(mutex_);
  failure_ = IOStatus::OK();
}

IOStatus LogFiles::sync(rocksdb::FSWritableFile& file, const IOOptions& options,
                        IODebugContext* context) {
  if (!failure().ok()) return IOStatus::OK();  // W3
  IOStatus status = file.Sync(options, context);
  if (status.ok()) return status;
  const std::scoped_lock lock(mutex_);
  if (failure_.ok()) failure_ = status;
  return IOStatus::OK();  // W2
}

void LogFiles::closed(const rocksdb::FSWritableFile* file) {
  const std::scoped_lock lock(mutex_);
  if (newest_ == file) newest_ = nullptr;
}

// W1. Nobody writes to the log before this one meanwhile: RocksDB has stopped its writers.
IOStatus LogFiles::sync_newest() {
  const std::scoped_lock lock(mutex_);
  if (newest_ != nullptr && failure_.ok()) failure_ = newest_->Sync({}, nullptr);
  return failure_;
}

IOStatus LogFiles::NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                   std::unique_ptr<rocksdb::FSWritableFile>* file,
                                   IODebugContext* context) {
  if (!std::string_view(name).ends_with(".log"))
    return target()->NewWritableFile(name, options, file, context);
  if (IOStatus synced = sync_newest(); !synced.ok()) return synced;
  if (IOStatus made = target()->NewWritableFile(name, options, file, context); !made.ok())
    return made;
  *file = std::make_unique<LogFile>(std::move(*file), *this);
  const std::scoped_lock lock(mutex_);
  newest_ = static_cast<LogFile*>(file->get())->target();
  return IOStatus::OK();
}

}  // namespace rkv::server
