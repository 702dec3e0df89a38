#include "server/background/backups.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "common/log.h"
#include "server/persistence/files.h"
#include "server/persistence/storage_engine.h"

namespace rkv::server {

namespace {

Error failure_of(const char* call, int error) {
  const bool denied = error == EACCES || error == EPERM || error == EROFS;
  return {.code = denied ? Code::kPermission : Code::kIo,
          .sys_errno = error,
          .call = call,
          .text = denied            ? "the server may not write to its backup directory"
                  : error == ENOSPC ? "the server's disk has no room for the backup"
                                    : "the backup could not be written: see the server's log"};
}

constexpr Error kStopped = {.code = Code::kIo,
                            .text = "the server is being stopped: there is no backup"};
constexpr const char* kExists = "there is something of that name already: choose another name";

}  // namespace

Backups::Backups(std::string directory, Parts parts)
    : directory_(std::move(directory)),
      parts_(std::move(parts)),
      background_(parts_.make_background()) {}

void Backups::start() {
  background_->start("rkv-backups", [this] { run(); });
}

void Backups::begin_stop() {
  background_->begin_stop(mutex_);
  parts_.stop_checkpoints();
}

void Backups::stop() {
  begin_stop();
  background_->stop(mutex_);
}

Result<std::shared_ptr<const BackupTask>> Backups::ask(std::string_view name,
                                                       std::uint64_t through) {
  std::shared_ptr<BackupTask> backup;
  {
    const MutexLock lock(mutex_);
    if (current_ != nullptr || background_->stopping()) {
      return fail(Code::kBusy, "another backup is being made: try again a little later");
    }
    backup = current_ = std::make_shared<BackupTask>(name, through);
  }
  background_->notify();
  return backup;
}

// Takes the mutex so that a thread between reading the marks and waiting does not miss the call.
void Backups::marks_changed() {
  {
    const MutexLock lock(mutex_);
    if (current_ == nullptr) return;
  }
  background_->notify();
}

void Backups::run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!background_->stopping() && current_ == nullptr)
      background_->wait(mutex_);
    if (current_ == nullptr) return;
    const std::shared_ptr<BackupTask> backup = current_;
    parts_.request_sync(backup->through());
    const auto synced = [&] { return parts_.log.sync_mark() >= backup->through(); };
    while (!background_->stopping() && !parts_.log.failed() && !synced())
      background_->wait(mutex_);
    Status made = std::unexpected(parts_.log.refusal(Refused::kBackup));
    if (background_->stopping()) {
      made = std::unexpected(kStopped);
    } else if (synced()) {
      lock.unlock();
      made = make(*backup);
      lock.lock();
    }
    backup->finish(made);
    current_ = nullptr;
    lock.unlock();
    parts_.finished();
    lock.lock();
  }
}

Status Backups::make(const BackupTask& backup) const {
  const std::string target = directory_ + "/" + backup.name();
  const std::string partial = directory_ + "/.partial-" + backup.name();  // not a valid backup name
  // The lock keeps this backup from removing another server's partial copy. A file system without
  // such locks gives no protection.
  const Descriptor lock(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() >= 0 && flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return fail(Code::kBusy, "another server is making a backup there: try again a little later");
  }
  struct stat there{};
  if (lstat(target.c_str(), &there) == 0) return fail(Code::kConflict, kExists);
  std::error_code ignored;
  std::filesystem::remove_all(partial, ignored);
  const auto failed = [&](const Error& error) {
    std::filesystem::remove_all(partial, ignored);
    log_error(EventName("backup_failed"), "no backup {}: {}", field("backup", target),
              field("why", to_string(error)));
    return std::unexpected(error);
  };
  if (mkdir(partial.c_str(), 0700) != 0) return failed(failure_of("mkdir", errno));
  if (const Status copied = parts_.checkpoint(partial + kDatabaseDirectory); !copied)
    return failed(copied.error());
  if (const int error = sync_directory(partial); error != 0)
    return failed(failure_of("fsync", error));
  // A checkpoint made of hard links is over before stop_checkpoints() can end it.
  if (background_->stopping()) return failed(kStopped);
  if (renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) return failed({.code = Code::kConflict, .text = kExists});
    return failed(failure_of("renameat2", errno));
  }
  if (const int error = sync_directory(directory_); error != 0) {
    log_error(EventName("backup_not_synced"), "backup {}: {}", target,
              to_string(failure_of("fsync", error)));
    return std::unexpected(failure_of("fsync", error));
  }
  log_info(EventName("backup_made"), "backup {} made, with everything up to sequence {}",
           field("backup", target), field("sequence", backup.through()));
  return {};
}

}  // namespace rkv::server
