#include "server/data_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "common/log.h"
#include "server/group/copy/copy_directory.h"
#include "server/group/replica/replica_storage.h"
#include "server/persistence/boot_number.h"
#include "server/persistence/files.h"
#include "server/program/wall_clock.h"

namespace rkv::server {

std::optional<Failure> DataDirectory::lock() {
  const std::string& directory = options_.data_dir;
  std::error_code error;
  if (options_.require_data && !std::filesystem::exists(directory + "/db/CURRENT", error)) {
    return Failure{kExitData, fmt::format("the data directory {} holds no data, but --require-data "
                                          "needs it: is its file system mounted?",
                                          directory)};
  }
  if (const int made = make_directory_synced(directory); made != 0) {
    const bool passes = made == ENOSPC || made == EDQUOT || made == EIO || made == EMFILE;
    return Failure{passes ? kExitDataLater : kExitData,
                   cannot_make(directory, std::error_code(made, std::generic_category()))};
  }
  std::string sentence;
  auto lock = LockFile::acquire(directory, &sentence);
  if (!lock) {
    const bool in_use = lock.error().code == Code::kConflict;
    return Failure{in_use ? kExitDataLater : exit_code_of_data(lock.error()), sentence};
  }
  lock_.emplace(std::move(*lock));
  // Directories that this server makes are private; a copied or an older one may not be.
  if (is_open_to_others(directory) && is_open_to_others(directory + kDatabaseDirectory)) {
    log_warn(EventName("data_not_private"),
             "users other than the owner may enter the data directory {}: run chmod -R go= {}",
             directory, directory);
  }
  return std::nullopt;
}

std::optional<Failure> DataDirectory::finish_copy() const {
  const std::string& directory = options_.data_dir;
  std::error_code error;
  if (std::filesystem::exists(directory + kRestoring, error)) {
    return Failure{
        kExitData,
        fmt::format("{} is the rest of an interrupted restore: remove it and restore again",
                    directory)};
  }
  std::string problem;
  if (const Status whole = recover_copy(directory, &problem); !whole)
    return Failure{exit_code_of_data(whole.error()), problem};
  return std::nullopt;
}

std::optional<Failure> DataDirectory::open(std::shared_ptr<rocksdb::Env> env) {
  const std::string& directory = options_.data_dir;
  const std::int64_t now = wall_clock_ns();
  auto engine =
      StorageEngine::open(directory, {.env = std::move(env),
                                      .accept_damaged_log = options_.accept_damaged_log,
                                      .least_boot = options_.is_in_group() ? 1 : least_boot_at(now),
                                      .unix_ms = static_cast<std::uint64_t>(now / kNanosPerMs)});
  if (!engine) {
    return Failure{
        exit_code_of_data(engine.error()),
        fmt::format("cannot use the data directory {}: {}", directory, to_string(engine.error()))};
  }
  engine_ = std::move(*engine);
  return check_group();
}

// The versions of a group's primary begin with its term. A server of its own would use others.
std::optional<Failure> DataDirectory::check_group() const {
  if (options_.is_in_group()) return std::nullopt;
  const auto kept = ReplicaStorage::kept_in(*engine_);
  if (!kept) return Failure{exit_code_of_data(kept.error()), to_string(kept.error())};
  if (kept->group == 0) return std::nullopt;
  return Failure{kExitData, fmt::format("the data directory {} belongs to a replica of a group: "
                                        "start it with --etcd, --group and --name",
                                        options_.data_dir)};
}

std::optional<Failure> DataDirectory::claim(std::size_t entries) {
  Status claimed = engine_->claim_boot();
  if (claimed) claimed = engine_->claim_through(entries);
  if (claimed) return std::nullopt;
  return Failure{exit_code_of_data(claimed.error()),
                 fmt::format("cannot write to the data directory {}: {}", options_.data_dir,
                             to_string(claimed.error()))};
}

std::optional<Failure> DataDirectory::close() {
  if (engine_ == nullptr) return std::nullopt;
  const Status closed = engine_->close();
  if (closed) return std::nullopt;
  return Failure{kExitOther, fmt::format("closing the data directory {} failed: {}",
                                         options_.data_dir, to_string(closed.error()))};
}

std::optional<Failure> DataDirectory::install_received_copy() const {
  std::string problem;
  if (const Status installed = install_copy(options_.data_dir, &problem); !installed)
    return Failure{kExitDataLater, problem};
  return std::nullopt;
}

std::filesystem::path DataDirectory::backups() const {
  std::error_code error;
  return std::filesystem::absolute(options_.backup_dir, error);
}

std::optional<Failure> DataDirectory::check_backups() const {
  if (options_.backup_dir.empty()) return std::nullopt;
  const std::filesystem::path directory = backups();
  if (is_within(directory, options_.data_dir)) {
    return Failure{kExitData,
                   fmt::format("the backup directory {} is within the data directory {}: give "
                               "--backup-dir a directory outside of it",
                               directory.string(), options_.data_dir)};
  }
  int failed = make_directory_synced(directory);
  if (failed == 0 && access(directory.c_str(), W_OK | X_OK) != 0) failed = errno;
  if (failed != 0) {
    return Failure{kExitData,
                   fmt::format("cannot use the backup directory {}: {}: check --backup-dir",
                               directory.string(), strerror(failed))};
  }
  return std::nullopt;
}

}  // namespace rkv::server
