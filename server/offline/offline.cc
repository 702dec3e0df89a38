#include "server/offline/offline.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "server/background/progress.h"
#include "server/group/replica/replica_storage.h"
#include "server/persistence/files.h"
#include "server/persistence/inspection.h"
#include "server/persistence/lock_file.h"
#include "server/persistence/storage_engine.h"

namespace rkv::server {

namespace {

namespace fs = std::filesystem;

Failure data_failure(std::string sentence) {
  return {.exit_code = kExitData, .sentence = std::move(sentence)};
}

// Checks that the directory holds a database, and takes a shared lock into `lock`, so that no
// server writes to it. `flag` is the flag that named the directory.
std::optional<Failure> share(const std::string& directory, const char* flag,
                             std::optional<LockFile>* lock) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return data_failure(
        fmt::format("cannot read {}: {}: give {} the directory of a backup or of a stopped server",
                    directory, error ? error.message() : "it is not a directory", flag));
  }
  if (fs::exists(directory + kRestoring, error)) {
    return data_failure(fmt::format(
        "{} is the rest of an interrupted restore: remove it and restore again", directory));
  }
  if (!fs::is_directory(directory + kDatabaseDirectory, error)) {
    return data_failure(
        fmt::format("{} holds no data of kvserver: {}{} is missing: give {} the directory "
                    "of a backup or of a stopped server",
                    directory, directory, kDatabaseDirectory, flag));
  }
  std::string sentence;
  auto shared = LockFile::share(directory, &sentence);
  if (!shared) return data_failure(sentence);
  lock->emplace(std::move(*shared));
  return std::nullopt;
}

// Shows the progress of a check or a copy. Its line is ended before other output.
class Watch {
 public:
  explicit Watch(const Clock& clock) : clock_(clock) {}
  ~Watch() { finish(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void bytes(const char* what, std::uint64_t done, std::uint64_t expected) {
    advance(what, done >> 20, expected >> 20, "MiB", 1);
  }
  void records(const char* what, std::uint64_t done, std::uint64_t expected) {
    advance(what, done, expected, "records", kRecordsBetweenLooks);
  }
  // Ends the progress line before other output; progress continues on a new line.
  void end_line() {
    if (progress_) progress_->finish(done_);
  }
  void finish() {
    end_line();
    progress_.reset();
    what_ = nullptr;
  }

 private:
  static constexpr std::uint64_t kRecordsBetweenLooks = 1024;

  void advance(const char* what, std::uint64_t done, std::uint64_t expected, const char* unit,
               std::uint64_t look_every) {
    if (what_ == nullptr || std::strcmp(what_, what) != 0) {
      finish();
      what_ = what;
      progress_.emplace(clock_, what, expected, unit, look_every);
    }
    done_ = done;
    (void)progress_->advance(done);
  }

  const Clock& clock_;
  const char* what_ = nullptr;
  std::optional<Progress> progress_;
  std::uint64_t done_ = 0;
};

Inspection look(const std::string& directory, const Print& print, const Clock& clock) {
  Watch watch(clock);
  const Inspection found = inspect(
      directory,
      [&](const std::string& line) {
        watch.end_line();
        print("problem: " + line);
      },
      [&](Looked at, std::uint64_t done, std::uint64_t expected) {
        if (at == Looked::kTables) return watch.bytes("checking tables", done, expected);
        watch.records("checking records", done, expected);
      });
  watch.finish();
  if (found.problems == 0 && found.torn_bytes != 0) {
    print(
        fmt::format("note: {} bytes at the end of the write-ahead log are not whole records: a "
                    "crash leaves them, they were never synced, and a start ignores them",
                    found.torn_bytes));
  }
  return found;
}

std::string problems(std::uint64_t count) {
  return count == 1 ? "1 problem" : fmt::format("{} problems", count);
}

// Whether the directory holds nothing except a lock file.
bool is_empty(const std::string& directory, std::error_code& error) {
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.path().filename() != "LOCK") return false;
  return true;
}

Failure copy_failure(const std::string& from, const std::string& to, int error) {
  return data_failure(fmt::format("cannot copy {} to {}: {}", from, to, std::strerror(error)));
}

std::uint64_t bytes_in(const std::string& directory) {
  std::error_code error;
  std::uint64_t bytes = 0;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    const std::uint64_t length = at->file_size(none);
    if (!none) bytes += length;
  }
  return bytes;
}

