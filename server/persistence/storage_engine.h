// The disk: a RocksDB database in `<data-dir>/db`. The database maps each key to {version, expiry
// and counter flag, value}. It is written in ordered batches, and read by key, by range or as a
// whole.
//
//   RKV_ASSIGN_OR_RETURN(auto engine, StorageEngine::open(data_dir));
//   RKV_RETURN_IF_ERROR(engine->claim_boot());  // from here on writes may be acknowledged
//   RKV_RETURN_IF_ERROR(engine->read_from({}, [](const RecordFields& record) { ... }));
//   engine->add_put(record);
//   RKV_RETURN_IF_ERROR(engine->write_batch());  // survives the end of the process
//   RKV_RETURN_IF_ERROR(engine->sync());         // survives the end of the machine
//
// Invariants:
//  DISK-1  A batch is on disk whole or not at all. After a crash the batches that survive are a
//      prefix of those written: there is one write-ahead log, replayed up to its first damaged
//      record.
//  DISK-2  No version is given out twice. The database keeps the last claimed boot number. A claim
//      is synced before a version with its number may be seen. A start takes a number above the
//      last claim and not below the wall clock's (boot_number.h). Versions therefore do not repeat
//      even where claims are lost: with a damaged log, a restored backup or a missing directory.
//  DISK-3  open() changes nothing in a directory that is not ours.
//  DISK-4  Readable data stays readable. Before recover() closes the database, it checks that the
//      directory is there, that the logs are sound, and that the disk has space for what they hold.
//      A database that then does not open is opened for reading only.
//  DISK-5  recover() does not wait for a copy of the database to complete: it interrupts the copies
//      under way first.
//
// Column families: "default" holds the data. "rkv" holds the format version, the hash seed, the
// mark of the log stamps, the boot counter, the time of the last start, and notes.
//
// Thread safety: one thread at a time, except write_note(), checkpoint(), stop_checkpoints(),
// read_range(), read(), read_from(), estimated_records(), reopened() and damaged_reads(), which any
// thread may call. All calls may block on the disk.
//
// Errors: kIo, kCorrupt, kPermission, kConflict (the directory is another program's, or in use),
// kVersionMismatch, kOutOfMemory. RocksDB's full error text is logged here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/layout.h"
#include "common/scan.h"
#include "rkv/result.h"
#include "server/persistence/storage.h"

namespace rocksdb {
class Env;
}

namespace rkv::server {

// Path of the database below the data directory, and below a backup's directory.
inline constexpr const char* kDatabaseDirectory = "/db";
// Boot numbers skipped after a restore or an accepted damaged log. A server cannot have claimed
// more numbers than this since the backup or behind the damage: that would be 65,536 starts or 2
// PiB of writes.
inline constexpr std::uint32_t kSkippedBoots = 65'536;

struct EngineOptions {
  // Files and clock of the database; nullptr: the system's. Tests pass a disk that fails and
  // forgets.
  std::shared_ptr<rocksdb::Env> env = nullptr;
  // Size at which a memtable is flushed and a new write-ahead log is begun. There are two
  // memtables.
  std::size_t memtable_bytes = std::size_t{32} << 20;
  // Opens a database whose log has lost synced writes. When false, such a database is kCorrupt.
  bool accept_damaged_log = false;
  // Lower limit of this start's boot number.
  std::uint32_t least_boot = 1;
  std::uint64_t unix_ms = 0;  // wall clock, stored with the claim; 0: not stored
};

class StorageEngine final : public Storage {
 public:
  // Opens the database in `<directory>/db`; creates it if there is none. `directory` must exist.
  static Result<std::unique_ptr<StorageEngine>> open(const std::string& directory,
                                                     const EngineOptions& options = {});
  ~StorageEngine() override;  // closes the database; logs a failure to close
  StorageEngine(const StorageEngine&) = delete;
  StorageEngine& operator=(const StorageEngine&) = delete;

