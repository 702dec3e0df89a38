// Opening the database, and the data that it stores about itself.
#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>

#include "common/log.h"
#include "common/random.h"
#include "server/persistence/storage_engine_impl.h"

namespace rkv::server {

using database::guarded;
using database::kBootKey;
using database::kFormat;
using database::kFormatKey;
using database::kHashSeedKey;
using database::kMarkKey;
using database::kMetaFamily;
using database::kTimeKey;
using database::slice;

// Checks the logs. Must run before anything changes: opening the database replays the log up to the
// damage and drops the rest permanently.
Status StorageEngine::Impl::look_at_logs(LogsFound* found) {
  return check("check the logs", check_logs(options_, path_, found));
}

Status StorageEngine::Impl::check_log(bool accept_damage) {
  LogsFound found;
  RKV_RETURN_IF_ERROR(look_at_logs(&found));
  if (!found.damaged && found.torn_bytes != 0) {
    log_warn(EventName("torn_end"),
             "database {}: its write-ahead log ends with {} bytes that are not whole records, as "
             "after a crash: they are dropped",
             field("database", path_), field("bytes", found.torn_bytes));
  }
  if (!found.damaged) return {};
  log_error(EventName("log_damaged"),
            "database {}: a write-ahead log is damaged before its end, where it was synced", path_);
  if (accept_damage) return drop_behind(found.sound_end);
  return fail(
      Code::kCorrupt,
      "the write-ahead log is damaged, and synced writes are lost with it: restore a backup "
      "by kvserver --restore, or give --accept-damaged-log to go on without them (nothing "
      "has been changed)");
}

// Makes the logs end at `end` permanently, by opening the database with cut logs.
Status StorageEngine::Impl::drop_behind(const LogFilePosition& end) {
  EnvWithFiles cut(env_, std::make_shared<CutLogs>(files_, end));
  options_.env = &cut;
  Status dropped = open();
  if (dropped) dropped = close();
  options_.env = &env_;
  RKV_RETURN_IF_ERROR(dropped);
  dropped_ = true;
  log_warn(EventName("damage_accepted"),
           "database {}: opened without the writes after the damage (--accept-damaged-log)", path_);
  return {};
}

Status StorageEngine::Impl::open() {
  chain_ = std::make_unique<LogChain>(env_);  // CHAIN-1
  options_.wal_filter = chain_.get();
  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, options_}, {kMetaFamily, options_}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  RKV_RETURN_IF_ERROR(check("open", guarded([&] {
                              return rocksdb::DB::Open(options_, path_, families, &handles, &db);
                            })));
  take(db, handles);
  synced_ = {};  // the logs' content is in tables now
  return {};
}

void StorageEngine::Impl::take(rocksdb::DB* db,
                               const std::vector<rocksdb::ColumnFamilyHandle*>& handles) {
  db_.reset(db);
  data_ = handles[0];
  meta_ = handles[1];
  reads_only_ = false;
  home_ = identity_of(path_);
}

// Syncs the directory's entry in its parent; RocksDB syncs only the content of its directory.
Status StorageEngine::Impl::sync_name() {
  const std::string above = std::filesystem::path(path_).parent_path();
  return check("sync its name", guarded([&]() -> rocksdb::Status {
                 std::unique_ptr<rocksdb::FSDirectory> directory;
                 const auto& files = options_.env->GetFileSystem();
                 rocksdb::IOStatus status = files->NewDirectory(above, {}, &directory, nullptr);
                 return status.ok() ? directory->Fsync({}, nullptr) : status;
               }));
}

Status StorageEngine::Impl::close() {
  const MutexLock pass(writer_turnstile_);
  const WriterLock alone(db_mutex_);
  return close_locked();
}

Status StorageEngine::Impl::close_locked() {
  if (db_ == nullptr) return {};
  const auto closed = guarded([&] {
    (void)db_->DestroyColumnFamilyHandle(data_);
    (void)db_->DestroyColumnFamilyHandle(meta_);
    rocksdb::Status status = db_->Close();
    db_.reset();
    return status;
  });
  return check("close", closed);
}

Result<bool> StorageEngine::Impl::data_is_empty() {
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}, data_));
  at->SeekToFirst();
  RKV_RETURN_IF_ERROR(check("look for records", at->status()));
  return !at->Valid();
}

// Initializes a new database, or one whose creation a crash interrupted.
Status StorageEngine::Impl::initialise() {
  RKV_ASSIGN_OR_RETURN(const bool empty, data_is_empty());
  if (!empty) {
    return fail(
        Code::kConflict,
        "the data directory holds the database of another program: choose another --data-dir");
  }
  std::array<std::byte, 4> format{};
  store_le(format.data(), kFormat);
  RKV_RETURN_IF_ERROR(put_meta("write the format version", kFormatKey, format));
  RKV_RETURN_IF_ERROR(read_drawn());
  return begin_behind(0);
}

// Both numbers are drawn once for the life of the data. The hash seed decides how full the index's
// pairs of groups are; with the same seed, what fitted into a memory fits again. The mark is
// flushed to a table before the first batch, so that a check of damaged logs finds it there.
Status StorageEngine::Impl::read_drawn() {
  RKV_ASSIGN_OR_RETURN(hash_seed_, read_or_draw(kHashSeedKey));
  RKV_ASSIGN_OR_RETURN(mark_, read_or_draw(kMarkKey));
  return check("flush the drawn numbers", guarded([&] { return db_->Flush({}, meta_); }));
}

Result<std::uint64_t> StorageEngine::Impl::read_or_draw(const char* key) {
  std::string bytes;
  const auto found = guarded([&] { return db_->Get({}, meta_, key, &bytes); });
  if (found.IsNotFound()) return draw(key);
  RKV_RETURN_IF_ERROR(check("read a drawn number", found));
  if (bytes.size() != 8) return fail(Code::kCorrupt, "the hash seed or the mark is invalid");
  return load_le<std::uint64_t>(as_bytes(bytes).data());
}

