#include "server/persistence/inspection.h"

#include <fmt/format.h>
#include <rocksdb/sst_file_reader.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "server/persistence/database.h"
#include "server/persistence/history_note.h"
#include "server/persistence/storage_engine.h"
#include "server/persistence/wal/log_chain.h"

namespace rkv::server {

namespace {

using database::guarded;

// Formats a key for a line: bytes that are not printable ASCII as \xNN; a long key is cut.
std::string printable(const rocksdb::Slice& key) {
  constexpr std::size_t kMostBytes = 40;
  std::string text;
  for (const char c : std::string_view(key.data(), std::min(key.size(), kMostBytes))) {
    if (c > ' ' && c < '\x7f' && c != '\\') {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return key.size() > kMostBytes ? text + "..." : text;
}

class Inspector {
 public:
  using Tell = std::function<void(const std::string&)>;
  using TellLooked = std::function<void(Looked, std::uint64_t, std::uint64_t)>;

  Inspector(const std::string& directory, const Tell& tell, const TellLooked& looked)
      : path_(directory + kDatabaseDirectory),
        tell_(tell),
        looked_(looked),
        options_(database::options()) {
    options_.create_if_missing = false;
    options_.create_missing_column_families = false;
    options_.paranoid_checks = true;
  }
  ~Inspector() { close(); }
  Inspector(const Inspector&) = delete;
  Inspector& operator=(const Inspector&) = delete;

  Inspection run() {
    if (open()) {
      look_at_logs();
      look_at_tables();
      look_at_facts();
      look_at_records();
    }
    if (found_.problems > kMostProblemLines) {
      tell_(fmt::format("and {} more", found_.problems - kMostProblemLines));
    }
    return found_;
  }

 private:
  void problem(const std::string& line) {
    if (++found_.problems <= kMostProblemLines) tell_(line);
  }

  // Opens the database as a start would see it; look_at_logs() reports problems of the logs.
  bool open() {
    options_.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* db = nullptr;
    const auto opened = guarded([&] {
      return rocksdb::DB::OpenForReadOnly(
          options_, path_,
          {{rocksdb::kDefaultColumnFamilyName, options_}, {database::kMetaFamily, options_}},
          &handles, &db);
    });
    if (!opened.ok()) {
      problem(fmt::format("the database does not open: {}", opened.ToString()));
      return false;
    }
    db_.reset(db);
    data_ = handles[0];
    meta_ = handles[1];
    return true;
  }

  // Uses the same check as a start.
  void look_at_logs() {
    LogsFound logs;
    const auto looked = check_logs(options_, path_, &logs);
    if (!looked.ok()) problem(fmt::format("the write-ahead log: {}", looked.ToString()));
    if (logs.damaged) {
      problem(
          "the write-ahead log is damaged, and synced writes are lost with it: no server starts on "
          "it without --accept-damaged-log");
    }
    found_.torn_bytes = logs.torn_bytes;
  }

  void close() {
    if (db_ == nullptr) return;
    (void)guarded([&] {
      (void)db_->DestroyColumnFamilyHandle(data_);
      (void)db_->DestroyColumnFamilyHandle(meta_);
      return db_->Close();
    });
    db_.reset();
  }

  // Checks each table separately, so that all damaged tables are reported.
  void look_at_tables() {
    std::vector<rocksdb::LiveFileMetaData> tables;
    (void)guarded([&] {
      db_->GetLiveFilesMetaData(&tables);
      return rocksdb::Status::OK();
    });
    std::uint64_t bytes = 0;
    for (const rocksdb::LiveFileMetaData& table : tables)
      bytes += table.size;
    std::uint64_t done = 0;
    for (const rocksdb::LiveFileMetaData& table : tables) {
      const auto sound = guarded([&] {
        rocksdb::SstFileReader reader(options_);
        rocksdb::Status status = reader.Open(path_ + table.name);
        return status.ok() ? reader.VerifyChecksum() : status;
      });
      if (!sound.ok()) problem(fmt::format("table {}: {}", table.name, sound.ToString()));
      done += table.size;
      if (looked_) looked_(Looked::kTables, done, bytes);
    }
  }

  // Returns a fact that the database stores about itself; empty when it is missing or invalid.
  std::string fact(const char* name, std::size_t length, bool required) {
    std::string value;
    const auto read = guarded([&] { return db_->Get({}, meta_, name, &value); });
    if (read.IsNotFound()) {
      if (required) problem(fmt::format("the database's own \"{}\" is missing", name));
      return {};
    }
    if (!read.ok() || value.size() != length) {
      problem(fmt::format("the database's own \"{}\" is invalid: {}", name,
                          read.ok() ? fmt::format("{} bytes", value.size()) : read.ToString()));
      return {};
    }
    return value;
  }

  void look_at_facts() {
    const std::string format = fact(database::kFormatKey, 4, true);
    if (!format.empty() && load_le<std::uint32_t>(as_bytes(format).data()) != database::kFormat) {
      problem("the data was written by another version of kvserver");
    }
    (void)fact(database::kHashSeedKey, 8, true);
    const std::string boot = fact(database::kBootKey, 4, false);
    if (!boot.empty()) found_.boot = load_le<std::uint32_t>(as_bytes(boot).data());
    std::string history;
    const auto read =
        guarded([&] { return db_->Get({}, meta_, database::note_key(kHistoryNote), &history); });
    if (read.ok()) given_elsewhere_ = last_version_of(as_bytes(history));
  }

  bool was_given_out(Version version) const {
    return version.boot() != 0 &&
           (version.boot() <= found_.boot || version.bits <= given_elsewhere_);
  }

  void look_at_record(const rocksdb::Slice& key, const rocksdb::Slice& value) {
    ++found_.records;
    const auto record = database::record_of(key, value);
    if (!record) {
      return problem(fmt::format("key {}: {} bytes under a key of {} bytes are not a valid record",
                                 printable(key), value.size(), key.size()));
    }
    found_.bytes += record->key.size() + record->value.size();
    found_.highest = std::max(found_.highest, record->version);
    if (record->counter && record->value.size() != kCounterBytes) {
      problem(fmt::format("key {}: a counter of {} bytes", printable(key), record->value.size()));
    }
    if (!was_given_out(record->version)) {
      problem(fmt::format("key {}: version {} was never assigned", printable(key),
                          record->version.bits));
    }
  }

  void look_at_records() {
    rocksdb::ReadOptions whole;
    whole.fill_cache = false;
    whole.readahead_size = std::size_t{2} << 20;
    std::uint64_t expected = 0;
    (void)guarded([&] {
      (void)db_->GetIntProperty(data_, rocksdb::DB::Properties::kEstimateNumKeys, &expected);
      return rocksdb::Status::OK();
    });
    const auto read = guarded([&] {
      const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(whole, data_));
      for (at->SeekToFirst(); at->Valid(); at->Next()) {
        look_at_record(at->key(), at->value());
        if (looked_) looked_(Looked::kRecords, found_.records, expected);
      }
      return at->status();
    });
    if (read.ok()) return;
    problem(fmt::format("reading stopped after {} records: {}", found_.records, read.ToString()));
  }

  const std::string path_;
  const Tell& tell_;
  const TellLooked& looked_;
  rocksdb::Options options_;
  std::unique_ptr<rocksdb::DB> db_;
  rocksdb::ColumnFamilyHandle* data_ = nullptr;
  rocksdb::ColumnFamilyHandle* meta_ = nullptr;
  Inspection found_;
  // In a replica of a group: up to which version other servers have given out what it has got.
  std::uint64_t given_elsewhere_ = 0;
};

}  // namespace

Inspection inspect(
    const std::string& directory, const std::function<void(const std::string& line)>& tell,
    const std::function<void(Looked at, std::uint64_t done, std::uint64_t expected)>& looked) {
  return Inspector(directory, tell, looked).run();
}

}  // namespace rkv::server
