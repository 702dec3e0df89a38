#include "tests/server/persistence/disk_model.h"

#include <fcntl.h>
#include <rocksdb/system_clock.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/check.h"

namespace rkv::server::test {

namespace fs = std::filesystem;
using rocksdb::FileOptions;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

namespace {

std::string clean(const std::string& path) {
  std::string text = fs::path(path).lexically_normal();
  while (text.size() > 1 && text.back() == '/')
    text.pop_back();
  return text;
}
std::string above(const std::string& path) {
  return fs::path(path).parent_path();
}

}  // namespace

DiskModel::Inode::~Inode() {
  if (fd >= 0) close(fd);
}

class ModelFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  ModelFile(std::unique_ptr<rocksdb::FSWritableFile> file, DiskModel& model, std::string path,
            std::shared_ptr<DiskModel::Inode> inode)
      : FSWritableFileOwnerWrapper(std::move(file)),
        model_(model),
        path_(std::move(path)),
        inode_(std::move(inode)) {}

  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  IODebugContext* context) override {
    const std::scoped_lock lock(model_.mutex_);
    if (IOStatus refused = model_.may_change(DiskCall::kAppend, path_); !refused.ok())
      return refused;
    IOStatus status = target()->Append(data, options, context);
    inode_->written += data.size();
    return status;
  }
  IOStatus Append(const rocksdb::Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& /*check*/,
                  IODebugContext* context) override {
    return Append(data, options, context);
  }
  IOStatus PositionedAppend(const rocksdb::Slice& /*data*/, std::uint64_t /*offset*/,
                            const IOOptions& /*options*/, IODebugContext* /*context*/) override {
    return IOStatus::NotSupported("the model knows files that are appended to");
  }
  IOStatus PositionedAppend(const rocksdb::Slice& data, std::uint64_t offset,
                            const IOOptions& options,
                            const rocksdb::DataVerificationInfo& /*check*/,
                            IODebugContext* context) override {
    return PositionedAppend(data, offset, options, context);
  }
  IOStatus Truncate(std::uint64_t size, const IOOptions& options,
                    IODebugContext* context) override {
    const std::scoped_lock lock(model_.mutex_);
    if (IOStatus refused = model_.may_change(DiskCall::kTruncate, path_); !refused.ok())
      return refused;
    IOStatus status = target()->Truncate(size, options, context);
    if (status.ok()) inode_->written = std::min(inode_->written, size);
    return status;
  }
  IOStatus Sync(const IOOptions& /*options*/, IODebugContext* /*context*/) override {
    // Bytes that are appended meanwhile are synced too, as a real disk may do.
    if (const auto takes = model_.sync_takes_us_.load(); takes > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(takes));
    const std::scoped_lock lock(model_.mutex_);
    if (IOStatus refused = model_.may_change(DiskCall::kSync, path_); !refused.ok()) return refused;
    model_.synced(*inode_);
    return IOStatus::OK();
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* context) override {
    return Sync(options, context);
  }
  IOStatus RangeSync(std::uint64_t /*offset*/, std::uint64_t /*length*/,
                     const IOOptions& /*options*/, IODebugContext* /*context*/) override {
    return IOStatus::OK();  // promises nothing
  }

 private:
  DiskModel& model_;
  const std::string path_;
  const std::shared_ptr<DiskModel::Inode> inode_;
};

class ModelDirectory final : public rocksdb::FSDirectoryWrapper {
 public:
  ModelDirectory(std::unique_ptr<rocksdb::FSDirectory> directory, DiskModel& model,
                 std::string path)
      : FSDirectoryWrapper(std::move(directory)), model_(model), path_(std::move(path)) {}

  IOStatus Fsync(const IOOptions& /*options*/, IODebugContext* /*context*/) override {
    const std::scoped_lock lock(model_.mutex_);
    if (IOStatus refused = model_.may_change(DiskCall::kSyncDirectory, path_); !refused.ok())
      return refused;
    model_.directory_synced(path_);
    return IOStatus::OK();
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* context,
                               const rocksdb::DirFsyncOptions& /*directory*/) override {
    return Fsync(options, context);
  }

 private:
  DiskModel& model_;
  const std::string path_;
};

DiskModel::DiskModel(std::string root, Honesty honesty)
    : FileSystemWrapper(FileSystem::Default()), root_(clean(root)), honesty_(honesty) {
  for (const auto& entry : fs::recursive_directory_iterator(root_))
    adopt(clean(entry.path()), entry.is_directory());
}

void DiskModel::adopt(const std::string& path, bool is_directory) {
  auto inode = std::make_shared<Inode>();
  if (!is_directory) inode = inode_of(path, fs::file_size(path));
  live_[path] = inode;
  durable_[path] = std::move(inode);
}

void DiskModel::set_fault(Fault fault) {
  const std::scoped_lock lock(mutex_);
  fault_ = std::move(fault);
}

