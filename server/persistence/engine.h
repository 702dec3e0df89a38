// The disk: a RocksDB database in `<data-dir>/db`, seen as a map from key to {version, expiry,
// value} that is written in ordered batches, and read key by key or as a whole.
//
//   RKV_ASSIGN_OR_RETURN(auto engine, Engine::open(data_dir));
//   RKV_RETURN_IF_ERROR(engine->claim_boot());  // from here on writes may be acknowledged
//   RKV_RETURN_IF_ERROR(engine->read_from({}, [](const RecordFields& record) { ... }));
//   engine->add_put(record);
//   RKV_RETURN_IF_ERROR(engine->write_batch());  // survives the end of the process
//   RKV_RETURN_IF_ERROR(engine->sync());         // survives the end of the machine
//
// Invariants:
//  E1  A batch is on disk whole or not at all, and after a crash the batches that survive are a
//      prefix of those written: one write-ahead log, replayed up to its first damaged record.
//  E2  No version is given out twice. The database keeps the last boot number that is claimed, and
//      a claim is synced before a version with its number may be seen. A start begins with a number
//      above it, and not below the wall clock's (boot_number.h): so nothing repeats either where
//      the claims themselves are lost with a damaged log, a restored backup or a whole directory.
//  E3  open() changes nothing in a directory that is not ours.
//  E4  What can be read stays readable. recover() closes nothing before it has seen that the
//      directory is there, that the logs are sound and that there is room for what they hold; and
//      a database that then does not open is opened for reading alone.
//  E5  recover() waits for no copy of the database: it ends those under way first.
//
// Column families: "default" holds the data, "rkv" the format version, the hash seed and
// the boot counter.
// Thread safety: none; one thread at a time, but for checkpoint(), read_range(), read(),
// read_from() and reopened(). All calls may block on the disk. Errors: kIo, kCorrupt, kPermission,
// kConflict (the directory is another program's, or in use), kVersionMismatch, kOutOfMemory; the
// full text of RocksDB is logged here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/layout.h"
#include "common/scan.h"
#include "rkv/result.h"
#include "server/persistence/storage.h"

namespace rocksdb {
class Env;
}

namespace rkv::server {

// Of the database, below the data directory, and below a backup's.
inline constexpr const char* kDatabaseDirectory = "/db";
// More than any server has claimed that its backup or its damaged log does not tell of: as many
// starts, or 2 PiB of writes.
inline constexpr std::uint32_t kSkippedBoots = 65'536;

struct EngineOptions {
  // The files and the clock of the database; nullptr: the system's. Tests put a disk in its place
  // that fails and forgets.
  std::shared_ptr<rocksdb::Env> env = nullptr;
  // After so many bytes a memtable is written out and a new write-ahead log begun. Two of them.
  std::size_t memtable_bytes = std::size_t{32} << 20;
  // Opens a database whose log has lost synced writes; without it that is kCorrupt.
  bool accept_damaged_log = false;
  // Of this start, or above it.
  std::uint32_t least_boot = 1;
  std::uint64_t unix_ms = 0;  // the wall clock's, to be noted with the claim; 0: it is not
};

class Engine final : public Storage {
 public:
  // Opens the database in `<directory>/db`, or makes it. `directory` exists.
  static Result<std::unique_ptr<Engine>> open(const std::string& directory,
                                              const EngineOptions& options = {});
  ~Engine() override;  // closes; logs when that fails
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The number of this start of the server: above all that were claimed before.
  std::uint32_t boot() const;
  // The wall clock's time as the start before this one noted it; 0: none did.
  std::uint64_t earlier_unix_ms() const;
  // Seed of the key hash: random, drawn when the database was made, kept with it.
  std::uint64_t hash_seed() const;
  Status claim_boot();
  // That versions of this start may be given out up to `sequence`, which may count on into further
  // boot numbers. Costs a synced write when it does, nothing else.
  Status claim_through(std::uint64_t sequence) override;

  std::uint64_t estimated_records() const;  // for a progress line: may be far off

  // From any thread, beside all other calls. What is seen is everything that write_batch() had
  // written when the call began, and perhaps more, unless the database has been opened anew
  // since: then what was not synced may be missing. That does not happen inside `visit`, whose
  // spans are valid during the call. kCorrupt: a record makes no sense.
  using Visitor = std::function<Status(const RecordFields&)>;
  // The record of a key; kNotFound.
  Status read(Bytes key, const Visitor& visit) const;
  // The records from `first` on, in the order of keys, until `visit` fails: its error. They are
  // those of one instant.
  Status read_from(Bytes first, const Visitor& visit) const;
  // How many calls of the three have ended with kCorrupt. Each damage is logged once (ReadErrors).
  std::uint64_t damaged_reads() const;
  // How often recover() has opened the database anew.
  std::uint64_t reopened() const;

  void add_put(const RecordFields& record) override;
  void add_remove(Bytes key) override;
  Status write_batch() override;
  void clear_batch() override;
  // kIo with ENOENT: the directory is not the one that was opened, or the log is not in it any
  // more, so that no start would find what is written.
  Status sync() override;
  Status recover() override;
  Status check_whole() override;
  // Makes a database of its own in `target`, which does not exist and whose parent does: everything
  // written so far, and perhaps some of what is written meanwhile (E1 holds for it). Hard links
  // where the file system has them, else copies; synced. From any thread, beside all other calls.
  // kIo, kPermission; what it has made by then may be there. A recover() ends it with kIo.
  Status checkpoint(const std::string& target);
  // Of a server that is to end: checkpoints end soon with kIo, also those under way. Any thread.
  void stop_checkpoints();
  // Calls `visit` for the records of a range, in its order, as they were at one instant after the
  // call began: with everything written before it. Ends when `visit` says false, or fails. Its
  // spans are valid during the call. From any thread, beside all other calls but close(); recover()
  // waits for it. kIo: the database is being opened anew after a failure; kCorrupt as above.
  using RangeVisitor = std::function<bool(const RecordFields&)>;
  Status read_range(const KeyRange& range, const RangeVisitor& visit) const;
  // For a copy of another database: boot() is kSkippedBoots later. Before claim_boot().
  // kUnsupported: there is no such number.
  Status skip_boots();
  Status close();  // after it only the destructor may be called

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rkv::server