// Copies the files of `from` to new files in `to`.
std::optional<Failure> copy_files(const std::string& from, const std::string& to,
                                  const Clock& clock) {
  std::error_code error;
  const std::uint64_t bytes = bytes_in(from);
  std::uint64_t done = 0;
  Watch watch(clock);
  if (const int made = make_directory_synced(to); made != 0) return copy_failure(from, to, made);
  for (fs::directory_iterator at(from, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename();
    if (name == "LOCK" || !at->is_regular_file(error)) continue;
    const int failed = copy_file_synced(at->path(), fmt::format("{}/{}", to, name));
    if (failed != 0) return copy_failure(at->path(), to, failed);
    done += at->file_size(error);
    watch.bytes("copying", done, bytes);
  }
  if (error) return copy_failure(from, to, error.value());
  const int failed = sync_directory(to);
  if (failed != 0) return copy_failure(from, to, failed);
  return std::nullopt;
}

// Makes the copy a database of its own. Returns whether it belonged to a group.
Result<bool> make_independent(const std::string& directory) {
  RKV_ASSIGN_OR_RETURN(const auto engine, StorageEngine::open(directory));
  RKV_RETURN_IF_ERROR(engine->skip_boots());
  RKV_ASSIGN_OR_RETURN(const bool was_in_group, ReplicaStorage::leave_group(*engine));
  RKV_RETURN_IF_ERROR(engine->close());
  return was_in_group;
}

// Copies the backup. REQUIRES: `directory` exists, is empty and locked. The copy is checked before
// it is renamed to its final place.
std::optional<Failure> copy_backup(const std::string& backup, const std::string& directory,
                                   const Inspection& expected, const Print& print,
                                   const Clock& clock) {
  const std::string restoring = directory + kRestoring;
  if (auto failure = copy_files(backup + kDatabaseDirectory, restoring + kDatabaseDirectory, clock))
    return failure;
  const auto was_in_group = make_independent(restoring);
  if (!was_in_group) {
    return data_failure(
        fmt::format("cannot use the copy of {}: {}", backup, to_string(was_in_group.error())));
  }
  if (*was_in_group) {
    print(
        "note: the backup is of a replicated group, the copy belongs to none: a server of its own "
        "or the first replica of a new group may start on it");
  }
  const Inspection copied = look(restoring, print, clock);
  if (copied.problems != 0 || copied.records != expected.records ||
      copied.bytes != expected.bytes || copied.highest != expected.highest) {
    return data_failure(fmt::format(
        "the copy of {} in {} differs from the original: check the disk", backup, directory));
  }
  const std::string target = directory + kDatabaseDirectory;
  if (rename((restoring + kDatabaseDirectory).c_str(), target.c_str()) != 0) {
    return copy_failure(restoring, target, errno);
  }
  int error = sync_directory(directory);  // before the mark of an incomplete restore is removed
  std::error_code ignored;
  fs::remove(restoring, ignored);
  if (error == 0) error = sync_directory(directory);
  if (error != 0) return copy_failure(restoring, target, error);
  return std::nullopt;
}

}  // namespace

std::optional<Failure> verify_data(const Options& options, const Print& print, const Clock& clock) {
  const std::string& directory = options.data_dir;
  std::optional<LockFile> lock;
  if (auto failure = share(directory, "--data-dir", &lock)) return failure;
  const Inspection found = look(directory, print, clock);
  print(fmt::format("records          {}", found.records));
  print(fmt::format("bytes            {}", found.bytes));
  print(fmt::format("highest version  {} (boot number {}, sequence {})", found.highest.bits,
                    found.highest.boot(), found.highest.sequence()));
  print(fmt::format("boot number      {}", found.boot));
  print(fmt::format("problems         {}", found.problems));
  if (found.problems == 0) return std::nullopt;
  return data_failure(
      fmt::format("{} is damaged ({}): restore a backup into another directory by kvserver "
                  "--restore",
                  directory, problems(found.problems)));
}

std::optional<Failure> restore_data(const Options& options, const Print& print,
                                    const Clock& clock) {
  const std::string& backup = options.restore;
  const std::string& directory = options.data_dir;
  std::optional<LockFile> backup_lock;
  if (auto failure = share(backup, "--restore", &backup_lock)) return failure;
  std::error_code error;
  if (is_within(directory, backup)) {
    return data_failure(fmt::format(
        "{} is within the backup {}, which stays as it is: give --data-dir another directory",
        directory, backup));
  }
  const bool existed = fs::exists(directory, error);
  if (existed && (!fs::is_directory(directory, error) || !is_empty(directory, error) || error)) {
    return data_failure(
        fmt::format("{} is not an empty directory: give --data-dir one that is empty or does not "
                    "exist",
                    directory));
  }
  const Inspection found = look(backup, print, clock);
  if (found.problems != 0) {
    return data_failure(fmt::format("the backup {} is damaged ({}): nothing was restored", backup,
                                    problems(found.problems)));
  }
  if (const int made = make_directory_synced(directory); made != 0)
    return data_failure(cannot_make(directory, std::error_code(made, std::generic_category())));
  std::string sentence;
  const auto lock = LockFile::acquire(directory, &sentence);
  if (!lock) return data_failure(sentence);
  if (auto failure = copy_backup(backup, directory, found, print, clock)) {
    fs::remove_all(directory + kRestoring, error);
    fs::remove(directory + "/LOCK", error);
    if (!existed) fs::remove(directory, error);  // removes it only if it is empty
    return failure;
  }
  print(fmt::format("restored {} records, {} bytes, highest version {}", found.records, found.bytes,
                    found.highest.bits));
  print(fmt::format("start a server on them by: kvserver --data-dir {}", directory));
  return std::nullopt;
}

}  // namespace rkv::server