void DiskModel::lose_power_after(std::uint64_t changes) {
  const std::scoped_lock lock(mutex_);
  left_ = changes;
  if (left_ == 0) lost_.store(true, std::memory_order_release);
}

// With the mutex.
IOStatus DiskModel::may_change(DiskCall call, const std::string& path) {
  if (is_lost()) return IOStatus::IOError("the power is lost", path);
  if (fault_) {
    if (IOStatus failed = fault_(call, path); !failed.ok()) return failed;
  }
  changes_.fetch_add(1, std::memory_order_relaxed);
  if (--left_ == 0) lost_.store(true, std::memory_order_release);  // this one is still done
  return IOStatus::OK();
}

std::shared_ptr<DiskModel::Inode> DiskModel::inode_of(const std::string& path,
                                                      std::uint64_t synced) {
  auto inode = std::make_shared<Inode>();
  inode->fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  RKV_CHECK(inode->fd >= 0, "the model cannot open what it has just made");
  inode->written = inode->synced = synced;
  return inode;
}

void DiskModel::apply(Names& names, const Change& change) {
  for (const auto& [path, inode] : change) {
    if (inode == nullptr) {
      names.erase(path);
    } else {
      names[path] = inode;
    }
  }
}

void DiskModel::change_names(const Change& change) {
  apply(live_, change);
  pending_[above(change.back().first)].push_back(change);
}

void DiskModel::synced(Inode& inode) {
  if (honesty_ != Honesty::kLyingAboutFiles) inode.synced = inode.written;
}

void DiskModel::directory_synced(const std::string& path) {
  if (honesty_ == Honesty::kLyingAboutDirectories) return;
  for (const Change& change : pending_[path])
    apply(durable_, change);
  pending_.erase(path);
}

IOStatus DiskModel::wrap(DiskCall call, const std::string& name,
                         const std::function<IOStatus()>& open,
                         std::unique_ptr<rocksdb::FSWritableFile>* file) {
  const std::string path = clean(name);
  const std::scoped_lock lock(mutex_);
  if (IOStatus refused = may_change(call, path); !refused.ok()) return refused;
  if (IOStatus status = open(); !status.ok()) return status;
  const auto known = live_.find(path);
  const bool made = call == DiskCall::kCreate || known == live_.end();
  const auto inode = made ? inode_of(path, 0) : known->second;
  if (made) change_names({{path, inode}});
  *file = std::make_unique<ModelFile>(std::move(*file), *this, path, inode);
  return IOStatus::OK();
}

// A new file: an old one of that name keeps its bytes as long as its name is durable.
IOStatus DiskModel::NewWritableFile(const std::string& name, const FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    IODebugContext* context) {
  const auto open = [&] {
    (void)unlink(name.c_str());
    return target()->NewWritableFile(name, options, file, context);
  };
  return wrap(DiskCall::kCreate, name, open, file);
}

IOStatus DiskModel::ReopenWritableFile(const std::string& name, const FileOptions& options,
                                       std::unique_ptr<rocksdb::FSWritableFile>* file,
                                       IODebugContext* context) {
  const auto open = [&] { return target()->ReopenWritableFile(name, options, file, context); };
  return wrap(DiskCall::kAppend, name, open, file);
}

IOStatus DiskModel::ReuseWritableFile(const std::string& /*name*/, const std::string& old_name,
                                      const FileOptions& /*options*/,
                                      std::unique_ptr<rocksdb::FSWritableFile>* /*file*/,
                                      IODebugContext* /*context*/) {
  return IOStatus::NotSupported("the model overwrites no file", old_name);
}

IOStatus DiskModel::NewDirectory(const std::string& name, const IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* directory,
                                 IODebugContext* context) {
  IOStatus status = target()->NewDirectory(name, options, directory, context);
  if (status.ok()) {
    *directory = std::make_unique<ModelDirectory>(std::move(*directory), *this, clean(name));
  }
  return status;
}

IOStatus DiskModel::make_directory(const std::string& name, const IOOptions& options,
                                   IODebugContext* context) {
  const std::string path = clean(name);
  const std::scoped_lock lock(mutex_);
  if (fs::is_directory(path)) return IOStatus::OK();
  if (IOStatus refused = may_change(DiskCall::kMakeDirectory, path); !refused.ok()) return refused;
  IOStatus status = target()->CreateDir(path, options, context);
  if (status.ok()) change_names({{path, std::make_shared<Inode>()}});
  return status;
}

IOStatus DiskModel::CreateDir(const std::string& name, const IOOptions& options,
                              IODebugContext* context) {
  if (fs::exists(name)) return IOStatus::IOError("exists", name);
  return make_directory(name, options, context);
}

IOStatus DiskModel::CreateDirIfMissing(const std::string& name, const IOOptions& options,
                                       IODebugContext* context) {
  return make_directory(name, options, context);
}

