// DataDirectory: the files of a server: their lock, the database, and where backups go.
//
//   DataDirectory data(options);
//   if (auto failure = data.lock()) return failure;
//   if (auto failure = data.finish_copy()) return failure;
//   if (auto failure = data.open(nullptr)) return failure;
//   StorageEngine& engine = *data.engine();
//   ...
//   return data.close();
//
// Thread safety: one owner; of the engine, what StorageEngine says.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>

#include "server/persistence/lock_file.h"
#include "server/persistence/storage_engine.h"
#include "server/program/failure.h"
#include "server/program/options.h"

namespace rocksdb {
class Env;
}

namespace rkv::server {

class DataDirectory {
 public:
  // `options` must outlive it. Without --data-dir, close() and what concerns backups are all.
  explicit DataDirectory(const Options& options) : options_(options) {}

  // Makes the directory if there is none, and locks it. Blocks as LockFile::acquire().
  std::optional<Failure> lock();
  // Puts in place what a replica was copying when it ended. Blocks on the disk.
  std::optional<Failure> finish_copy() const;
  // Opens the database. Blocks on the disk, for as long as its log takes. `env`: its files and
  // clock; nullptr: the system's. REQUIRES: locked, and
  // finish_copy() has succeeded.
  std::optional<Failure> open(std::shared_ptr<rocksdb::Env> env);
  // From here on versions with this boot number may be seen, `entries` of them before the next
  // claim (APPL-7). A start that fails earlier, for example on a port in use, uses up no number.
  std::optional<Failure> claim(std::size_t entries);
  // Closes the database, if it is open. Blocks on the disk.
  std::optional<Failure> close();
  // Puts a copy of the primary's database in the place of this one. REQUIRES: closed.
  std::optional<Failure> install_received_copy() const;

  // Whether backups can be written to --backup-dir, which is made. None is given: yes.
  std::optional<Failure> check_backups() const;
  std::filesystem::path backups() const;  // absolute

  LockFile& lock_file() { return *lock_; }                 // REQUIRES: locked
  StorageEngine* engine() const { return engine_.get(); }  // nullptr: it was not opened

 private:
  std::optional<Failure> check_group() const;

  const Options& options_;
  std::optional<LockFile> lock_;
  std::unique_ptr<StorageEngine> engine_;
};

}  // namespace rkv::server
