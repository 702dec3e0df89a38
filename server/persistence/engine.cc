#include "server/persistence/engine.h"

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"
#include "server/persistence/database.h"
#include "server/persistence/log_chain.h"
#include "server/persistence/log_files.h"
#include "server/persistence/log_stamp.h"

namespace rkv::server {

using database::bytes_of;
using database::guarded;
using database::kBootKey;
using database::kFormat;
using database::kFormatKey;
using database::kHashSeedKey;
using database::kMarkKey;
using database::kMetaFamily;
using database::kValueHeaderBytes;
using database::slice;
using database::to_error;

namespace {

const rocksdb::Env& env_of(const EngineOptions& options) {
  return options.env != nullptr ? *options.env : *rocksdb::Env::Default();
}

}  // namespace

class Engine::Impl {
 public:
  Impl(std::string path, const EngineOptions& options)
      : path_(std::move(path)),
        files_(std::make_shared<LogFiles>(env_of(options).GetFileSystem(), path_)),
        env_(env_of(options), files_),
        options_(database::options()) {
    options_.env = &env_;
    options_.listeners.push_back(log_errors_);
    options_.write_buffer_size = options.memtable_bytes;
  }
  ~Impl() { (void)close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status check_log(bool accept_damage);
  Status check_log_again();
  Status drop_behind(const LogPosition& end);
  Status open();
  Status sync_name();
  Status close();
  Status read_meta();
  Status read_drawn();
  Status claim_boot();
  Status write_batch();
  Status sync();
  Status recover();
  Status check_whole();
  Status checkpoint(const std::string& target);
  Status skip_boots(std::uint16_t count);

  // Logs the full text of an error, once until a sync has succeeded.
  Status check(const char* what, const rocksdb::Status& status);

  std::string path_;
  const std::shared_ptr<LogFiles> files_;  // outlives the database, as the next
  EnvWithFiles env_;
  const std::shared_ptr<LogErrors> log_errors_ = std::make_shared<LogErrors>();
  rocksdb::Options options_;
  std::unique_ptr<LogChain> chain_;  // outlives the database, whose options name it
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* data_ = nullptr;
  rocksdb::ColumnFamilyHandle* meta_ = nullptr;
  rocksdb::WriteBatch batch_;
  LogPosition synced_;
  std::uint16_t claimed_boot_ = 0;
  std::uint64_t hash_seed_ = 0;
  std::uint64_t mark_ = 0;            // of stamps
  const char* last_error_ = nullptr;  // its sentence
  std::atomic<std::uint64_t> reopened_{0};
  database::ReadErrors read_errors_;
  database::Records records() { return {.db = *db_, .family = data_, .errors = read_errors_}; }
  // Held while db_ is opened or closed; shared, while another thread uses it.
  mutable std::shared_mutex life_;
  // Passed through by those who share it, held by who wants it alone, first: he does not starve.
  // (Not both by one std::scoped_lock, which lets the gate go while it waits for the other.)
  mutable std::mutex gate_;
  std::shared_lock<std::shared_mutex> shared() const {
    const std::scoped_lock pass(gate_);
    return std::shared_lock(life_);
  }
  // Opened anew after a failure: what was not synced may be missing until it is written again.
  std::atomic<bool> incomplete_{false};

 private:
  Result<bool> data_is_empty();
  Status initialise();
  Status close_locked();
  Status look_at_logs(LogsFound* found);
  Result<std::uint64_t> read_or_draw(const char* key);
  Result<std::uint64_t> draw(const char* key);
  Status put_meta(const char* what, const char* key, Bytes value);
  Status write_boot(std::uint16_t number);
};

namespace {
Status disk_has_failed() {
  return fail(Code::kIo, "the disk of the data directory has failed");
}
}  // namespace

Status Engine::Impl::check(const char* what, const rocksdb::Status& status) {
  if (status.ok()) return {};
  const std::string text = status.ToString();
  const Error error = to_error(status, text);
  const bool told = std::exchange(last_error_, error.text) == error.text;
  log_to(told ? LogLevel::kDebug : LogLevel::kError, EventName("database_error"),
         "database {}: {}: {}", path_, what, text);
  if (error.code == Code::kCorrupt) options_.disable_auto_compactions = true;
  return std::unexpected(error);
}

// Before anything is changed: opening the database replays the log up to the damage, and drops the
// rest for good.
Status Engine::Impl::look_at_logs(LogsFound* found) {
  return check("look at the logs", check_logs(options_, path_, found));
}

Status Engine::Impl::check_log(bool accept_damage) {
  LogsFound found;
  RKV_RETURN_IF_ERROR(look_at_logs(&found));
  if (!found.damaged && found.torn_bytes != 0) {
    log_warn(EventName("torn_end"),
             "database {}: its write-ahead log ends with {} bytes that are no whole records, as a "
             "crash leaves them: they are dropped",
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

// The logs end there from now on.
Status Engine::Impl::drop_behind(const LogPosition& end) {
  EnvWithFiles cut(env_, std::make_shared<CutLogs>(files_, end));
  options_.env = &cut;
  Status dropped = open();
  if (dropped) dropped = close();
  options_.env = &env_;
  RKV_RETURN_IF_ERROR(dropped);
  log_warn(EventName("damage_accepted"),
           "database {}: opened without what is behind the damage (--accept-damaged-log)", path_);
  return {};
}

// The same while the server runs. What is not synced may be torn, and is written again; damage is
// not accepted, since what it has cost may be in memory still.
Status Engine::Impl::check_log_again() {
  constexpr const char* kLost =
      "a write-ahead log has been damaged, and synced writes are lost with it: save what is needed "
      "of what is in memory by kvclient dump --keys, stop the server, then restore a backup by "
      "kvserver --restore, or start with --accept-damaged-log to go on without them";
  LogsFound found;
  RKV_RETURN_IF_ERROR(look_at_logs(&found));
  if (!found.damaged) return {};
  if (std::exchange(last_error_, kLost) != kLost)
    log_error(EventName("synced_writes_lost"), "database {}: {}", path_, kLost);
  return fail(Code::kCorrupt, kLost);
}

Status Engine::Impl::open() {
  chain_ = std::make_unique<LogChain>();  // N1
  options_.wal_filter = chain_.get();
  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, options_}, {kMetaFamily, options_}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  RKV_RETURN_IF_ERROR(check("open", guarded([&] {
                              return rocksdb::DB::Open(options_, path_, families, &handles, &db);
                            })));
  db_.reset(db);
  data_ = handles[0];
  meta_ = handles[1];
  synced_ = {};  // what the logs held is in tables
  return {};
}

// RocksDB syncs what is in its directory, not that the directory is there.
Status Engine::Impl::sync_name() {
  const std::string above = std::filesystem::path(path_).parent_path();
  return check("sync its name", guarded([&]() -> rocksdb::Status {
                 std::unique_ptr<rocksdb::FSDirectory> directory;
                 const auto& files = options_.env->GetFileSystem();
                 rocksdb::IOStatus status = files->NewDirectory(above, {}, &directory, nullptr);
                 return status.ok() ? directory->Fsync({}, nullptr) : status;
               }));
}

Status Engine::Impl::close() {
  const std::scoped_lock pass(gate_);
  const std::unique_lock alone(life_);
  return close_locked();
}

Status Engine::Impl::close_locked() {
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

Result<bool> Engine::Impl::data_is_empty() {
  const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}, data_));
  at->SeekToFirst();
  RKV_RETURN_IF_ERROR(check("look for records", at->status()));
  return !at->Valid();
}

// A new database, or one whose making was cut short by a crash.
Status Engine::Impl::initialise() {
  RKV_ASSIGN_OR_RETURN(const bool empty, data_is_empty());
  if (!empty) {
    return fail(Code::kConflict,
                "the data directory holds a database that is not ours: choose another --data-dir");
  }
  std::array<std::byte, 4> format{};
  store_le(format.data(), kFormat);
  RKV_RETURN_IF_ERROR(put_meta("write the format version", kFormatKey, format));
  return read_drawn();
}

// Drawn once for the life of the data. The hash seed: how full the index' pairs of groups are
// depends on it, so that what fitted into a memory once fits again. The mark: in a table, where a
// look at damaged logs finds it, before a batch is written (when it is there, nothing is flushed).
Status Engine::Impl::read_drawn() {
  RKV_ASSIGN_OR_RETURN(hash_seed_, read_or_draw(kHashSeedKey));
  RKV_ASSIGN_OR_RETURN(mark_, read_or_draw(kMarkKey));
  return check("flush what was drawn", guarded([&] { return db_->Flush({}, meta_); }));
}

Result<std::uint64_t> Engine::Impl::read_or_draw(const char* key) {
  std::string bytes;
  const auto found = guarded([&] { return db_->Get({}, meta_, key, &bytes); });
  if (found.IsNotFound()) return draw(key);
  RKV_RETURN_IF_ERROR(check("read a number that was drawn", found));
  if (bytes.size() != 8) return fail(Code::kCorrupt, "the hash seed or the mark makes no sense");
  return load_le<std::uint64_t>(as_bytes(bytes).data());
}

Result<std::uint64_t> Engine::Impl::draw(const char* key) {
  const std::uint64_t number = random_from_kernel();
  std::array<std::byte, 8> bytes{};
  store_le(bytes.data(), number);
  RKV_RETURN_IF_ERROR(put_meta("keep a number that was drawn", key, bytes));
  return number;
}

Status Engine::Impl::put_meta(const char* what, const char* key, Bytes value) {
  rocksdb::WriteOptions synced;
  synced.sync = true;
  const auto put = guarded([&] { return db_->Put(synced, meta_, key, slice(value)); });
  RKV_RETURN_IF_ERROR(check(what, put));
  return check(what, files_->failure());  // W2
}

Status Engine::Impl::read_meta() {
  std::string format;
  const auto found = guarded([&] { return db_->Get({}, meta_, kFormatKey, &format); });
  if (found.IsNotFound()) return initialise();
  RKV_RETURN_IF_ERROR(check("read the format version", found));
  if (format.size() != 4 || load_le<std::uint32_t>(as_bytes(format).data()) != kFormat) {
    return fail(Code::kVersionMismatch,
                "the data directory was written by another version of kvserver: use that version");
  }
  RKV_RETURN_IF_ERROR(read_drawn());
  std::string boot;
  const auto counter = guarded([&] { return db_->Get({}, meta_, kBootKey, &boot); });
  if (counter.IsNotFound()) return {};
  RKV_RETURN_IF_ERROR(check("read the boot counter", counter));
  if (boot.size() != 2) return fail(Code::kCorrupt, "the boot counter makes no sense");
  claimed_boot_ = load_le<std::uint16_t>(as_bytes(boot).data());
  if (claimed_boot_ < std::numeric_limits<std::uint16_t>::max()) return {};
  return fail(Code::kUnsupported,
              "the data directory has seen 65535 starts, its limit: copy the data to a new one");
}

Status Engine::Impl::claim_boot() {
  return write_boot(static_cast<std::uint16_t>(claimed_boot_ + 1));
}

Status Engine::Impl::write_boot(std::uint16_t number) {
  std::array<std::byte, 2> boot{};
  store_le(boot.data(), number);
  return put_meta("raise the boot counter", kBootKey, boot);
}

Status Engine::Impl::write_batch() {
  if (batch_.Count() == 0) {
    incomplete_.store(false, std::memory_order_release);
    return {};
  }
  RKV_CHECK(batch_.PutLogData(stamp_of(synced_, mark_)).ok(), "a batch refused its stamp");
  const rocksdb::WriteOptions unsynced;  // log on, sync off: sync() is for everything at once
  RKV_RETURN_IF_ERROR(check("write", guarded([&] { return db_->Write(unsynced, &batch_); })));
  batch_.Clear();
  incomplete_.store(false, std::memory_order_release);
  return {};
}

Status Engine::Impl::sync() {
  const LogPosition written = files_->end();  // nobody writes meanwhile (W5)
  RKV_RETURN_IF_ERROR(check("sync", guarded([&] { return db_->FlushWAL(true); })));
  RKV_RETURN_IF_ERROR(check("sync", files_->failure()));  // W2
  last_error_ = nullptr;
  synced_ = written;
  return {};
}

// Resume() is enough when RocksDB could not write a table. A log that has failed is not written to
// again (W3), nor closed and synced by RocksDB's threads: the database is opened anew, as after a
// fatal error, such as a failed write to its own list of files.
Status Engine::Impl::recover() {
  const bool logs_are_well = files_->failure().ok() && !log_errors_->seen();
  if (db_ != nullptr && logs_are_well && guarded([&] { return db_->Resume(); }).ok()) return {};
  const std::scoped_lock pass(gate_);
  const std::unique_lock alone(life_);
  reopened_.fetch_add(1);
  (void)close_locked();  // its unsynced rest is written again by the caller
  db_.reset();
  incomplete_.store(true, std::memory_order_relaxed);
  RKV_RETURN_IF_ERROR(check_log_again());
  files_->forget_failure();
  log_errors_->forget();
  read_errors_.forget();
  return open();
}

// A compaction that meets a damaged table makes the database refuse writes, each time anew: since
// check() has seen damage there are none.
Status Engine::Impl::check_whole() {
  RKV_RETURN_IF_ERROR(check("read back", guarded([&] { return db_->VerifyChecksum(); })));
  options_.disable_auto_compactions = false;
  return check("compact again", guarded([&] { return db_->EnableAutoCompaction({data_, meta_}); }));
}

Status Engine::Impl::checkpoint(const std::string& target) {
  const auto lock = shared();
  return db_ ? database::checkpoint(*db_, target) : disk_has_failed();
}

Status Engine::Impl::skip_boots(std::uint16_t count) {
  if (claimed_boot_ + count >= std::numeric_limits<std::uint16_t>::max()) {
    return fail(Code::kUnsupported,
                "it has seen too many starts to be restored, 65535 being the limit: start a server "
                "on it as it is, and copy the records to a new one by kvclient dump and load");
  }
  const auto skipped = static_cast<std::uint16_t>(claimed_boot_ + count);
  RKV_RETURN_IF_ERROR(write_boot(skipped));
  claimed_boot_ = skipped;
  // The server that was backed up goes on writing logs, of the same numbers as this one's will be.
  RKV_ASSIGN_OR_RETURN(mark_, draw(kMarkKey));
  return {};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const std::string& directory,
                                             const EngineOptions& options) {
  auto impl = std::make_unique<Impl>(directory + kDatabaseDirectory, options);
  RKV_RETURN_IF_ERROR(database::check_families(impl->options_, impl->path_));  // E3
  RKV_RETURN_IF_ERROR(impl->check_log(options.accept_damaged_log));
  Status opened = impl->open();
  if (!opened && opened.error().code == Code::kCorrupt && options.accept_damaged_log) {
    // A log is shorter than RocksDB has noted, of which no stamp tells: as far as the logs go (N1).
    RKV_RETURN_IF_ERROR(impl->drop_behind({.log = std::numeric_limits<std::uint64_t>::max()}));
    opened = impl->open();
  }
  RKV_RETURN_IF_ERROR(opened);
  RKV_RETURN_IF_ERROR(impl->sync_name());
  RKV_RETURN_IF_ERROR(impl->read_meta());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

std::uint16_t Engine::boot() const {
  return static_cast<std::uint16_t>(impl_->claimed_boot_ + 1);
}
std::uint64_t Engine::hash_seed() const {
  return impl_->hash_seed_;
}
Status Engine::claim_boot() {
  return impl_->claim_boot();
}

Status Engine::read(Bytes key, const Visitor& visit) const {
  const auto lock = impl_->shared();
  return impl_->db_ ? database::read(impl_->records(), key, visit) : disk_has_failed();
}
Status Engine::read_from(Bytes first, const Visitor& visit) const {
  const auto lock = impl_->shared();
  return impl_->db_ ? database::read_from(impl_->records(), first, visit) : disk_has_failed();
}
std::uint64_t Engine::reopened() const {
  return impl_->reopened_.load();
}
std::uint64_t Engine::damaged_reads() const {
  return impl_->read_errors_.damaged();
}

std::uint64_t Engine::estimated_records() const {
  std::uint64_t records = 0;
  const auto lock = impl_->shared();
  if (impl_->db_ == nullptr) return 0;
  if (!impl_->db_->GetIntProperty(impl_->data_, "rocksdb.estimate-num-keys", &records)) return 0;
  return records;
}

void Engine::add_put(const RecordFields& record) {
  std::array<std::byte, kValueHeaderBytes> header{};
  store_le(header.data(), record.version.bits);
  store_le(header.data() + 8, record_traits(record));
  const rocksdb::Slice key = slice(record.key);
  const std::array<rocksdb::Slice, 2> value = {slice(header), slice(record.value)};
  const auto added = guarded([&] {
    return impl_->batch_.Put(impl_->data_, rocksdb::SliceParts(&key, 1),
                             rocksdb::SliceParts(value.data(), value.size()));
  });
  RKV_CHECK(added.ok(), "a batch refused a record within the limits");
}

void Engine::add_remove(Bytes key) {
  const auto added = guarded([&] { return impl_->batch_.Delete(impl_->data_, slice(key)); });
  RKV_CHECK(added.ok(), "a batch refused a key within the limits");
}

Status Engine::write_batch() {
  return impl_->write_batch();
}
void Engine::clear_batch() {
  impl_->batch_.Clear();
}
Status Engine::sync() {
  return impl_->sync();
}
Status Engine::recover() {
  return impl_->recover();
}
Status Engine::check_whole() {
  return impl_->check_whole();
}
Status Engine::checkpoint(const std::string& target) {
  return impl_->checkpoint(target);
}
void Engine::stop_checkpoints() {
  impl_->files_->stop_copies();
}
Status Engine::read_range(const KeyRange& range, const RangeVisitor& visit) const {
  const auto lock = impl_->shared();
  if (impl_->db_ == nullptr || impl_->incomplete_.load(std::memory_order_acquire)) {
    return disk_has_failed();
  }
  return database::read_range(impl_->records(), range, visit);
}
Status Engine::skip_boots(std::uint16_t count) {
  return impl_->skip_boots(count);
}
Status Engine::close() {
  return impl_->close();
}

}  // namespace rkv::server