Result<std::uint64_t> StorageEngine::Impl::draw(const char* key) {
  const std::uint64_t number = random_from_kernel();
  std::array<std::byte, 8> bytes{};
  store_le(bytes.data(), number);
  RKV_RETURN_IF_ERROR(put_meta("keep a drawn number", key, bytes));
  return number;
}

Status StorageEngine::Impl::put_meta(const char* what, const char* key, Bytes value) {
  return check(what, put_synced(key, value));
}

rocksdb::Status StorageEngine::Impl::put_synced(const rocksdb::Slice& key, Bytes value) {
  rocksdb::WriteOptions synced;
  synced.sync = true;
  const auto put = guarded([&] { return db_->Put(synced, meta_, key, slice(value)); });
  return put.ok() ? files_->failure() : put;  // RocksDB does not report it (LOGF-2)
}

Status StorageEngine::Impl::read_meta() {
  std::string format;
  const auto found = guarded([&] { return db_->Get({}, meta_, kFormatKey, &format); });
  if (found.IsNotFound()) return initialise();
  RKV_RETURN_IF_ERROR(check("read the format version", found));
  if (format.size() != 4 || load_le<std::uint32_t>(as_bytes(format).data()) != kFormat) {
    return fail(Code::kVersionMismatch,
                "the data directory was written by another version of kvserver: use that version");
  }
  RKV_RETURN_IF_ERROR(read_drawn());
  std::string time;
  const auto noted = guarded([&] { return db_->Get({}, meta_, kTimeKey, &time); });
  if (!noted.IsNotFound()) RKV_RETURN_IF_ERROR(check("read the time of the last start", noted));
  if (time.size() == 8) earlier_unix_ms_ = load_le<std::uint64_t>(as_bytes(time).data());
  std::string boot;
  const auto counter = guarded([&] { return db_->Get({}, meta_, kBootKey, &boot); });
  if (counter.IsNotFound()) return begin_behind(0);
  RKV_RETURN_IF_ERROR(check("read the boot number", counter));
  if (boot.size() != 4) return fail(Code::kCorrupt, "the boot number is invalid");
  return begin_behind(load_le<std::uint32_t>(as_bytes(boot).data()));
}

Status StorageEngine::Impl::begin_behind(std::uint32_t claimed) {
  claimed_boot_ = claimed;
  if (claimed == std::numeric_limits<std::uint32_t>::max()) {
    return fail(Code::kUnsupported,
                "the data directory has no version numbers left: copy the records to a new one by "
                "kvclient dump and load");
  }
  boot_ = std::max(claimed + 1, least_boot_);
  return {};
}

Status StorageEngine::Impl::claim_boot() {
  RKV_RETURN_IF_ERROR(write_boot(boot_));
  if (unix_ms_ == 0) return {};
  std::array<std::byte, 8> time{};
  store_le(time.data(), unix_ms_);
  return put_meta("note the time", kTimeKey, time);
}

// Claims one number more than needed, so that the next claim is far away.
Status StorageEngine::Impl::claim_through(std::uint64_t sequence) {
  const std::uint64_t last = Version::of(boot_, sequence).boot();
  if (last < boot_) return fail(Code::kUnsupported, "there are no version numbers left");
  if (last <= claimed_boot_) return {};
  return write_boot(static_cast<std::uint32_t>(
      std::min<std::uint64_t>(last + 1, std::numeric_limits<std::uint32_t>::max())));
}

Status StorageEngine::Impl::write_boot(std::uint32_t number) {
  std::array<std::byte, 4> boot{};
  store_le(boot.data(), number);
  RKV_RETURN_IF_ERROR(put_meta("claim a boot number", kBootKey, boot));
  claimed_boot_ = number;
  return {};
}

Result<std::optional<std::string>> StorageEngine::Impl::note(std::string_view name) {
  const auto lock = shared();
  if (db_ == nullptr) return std::unexpected(disk_has_failed().error());
  std::string bytes;
  const auto found = guarded([&] { return db_->Get({}, meta_, database::note_key(name), &bytes); });
  if (found.IsNotFound()) return std::nullopt;
  RKV_RETURN_IF_ERROR(check("read a note", found));
  return bytes;
}

// Beside the thread that writes: what it logs of a failing disk is not said twice (check()).
Status StorageEngine::Impl::write_note(std::string_view name, Bytes bytes) {
  const auto lock = shared();
  if (db_ == nullptr || reads_only_) return disk_has_failed();
  const rocksdb::Status written = put_synced(database::note_key(name), bytes);
  if (written.ok()) return {};
  return std::unexpected(database::to_error(written, written.ToString()));
}

// Skips kSkippedBoots numbers, so that claims unknown here are not repeated.
Status StorageEngine::Impl::write_skip() {
  if (claimed_boot_ >= std::numeric_limits<std::uint32_t>::max() - kSkippedBoots) {
    return fail(Code::kUnsupported,
                "it has too few version numbers left to be restored: start a server on it as it "
                "is, and copy the records to a new one by kvclient dump and load");
  }
  RKV_RETURN_IF_ERROR(write_boot(claimed_boot_ + kSkippedBoots));
  return begin_behind(claimed_boot_);
}

Status StorageEngine::Impl::skip_boots() {
  RKV_RETURN_IF_ERROR(write_skip());
  // The server that was backed up continues to write logs with the numbers that this database will
  // use, so stamps need a new mark.
  RKV_ASSIGN_OR_RETURN(mark_, draw(kMarkKey));
  return {};
}

}  // namespace rkv::server
