#include "server/persistence/engine.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <limits>
#include <vector>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"

namespace rkv::server {

namespace {

constexpr std::uint32_t kFormat = 1;
constexpr const char* kMetaFamily = "rkv";
constexpr const char* kFormatKey = "format";
constexpr const char* kBootKey = "boot";
constexpr const char* kHashSeedKey = "hash_seed";
constexpr std::size_t kValueHeaderBytes = 16;  // version 8, record_traits 8

rocksdb::Slice slice(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
Bytes bytes_of(const rocksdb::Slice& text) {
  return as_bytes({text.data(), text.size()});
}

// RocksDB reports errors as values, but allocates and uses the standard library underneath.
template <class Call>
rocksdb::Status guarded(Call&& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return rocksdb::Status::MemoryLimit();
  } catch (const std::exception& error) {
    return rocksdb::Status::Aborted(error.what());
  } catch (...) {
    return rocksdb::Status::Aborted("unknown exception");
  }
}

Error to_error(const rocksdb::Status& status, const std::string& text) {
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  if (status.IsCorruption()) {
    return {.code = Code::kCorrupt,
            .text =
                "the database is damaged: restore the data directory from a copy, or move it "
                "away to start empty"};
  }
  if (status.IsNoSpace() || says("No space left")) {
    return {.code = Code::kIo, .text = "the disk of the data directory is full: make room on it"};
  }
  if (says("Permission denied") || says("Read-only file system")) {
    return {.code = Code::kPermission,
            .text = "the data directory is not writable: check its owner, mode and mount options"};
  }
  if (says("lock ") && says("LOCK")) {
    return {.code = Code::kConflict, .text = "another process has the database open"};
  }
  if (status.IsMemoryLimit()) {
    return {.code = Code::kOutOfMemory, .text = "no memory for the database"};
  }
  if (status.IsIOError() || status.IsNotFound()) {
    return {.code = Code::kIo,
            .text = "the disk of the data directory failed: see the server's log"};
  }
  return {.code = Code::kInternal, .text = "the database refused: see the server's log"};
}

// RocksDB's own log lines, without a file of its own: after a failed write to that file the next
// line would end the process, because Debian builds RocksDB with assertions on (a full disk is
// enough). What matters comes back as a status anyway.
class QuietLogger final : public rocksdb::Logger {
 public:
  QuietLogger() : rocksdb::Logger(rocksdb::InfoLogLevel::WARN_LEVEL) {}
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {  // NOLINT: RocksDB's name
    if (!log_enabled(LogLevel::kDebug)) return;
    std::array<char, 512> line{};
    (void)std::vsnprintf(line.data(), line.size(), format, arguments);
    log_line(LogLevel::kDebug, line.data());
  }
};

// Two cores, most of the memory for the records that clients READ: the database gets two memtables
// of 32 MiB and a cache that holds little more than index blocks, because nothing is ever looked up
// by key - it is written in order and read once, from end to end.
rocksdb::Options database_options() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.write_buffer_size = std::size_t{32} << 20;
  options.max_write_buffer_number = 2;
  options.max_background_jobs = 2;  // one flush and one compaction: workers need the cores
  options.level_compaction_dynamic_level_bytes = true;  // least space for data that is overwritten
  // A flush of the data family alone keeps old logs alive because of the meta family; this bounds
  // them, and with them the time of a restart.
  options.max_total_wal_size = std::uint64_t{128} << 20;
  options.max_open_files = 256;
  // Writes back steadily, so that sync() does not meet a whole memtable of dirty pages.
  options.bytes_per_sync = std::uint64_t{1} << 20;
  options.wal_bytes_per_sync = std::uint64_t{512} << 10;
  // Stops replay at the first damaged record: what survives is a prefix (E1). Damage in a log that
  // was closed and synced is no crash and is reported instead.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  options.track_and_verify_wals_in_manifest = true;
  // What a start found in the log is synced before the start goes on: everything of earlier boots
  // counts as synced.
  options.avoid_flush_during_recovery = false;
  options.info_log = std::make_shared<QuietLogger>();
  options.stats_dump_period_sec = 0;

