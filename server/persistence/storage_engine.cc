#include "server/persistence/storage_engine.h"

#include <array>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "server/persistence/storage_engine_impl.h"
#include "server/persistence/wal/log_stamp.h"

namespace rkv::server {

using database::guarded;
using database::kValueHeaderBytes;
using database::slice;
using database::to_error;

Status StorageEngine::Impl::check(const char* what, const rocksdb::Status& status) {
  if (status.ok()) return {};
  const std::string text = status.ToString();
  const Error error = to_error(status, text);
  const bool repeated = std::exchange(last_error_, error.text) == error.text;
  log_to(repeated ? LogLevel::kDebug : LogLevel::kError, EventName("database_error"),
         "database {}: {}: {}", path_, what, text);
  if (error.code == Code::kCorrupt) options_.disable_auto_compactions = true;
  return std::unexpected(error);
}

Status StorageEngine::Impl::write_batch() {
  if (batch_.Count() == 0) {
    incomplete_.store(false, std::memory_order_release);
    return {};
  }
  RKV_CHECK(batch_.PutLogData(stamp_of(synced_, mark_)).ok(), "a batch refused its stamp");
  const rocksdb::WriteOptions unsynced;  // log on, sync off: sync() covers all batches at once
  RKV_RETURN_IF_ERROR(check("write", guarded([&] { return db_->Write(unsynced, &batch_); })));
  batch_.Clear();
  incomplete_.store(false, std::memory_order_release);
  return {};
}

Status StorageEngine::Impl::sync() {
  const LogFilePosition written = files_->end();  // no concurrent writes (LOGF-5)
  RKV_RETURN_IF_ERROR(check("sync", guarded([&] { return db_->FlushWAL(true); })));
  RKV_RETURN_IF_ERROR(check("sync", files_->failure()));  // LOGF-2
  RKV_RETURN_IF_ERROR(check_home());
  last_error_ = nullptr;
  synced_ = written;
  return {};
}

StorageEngine::StorageEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StorageEngine::~StorageEngine() = default;

Result<std::unique_ptr<StorageEngine>> StorageEngine::open(const std::string& directory,
                                                           const EngineOptions& options) {
  auto impl = std::make_unique<Impl>(directory + kDatabaseDirectory, options);
  RKV_RETURN_IF_ERROR(database::check_families(impl->options_, impl->path_));  // DISK-3
  RKV_RETURN_IF_ERROR(impl->check_log(options.accept_damaged_log));
  Status opened = impl->open();
  if (!opened && opened.error().code == Code::kCorrupt && options.accept_damaged_log) {
    // A log is shorter than RocksDB recorded, and no stamp proved it (CHAIN-1): use the logs as
    // they are.
    RKV_RETURN_IF_ERROR(impl->drop_behind({.log = std::numeric_limits<std::uint64_t>::max()}));
    opened = impl->open();
  }
  RKV_RETURN_IF_ERROR(opened);
  RKV_RETURN_IF_ERROR(impl->sync_name());
  RKV_RETURN_IF_ERROR(impl->read_meta());
  // The last claim may have been behind the damage.
  if (impl->dropped_) RKV_RETURN_IF_ERROR(impl->write_skip());
  return std::unique_ptr<StorageEngine>(new StorageEngine(std::move(impl)));
}

std::uint32_t StorageEngine::boot() const {
  return impl_->boot_;
}
std::uint64_t StorageEngine::earlier_unix_ms() const {
  return impl_->earlier_unix_ms_;
}
std::uint64_t StorageEngine::hash_seed() const {
  return impl_->hash_seed_;
}
Status StorageEngine::claim_boot() {
  return impl_->claim_boot();
}
Status StorageEngine::claim_through(std::uint64_t sequence) {
  return impl_->claim_through(sequence);
}

Status StorageEngine::read(Bytes key, const Visitor& visit) const {
  const auto lock = impl_->shared();
  return impl_->db_ ? database::read(impl_->records(), key, visit) : disk_has_failed();
}
Status StorageEngine::read_from(Bytes first, const RangeVisitor& visit) const {
  const auto lock = impl_->shared();
  return impl_->db_ ? database::read_from(impl_->records(), first, visit) : disk_has_failed();
}
std::uint64_t StorageEngine::reopened() const {
  return impl_->reopened_.load();
}
std::uint64_t StorageEngine::damaged_reads() const {
  return impl_->read_errors_.damaged();
}

std::uint64_t StorageEngine::estimated_records() const {
  std::uint64_t records = 0;
  const auto lock = impl_->shared();
  if (impl_->db_ == nullptr) return 0;
  if (!impl_->db_->GetIntProperty(impl_->data_, "rocksdb.estimate-num-keys", &records)) return 0;
  return records;
}

void StorageEngine::add_put(const RecordFields& record) {
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

void StorageEngine::add_remove(Bytes key) {
  const auto added = guarded([&] { return impl_->batch_.Delete(impl_->data_, slice(key)); });
  RKV_CHECK(added.ok(), "a batch refused a key within the limits");
}

Result<std::optional<std::string>> StorageEngine::note(std::string_view name) const {
  return impl_->note(name);
}
Status StorageEngine::write_note(std::string_view name, Bytes bytes) {
  return impl_->write_note(name, bytes);
}
void StorageEngine::add_note(std::string_view name, Bytes bytes) {
  const auto added = guarded(
      [&] { return impl_->batch_.Put(impl_->meta_, database::note_key(name), slice(bytes)); });
  RKV_CHECK(added.ok(), "a batch refused a note");
}
Status StorageEngine::begin_at(std::uint32_t boot) {
  if (boot <= impl_->claimed_boot_)
    return fail(Code::kConflict, "an earlier start may have used the versions of this term");
  impl_->boot_ = boot;
  return {};
}

Status StorageEngine::write_batch() {
  return impl_->write_batch();
}
void StorageEngine::clear_batch() {
  impl_->batch_.Clear();
}
Status StorageEngine::sync() {
  return impl_->sync();
}
Status StorageEngine::recover() {
  return impl_->recover();
}
Status StorageEngine::check_whole() {
  return impl_->check_whole();
}
Status StorageEngine::checkpoint(const std::string& target) {
  return impl_->checkpoint(target);
}
void StorageEngine::stop_checkpoints() {
  impl_->files_->stop_copies();
}
Status StorageEngine::read_range(const KeyRange& range, const RangeVisitor& visit) const {
  const auto lock = impl_->shared();
  if (impl_->db_ == nullptr || impl_->incomplete_.load(std::memory_order_acquire)) {
    return disk_has_failed();
  }
  return database::read_range(impl_->records(), range, visit);
}
Status StorageEngine::skip_boots() {
  return impl_->skip_boots();
}
Status StorageEngine::close() {
  return impl_->close();
}

}  // namespace rkv::server
