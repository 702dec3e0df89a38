#include "server/disk_work.h"

#include <string>

namespace rkv::server {

DiskWork::DiskWork(Parts parts) : parts_(std::move(parts)), engine_(*parts_.data.engine()) {
  scans_ = std::make_unique<Scans>(Scans::Parts{
      .log = parts_.log,
      .sweep =
          [this] {
            return store_->counter_cells().in_use() ? store_->counter_cells().sweep() : Status{};
          },
      .request_write = [this](std::uint64_t sequence) { applier_->request_write(sequence); },
      .read =
          [this](const KeyRange& range, const StorageEngine::RangeVisitor& visit) {
            return engine_.read_range(range, visit);
          },
      .has_expired =
          [this](const RecordFields& record) {
            return store_->expiry_clock().has_expired(record.expiry_ms, record.version);
          },
      .finished = parts_.wake_workers});
}

std::optional<Failure> DiskWork::open_backups() {
  if (parts_.options.backup_dir.empty()) return std::nullopt;
  if (auto failure = parts_.data.check_backups()) return failure;
  backups_ = std::make_unique<Backups>(
      parts_.data.backups().string(),
      Backups::Parts{
          .log = parts_.log,
          .checkpoint = [this](const std::string& to) { return engine_.checkpoint(to); },
          .stop_checkpoints = [this] { engine_.stop_checkpoints(); },
          .request_sync = [this](std::uint64_t sequence) { applier_->request_sync(sequence); },
          .finished = parts_.wake_workers});
  return std::nullopt;
}

DiskReads DiskWork::reads() const {
  return {.log = parts_.log,
          .read = [this](Bytes key,
                         const DiskReads::Visitor& visit) { return engine_.read(key, visit); },
          .read_from =
              [this](Bytes first, const DiskReads::RangeVisitor& visit) {
                return engine_.read_from(first, visit);
              },
          .reopened = [this] { return engine_.reopened(); }};
}

void DiskWork::attach(Store& store) {
  store_ = &store;
  store.disk().begin_loading();
  fetcher_ = std::make_unique<DiskFetcher>(DiskFetcher::Parts{
      .store = store,
      .disk = reads(),
      .request_write = [this](std::uint64_t sequence) { applier_->request_write(sequence); },
      .finished = parts_.wake_workers});
}

void DiskWork::start_applier(Storage& storage, std::function<void()> disk_moved) {
  const ApplierOptions options{.sync_interval_ms =
                                   static_cast<int>(parts_.options.sync_interval_ms)};
  applier_ =
      std::make_unique<Applier>(parts_.log, storage, parts_.clock, options, std::move(disk_moved));
  applier_->start();
}

void DiskWork::start_readers() {
  if (backups_) backups_->start();
  scans_->start();
}

void DiskWork::start_loading() {
  fetcher_->start();
  estimated_records_ = engine_.estimated_records();
  warm_up_ = std::make_unique<WarmUp>(WarmUp::Parts{
      .store = *store_,
      .disk = reads(),
      .clock = parts_.clock,
      .request_write = [this](std::uint64_t sequence) { applier_->request_write(sequence); },
      .estimated_records = estimated_records_,
      .bytes_per_second = parts_.options.load_rate_bytes});
  warm_up_->start();
}

void DiskWork::marks_changed() {
  if (backups_) backups_->marks_changed();
  scans_->marks_changed();
  fetcher_->marks_changed();
}

void DiskWork::begin_stop() {
  if (backups_) backups_->begin_stop();
}

void DiskWork::stop_reading() {
  if (backups_) backups_->stop();
  if (warm_up_) warm_up_->stop();
  if (fetcher_) fetcher_->stop();
}

void DiskWork::stop_scans() {
  scans_->stop();
}

Status DiskWork::stop() {
  return applier_->stop();
}

LoadFacts DiskWork::load() const {
  return {.loaded = warm_up_ ? warm_up_->records() : 0, .estimated = estimated_records_};
}

}  // namespace rkv::server
