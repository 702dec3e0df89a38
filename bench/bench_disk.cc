// bench_disk: the cost of the disk without clients and server, as comparison for bench_durability;
// see README.md. Needs no server and no device.
//
//   rocksdb    RocksDB's own batch loop: --keys records in batches of the applier's size, the
//              server's options, write-ahead log on; the log is synced at the end, and before that
//              after every --sync-bytes
//   queue      the same records through commit log, applier and engine, as in the server
//   log        PUTs of --writers that are synced, in logs of several kinds (disk_log.h)
//   read       opens the database of a stopped server, gets one record, then reads all records
//
// Prints one JSON object. Exit status: see program.h.
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/disk_log.h"
#include "bench/program.h"
#include "common/bytes.h"
#include "common/check.h"
#include "common/clock.h"
#include "common/process_time.h"
#include "server/log/commit_log.h"
#include "server/persistence/applier.h"
#include "server/persistence/database.h"
#include "server/persistence/storage_engine.h"

namespace rkv::bench {
namespace {

namespace database = server::database;

void check(const rocksdb::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

// Gives up if the disk has failed. It might recover, but a figure that contains a pause is useless.
void check(const server::CommitLog& log) {
  if (log.failed())
    throw std::runtime_error(server::refusal_of(server::Refused::kWrite, log.disk_state()).text);
}

// Opens the database as StorageEngine does, except for the file system that records failed syncs.
class Database {
 public:
  explicit Database(const std::string& directory) {
    const rocksdb::Options options = database::options();
    const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
        {rocksdb::kDefaultColumnFamilyName, options}, {database::kMetaFamily, options}};
    rocksdb::DB* db = nullptr;
    check(rocksdb::DB::Open(options, directory + server::kDatabaseDirectory, families, &handles_,
                            &db));
    db_.reset(db);
  }
  ~Database() {
    for (rocksdb::ColumnFamilyHandle* handle : handles_)
      (void)db_->DestroyColumnFamilyHandle(handle);
    (void)db_->Close();
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  rocksdb::DB& operator*() const { return *db_; }
  rocksdb::DB* operator->() const { return db_.get(); }
  rocksdb::ColumnFamilyHandle* records() const { return handles_[0]; }

 private:
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

json rates(const Arguments& given, double seconds, std::uint64_t batches, std::uint64_t syncs) {
  return {{"seconds", seconds},
          {"records_per_s", static_cast<double>(given["keys"]) / seconds},
          {"batches", batches},
          {"syncs", syncs}};
}

json rocksdb_loop(const Arguments& given) {
  const std::vector<std::string> keys = shuffled_keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  const server::ApplierOptions limits;
  const std::uint64_t sync_bytes = given["sync-bytes"];
  const Database db(given.text("directory"));
  rocksdb::WriteBatch batch;
  std::uint64_t batches = 0;
  std::uint64_t syncs = 1;
  std::uint64_t unsynced = 0;
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    std::array<std::byte, database::kValueHeaderBytes> header{};
    store_le(header.data(), i);
    const std::string& text = values[i % values.size()];
    const rocksdb::Slice key(keys[i]);
    const std::array<rocksdb::Slice, 2> value = {database::slice(header), rocksdb::Slice(text)};
    check(batch.Put(db.records(), rocksdb::SliceParts(&key, 1),
                    rocksdb::SliceParts(value.data(), value.size())));
    const bool full =
        batch.Count() >= limits.batch_records || batch.GetDataSize() >= limits.batch_bytes;
    if (!full && i + 1 != keys.size()) continue;
    unsynced += batch.GetDataSize();
    check(db->Write({}, &batch));
    batch.Clear();
    ++batches;
    if (unsynced < sync_bytes) continue;
    check(db->FlushWAL(true));
    ++syncs;
    unsynced = 0;
  }
  check(db->FlushWAL(true));
  return rates(given, seconds_since(begin), batches, syncs);
}

// Stops the applier's thread in all cases.
class Running {
 public:
  explicit Running(server::Applier& applier) : applier_(applier) { applier_.start(); }
  ~Running() { (void)applier_.stop(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  server::Applier& applier_;
};

json queue(const Arguments& given) {
  const std::vector<std::string> keys = shuffled_keys_of(given["keys"]);
  const std::vector<std::string> values = values_of(given["value-bytes"]);
  auto log = value_or_give_up("queue", server::CommitLog::create(given["queue-bytes"]));
  const auto engine =
      value_or_give_up("open", server::StorageEngine::open(given.text("directory")));
  const SteadyClock clock;
  server::Applier applier(*log, *engine, clock, {.stop_timeout_ms = 0}, [] {});
  std::uint64_t waits = 0;
  const auto begin = Clock::now();
  const Running running(applier);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const RecordFields fields{.key = as_bytes(keys[i]),
                              .value = as_bytes(values[i % values.size()])};
    auto room = log->try_reserve(fields.key.size(), fields.value.size());
    for (; !room; room = log->try_reserve(fields.key.size(), fields.value.size())) {
      check(*log);
      ++waits;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    log->finish(log->begin(*room), server::CommitLog::Kind::kPut, fields);
  }
  applier.request_sync(log->last_begun());
  while (log->sync_mark() < log->last_begun()) {
    check(*log);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  const double seconds = seconds_since(begin);
  const server::Applier::Counts counts = applier.counts();
  json result = rates(given, seconds, counts.batches, counts.syncs);
  result["waits"] = waits;
  return result;
}

double cpu_seconds() {
  const ProcessTime used = ProcessTime::now();
  return static_cast<double>(used.user_us + used.system_us) / 1e6;
}

json read(const Arguments& given) {
  auto begin = Clock::now();
  const Database db(given.text("directory"));
  std::string value;
  check(db->Get({}, db.records(), key_of(given["keys"] / 2), &value));
  const double opened = seconds_since(begin);
  begin = Clock::now();
  const double cpu_before = cpu_seconds();
  rocksdb::ReadOptions whole;
  whole.fill_cache = false;
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;
  const std::unique_ptr<rocksdb::Iterator> at(db->NewIterator(whole, db.records()));
  for (at->SeekToFirst(); at->Valid(); at->Next()) {
    ++records;
    bytes += at->key().size() + at->value().size();
  }
  check(at->status());
  const double seconds = seconds_since(begin);
  return {{"open_seconds", opened},
          {"read_seconds", seconds},
          {"cpu_seconds", cpu_seconds() - cpu_before},
          {"records", records},
          {"bytes", bytes},
          {"records_per_s", static_cast<double>(records) / seconds}};
}

Program program() {
  return {
      .name = "bench_disk",
      .purpose = "Cost of the disk without clients and server.",
      .flags = {{"keys", "records to write or that exist", 100'000},
                {"value-bytes", "size of a value", 100},
                {"sync-bytes", "bytes between two syncs of the log", std::uint64_t{1} << 60},
                {"queue-bytes", "size of the commit log", std::uint64_t{64} << 20},
                {"writers", "threads that wait for their syncs", 16},
                {"under-way", "syncs at once", 1},
                {"gather-us", "how long a log thread waits for more records; 1: not", 1},
                {"slices", "of writes, each with one of fdatasync", 10},
                {"slice-ms", "time of one", 200}},
      .phases = {{"rocksdb", rocksdb_loop}, {"queue", queue}, {"log", log_groups}, {"read", read}},
      .texts = {{"directory", "existing data directory", "."},
                {"way", "rocksdb, growing or zeroed", "zeroed"}}};
}

}  // namespace
}  // namespace rkv::bench

int main(int argc, char** argv) {
  return rkv::bench::run_program(argc, argv, rkv::bench::program());
}