  const std::vector<rocksdb::CompressionType> supported = rocksdb::GetSupportedCompressions();
  const bool has_lz4 = std::ranges::find(supported, rocksdb::kLZ4Compression) != supported.end();
  options.compression = has_lz4 ? rocksdb::kLZ4Compression : rocksdb::kNoCompression;

  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(std::size_t{16} << 20);
  table.cache_index_and_filter_blocks = true;  // so that the cache bounds them
  table.block_size = std::size_t{32} << 10;    // read from end to end: fewer, longer blocks
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

}  // namespace

class Engine::Impl {
 public:
  explicit Impl(std::string path) : path_(std::move(path)), options_(database_options()) {}
  ~Impl() { (void)close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status open();
  Status close();
  Status read_meta();
  Status read_hash_seed();
  Status claim_boot();
  Status for_each(const Visitor& visit);
  Status write_batch();
  Status sync();
  Status recover();

  // Logs the full text of an error, once while it stays the same.
  Status check(const char* what, const rocksdb::Status& status);

  std::string path_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* data_ = nullptr;
  rocksdb::ColumnFamilyHandle* meta_ = nullptr;
  rocksdb::WriteBatch batch_;
  std::uint16_t claimed_boot_ = 0;
  std::uint64_t hash_seed_ = 0;
  std::string last_error_;

 private:
  Status check_families();
  Result<bool> data_is_empty();
  Status initialise();
  Status check_writable() const;
};

Status Engine::Impl::check(const char* what, const rocksdb::Status& status) {
  if (status.ok()) {
    last_error_.clear();
    return {};
  }
  const std::string text = status.ToString();
  if (text != last_error_) log_error("database {}: {}: {}", path_, what, text);
  last_error_ = text;
  return std::unexpected(to_error(status, text));
}

// E3, before anything is opened for writing.
Status Engine::Impl::check_families() {
  std::vector<std::string> names;
  const auto listed =
      guarded([&] { return rocksdb::DB::ListColumnFamilies(options_, path_, &names); });
  if (!listed.ok()) {
    // No CURRENT file: nothing there yet. Anything else shows again, better told, in open().
    return {};
  }
  const bool foreign = std::ranges::any_of(names, [](const std::string& name) {
    return name != rocksdb::kDefaultColumnFamilyName && name != kMetaFamily;
  });
  if (foreign) {
    return fail(Code::kConflict,
                "the data directory holds the database of another program: choose another "
                "--data-dir");
  }
  return {};
}

Status Engine::Impl::open() {
  RKV_RETURN_IF_ERROR(check_families());
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
  return {};
}

Status Engine::Impl::close() {
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
  rocksdb::WriteOptions synced;
  synced.sync = true;
  RKV_RETURN_IF_ERROR(check("write the format version", guarded([&] {
                              return db_->Put(synced, meta_, kFormatKey, slice(format));
                            })));
  return read_hash_seed();
}

// Drawn once for the life of the data: how full the index' pairs of groups are depends on it, so
// that what fitted into a memory once fits again.
Status Engine::Impl::read_hash_seed() {
  std::string seed;
  const auto found = guarded([&] { return db_->Get({}, meta_, kHashSeedKey, &seed); });
  if (!found.IsNotFound()) {
    RKV_RETURN_IF_ERROR(check("read the hash seed", found));
    if (seed.size() != 8) return fail(Code::kCorrupt, "the hash seed makes no sense");
    hash_seed_ = load_le<std::uint64_t>(as_bytes(seed).data());
    return {};
  }
  hash_seed_ = random_from_kernel();
  std::array<std::byte, 8> bytes{};
  store_le(bytes.data(), hash_seed_);
  rocksdb::WriteOptions synced;
  synced.sync = true;
  return check("write the hash seed",
               guarded([&] { return db_->Put(synced, meta_, kHashSeedKey, slice(bytes)); }));
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
  RKV_RETURN_IF_ERROR(read_hash_seed());
  std::string boot;
  const auto counter = guarded([&] { return db_->Get({}, meta_, kBootKey, &boot); });
  if (counter.IsNotFound()) return {};
  RKV_RETURN_IF_ERROR(check("read the boot counter", counter));
  if (boot.size() != 2) return fail(Code::kCorrupt, "the boot counter makes no sense");
  claimed_boot_ = load_le<std::uint16_t>(as_bytes(boot).data());
  if (claimed_boot_ == std::numeric_limits<std::uint16_t>::max()) {
    return fail(Code::kUnsupported,
                "the data directory has seen 65535 starts, which is its limit: copy the data to a "
                "new one");
  }
  return {};
}

Status Engine::Impl::claim_boot() {
  std::array<std::byte, 2> boot{};
  store_le(boot.data(), static_cast<std::uint16_t>(claimed_boot_ + 1));
  rocksdb::WriteOptions synced;
  synced.sync = true;
  return check("raise the boot counter",
               guarded([&] { return db_->Put(synced, meta_, kBootKey, slice(boot)); }));
}

Status Engine::Impl::for_each(const Visitor& visit) {
  rocksdb::ReadOptions whole;
  whole.fill_cache = false;
  whole.readahead_size = std::size_t{2} << 20;
  std::unique_ptr<rocksdb::Iterator> at;
  const auto made = guarded([&] {
    at.reset(db_->NewIterator(whole, data_));
    at->SeekToFirst();
    return at->status();
  });
  RKV_RETURN_IF_ERROR(check("read the records", made));
  while (at->Valid()) {
    const Bytes key = bytes_of(at->key());
    const Bytes value = bytes_of(at->value());
    if (key.empty() || key.size() > kMaxKeyBytes || value.size() < kValueHeaderBytes ||
        value.size() - kValueHeaderBytes > kMaxValueBytes) {
      log_error("database {}: a record of {} bytes under a key of {} bytes is not ours", path_,
                value.size(), key.size());
      return fail(Code::kCorrupt, "the database holds a record that makes no sense");
    }
    RecordFields record{.version = {load_le<std::uint64_t>(value.data())},
                        .key = key,
                        .value = value.subspan(kValueHeaderBytes)};
    set_record_traits(record, load_le<std::uint64_t>(value.data() + 8));
    RKV_RETURN_IF_ERROR(visit(record));
    const auto moved = guarded([&] {
      at->Next();
      return at->status();
    });
    RKV_RETURN_IF_ERROR(check("read the records", moved));
  }
  return {};
}

Status Engine::Impl::write_batch() {
  if (batch_.Count() == 0) return {};
  const rocksdb::WriteOptions unsynced;  // log on, sync off: sync() is for everything at once
  RKV_RETURN_IF_ERROR(check("write", guarded([&] { return db_->Write(unsynced, &batch_); })));
  batch_.Clear();
  return {};
}

Status Engine::Impl::sync() {
  return check("sync", guarded([&] { return db_->FlushWAL(true); }));
}

// Resume() is enough for what RocksDB calls a soft or hard error; after a fatal one, such as a
// failed write to its own list of files, it has to be opened anew.
Status Engine::Impl::recover() {
  if (db_ != nullptr && guarded([&] { return db_->Resume(); }).ok()) return {};
  (void)close();  // its unsynced rest is written again by the caller
  db_.reset();
  return open();
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::open(const std::string& directory) {
  auto impl = std::make_unique<Impl>(directory + "/db");
  RKV_RETURN_IF_ERROR(impl->open());
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
Status Engine::for_each(const Visitor& visit) {
  return impl_->for_each(visit);
}

std::uint64_t Engine::estimated_records() const {
  std::uint64_t records = 0;
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

std::size_t Engine::batch_bytes() const {
  return impl_->batch_.GetDataSize();
}
std::uint32_t Engine::batch_count() const {
  return impl_->batch_.Count();
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
Status Engine::close() {
  return impl_->close();
}

}  // namespace rkv::server