IOStatus DiskModel::DeleteFile(const std::string& name, const IOOptions& options,
                               IODebugContext* context) {
  const std::string path = clean(name);
  const std::scoped_lock lock(mutex_);
  if (IOStatus refused = may_change(DiskCall::kRemove, path); !refused.ok()) return refused;
  IOStatus status = target()->DeleteFile(path, options, context);
  if (status.ok()) change_names({{path, nullptr}});
  return status;
}

IOStatus DiskModel::RenameFile(const std::string& from, const std::string& to,
                               const IOOptions& options, IODebugContext* context) {
  const std::string source = clean(from);
  const std::string path = clean(to);
  const std::scoped_lock lock(mutex_);
  if (IOStatus refused = may_change(DiskCall::kRename, path); !refused.ok()) return refused;
  IOStatus status = target()->RenameFile(source, path, options, context);
  if (status.ok()) change_names({{source, nullptr}, {path, live_.at(source)}});
  return status;
}

IOStatus DiskModel::LinkFile(const std::string& from, const std::string& to,
                             const IOOptions& options, IODebugContext* context) {
  const std::string path = clean(to);
  const std::scoped_lock lock(mutex_);
  if (IOStatus refused = may_change(DiskCall::kLink, path); !refused.ok()) return refused;
  IOStatus status = target()->LinkFile(from, path, options, context);
  if (status.ok()) change_names({{path, live_.at(clean(from))}});
  return status;
}

IOStatus DiskModel::Truncate(const std::string& name, size_t size, const IOOptions& options,
                             IODebugContext* context) {
  const std::string path = clean(name);
  const std::scoped_lock lock(mutex_);
  if (IOStatus refused = may_change(DiskCall::kTruncate, path); !refused.ok()) return refused;
  IOStatus status = target()->Truncate(path, size, options, context);
  if (status.ok()) live_.at(path)->written = size;
  return status;
}

namespace {

// Returns the remains of bytes of which only the first `synced` are sure to survive.
std::string left_of(Random& random, std::string bytes, std::uint64_t synced) {
  constexpr std::uint64_t kPageBytes = 4096;
  const std::uint64_t unsure = bytes.size() - synced;
  switch (random.below(4)) {
    case 0:
      bytes.resize(synced);
      break;
    case 1:
      break;
    default:
      bytes.resize(synced + random.below(unsure + 1));
  }
  if (bytes.size() == synced || random.below(4) != 0) return bytes;
  // A page that was not written while a later one was.
  const std::uint64_t begin =
      std::max(synced, (synced + random.below(bytes.size() - synced)) / kPageBytes * kPageBytes);
  const std::uint64_t end = std::min<std::uint64_t>(
      bytes.size(), (begin / kPageBytes + 1 + random.below(4)) * kPageBytes);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
            bytes.begin() + static_cast<std::ptrdiff_t>(end), '\0');
  return bytes;
}

std::string read_all_of(int fd, std::uint64_t length) {
  std::string bytes(length, '\0');
  std::uint64_t have = 0;
  while (have < length) {
    const ssize_t got = pread(fd, bytes.data() + have, length - have, static_cast<off_t>(have));
    RKV_CHECK(got > 0, "the model cannot read what was written");
    have += static_cast<std::uint64_t>(got);
  }
  return bytes;
}

}  // namespace

void DiskModel::leave(Random& random, const std::string& directory) {
  const std::scoped_lock lock(mutex_);
  RKV_CHECK(is_lost(), "the power is lost before what is left is looked at");
  Names names = durable_;
  for (const auto& [path, changes] : pending_) {
    const std::uint64_t kept = random.below(changes.size() + 1);
    for (std::uint64_t i = 0; i < kept; ++i)
      apply(names, changes[i]);
  }
  for (const auto& [path, inode] : names) {  // a directory comes before what is in it
    const std::string target = directory + path.substr(root_.size());
    if (!fs::is_directory(above(target))) continue;
    if (inode->fd < 0) {
      fs::create_directory(target);
      continue;
    }
    const std::string bytes = read_all_of(inode->fd, inode->written);
    std::ofstream(target, std::ios::binary) << left_of(random, bytes, inode->synced);
  }
}

namespace {

class ImpatientClock final : public rocksdb::SystemClockWrapper {
 public:
  ImpatientClock() : SystemClockWrapper(rocksdb::SystemClock::Default()) {}
  const char* Name() const override { return "ImpatientClock"; }
  void SleepForMicroseconds(int micros) override {
    SystemClockWrapper::SleepForMicroseconds(std::min(micros, 1000));
  }
};

class ModelEnv final : public rocksdb::EnvWrapper {
 public:
  explicit ModelEnv(const std::shared_ptr<DiskModel>& disk)
      : EnvWrapper(rocksdb::NewCompositeEnv(disk)) {
    file_system_ = disk;
    system_clock_ = std::make_shared<ImpatientClock>();
  }
  const char* Name() const override { return "ModelEnv"; }
};

}  // namespace

std::shared_ptr<rocksdb::Env> env_on(const std::shared_ptr<DiskModel>& disk) {
  return std::make_shared<ModelEnv>(disk);
}

}  // namespace rkv::server::test