  // Boot number of this start: above all that earlier starts claimed.
  std::uint32_t boot() const;
  // Wall clock that an earlier start stored last; 0: no start stored it.
  std::uint64_t earlier_unix_ms() const;
  // Seed of the key hash: drawn at random when the database was created, and stored in it.
  std::uint64_t hash_seed() const;
  // The versions of this start begin with `boot`: in a group, the term. kConflict: an earlier start
  // may have used it. REQUIRES: claim_boot() was not called yet.
  Status begin_at(std::uint32_t boot);
  // Claims boot(), synced. Writes may be acknowledged afterwards.
  Status claim_boot();
  // Claims the versions of this start up to `sequence`, which may extend into later boot numbers.
  // Costs a synced write when a further boot number is needed, otherwise nothing.
  Status claim_through(std::uint64_t sequence) override;

  // Notes: bytes under a name, beside the records. Copies of the database have them too.
  // nullopt: there is none.
  Result<std::optional<std::string>> note(std::string_view name) const;
  void add_note(std::string_view name, Bytes bytes);      // to the pending batch
  // At once, synced. Any thread. kIo also while recover() has the database closed.
  Status write_note(std::string_view name, Bytes bytes);

  std::uint64_t estimated_records() const;  // for progress lines: may be far off

  // The reads below may be called from any thread, concurrently with all other calls. A read sees
  // everything that write_batch() had written when the read began, and may see more. Exception:
  // after recover() has reopened the database, unsynced writes may be missing. The database is not
  // reopened during `visit`. The spans passed to `visit` are valid during the call. kCorrupt: the
  // stored bytes are not a valid record.
  using Visitor = std::function<Status(const RecordFields&)>;
  // Reads the record of `key`. Returns the error of `visit` if that fails. kNotFound: there is
  // none.
  Status read(Bytes key, const Visitor& visit) const;
  // Reads the records from `first` on in key order, as they were at one instant. Ends when `visit`
  // returns false, or on an error of the database.
  using RangeVisitor = std::function<bool(const RecordFields&)>;
  Status read_from(Bytes first, const RangeVisitor& visit) const;
  // How many calls of read(), read_from() and read_range() ended with kCorrupt. Each damage is
  // logged once (ReadErrors).
  std::uint64_t damaged_reads() const;
  // How often recover() has reopened the database.
  std::uint64_t reopened() const;

  void add_put(const RecordFields& record) override;
  void add_remove(Bytes key) override;
  Status write_batch() override;
  void clear_batch() override;
  // kIo with ENOENT: the directory is not the one that was opened, or the log is no longer in it. A
  // later start would not find what was written.
  Status sync() override;
  Status recover() override;
  Status check_whole() override;
  // Writes a database of its own to `target`, which must not exist; its parent must exist. The copy
  // holds everything written before the call, and may hold writes made during it (DISK-1 holds for
  // the copy). Uses hard links where the file system has them, else copies; synced. May be called
  // from any thread, concurrently with all other calls. kIo, kPermission: partial results may
  // remain. A concurrent recover() ends the checkpoint with kIo.
  Status checkpoint(const std::string& target);
  // For shutdown: all checkpoints, also those under way, soon fail with kIo. Any thread.
  void stop_checkpoints();
  // Calls `visit` for the records of a range in the range's order, as they were at one instant
  // after the call began. That includes everything written before the call. Ends when `visit`
  // returns false, or on an error. The spans passed to `visit` are valid during the call. May be
  // called from any thread, concurrently with all calls but close(); recover() waits for it. kIo:
  // the database is being reopened after a failure. kCorrupt as above.
  Status read_range(const KeyRange& range, const RangeVisitor& visit) const;
  // For a copy of another database: skips kSkippedBoots boot numbers. Call before claim_boot().
  // kUnsupported: there is no number left.
  Status skip_boots();
  Status close();  // afterwards only the destructor may be called

 private:
  class Impl;
  explicit StorageEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
