#include "server/persistence/wal/log_chain.h"

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/bytes.h"
#include "server/persistence/wal/log_files.h"
#include "server/persistence/wal/log_reader.h"
#include "server/persistence/wal/log_stamp.h"
#include "server/persistence/wal/rocksdb_calls.h"

namespace rkv::server {

using rocksdb::Slice;
using rocksdb::Status;
using rocksdb::WriteBatch;

namespace {

// A batch begins with its sequence (8) and its count of operations (4). A log begins with a
// fragment's header and a batch. These functions return 0 when the input is too short.
std::uint64_t sequence_of(const Slice& batch) {
  return batch.size() < 8 ? 0 : load_le<std::uint64_t>(database::bytes_of(batch).data());
}
std::uint32_t count_of(const Slice& batch) {
  return batch.size() < 12 ? 0 : load_le<std::uint32_t>(database::bytes_of(batch).data() + 8);
}
std::uint64_t first_sequence(rocksdb::Env& env, const std::string& log_file) {
  std::unique_ptr<rocksdb::SequentialFile> file;
  std::array<char, LogReader::kHeaderBytes + 8> buffer{};
  Slice bytes;
  Status read = env.NewSequentialFile(log_file, &file, {});
  if (read.ok()) read = file->Read(buffer.size(), &bytes, buffer.data());
  if (!read.ok() || bytes.size() < buffer.size()) return 0;
  bytes.remove_prefix(LogReader::kHeaderBytes);
  return sequence_of(bytes);
}

// First log that a start replays for the records' family.
std::uint64_t first_needed(const std::map<std::uint32_t, std::uint64_t>& first_logs) {
  constexpr std::uint32_t kRecords = 0;  // number of the default family
  const auto found = first_logs.find(kRecords);
  return found == first_logs.end() ? 0 : found->second;
}

}  // namespace

void LogChain::ColumnFamilyLogNumberMap(const std::map<std::uint32_t, std::uint64_t>& first_logs,
                                        const std::map<std::string, std::uint32_t>& /*ids*/) {
  needed_ = first_needed(first_logs);
}

// Whether the record is the next of the chain. The very first record has no predecessor to compare
// with, nor has the first record of a log up to needed_ (CHAIN-1). If its log begins with a
// different record, that record is damaged.
bool LogChain::continues(std::uint64_t log_number, const std::string& log_file,
                         std::uint64_t sequence) {
  const bool begins = log_ != log_number;
  if (begins && log_number <= needed_) expected_ = 0;
  if (expected_ != 0) return sequence == expected_;
  return !begins || first_sequence(env_, log_file) == sequence;
}

LogChain::WalProcessingOption LogChain::LogRecordFound(unsigned long long log_number,
                                                       const std::string& log_file,
                                                       const WriteBatch& batch,
                                                       WriteBatch* /*new_batch*/,
                                                       bool* /*changed*/) {
  const std::uint64_t sequence = sequence_of(batch.Data());
  if (!continues(log_number, log_file, sequence)) gap_ = true;
  log_ = log_number;
  expected_ = sequence + batch.Count();
  return gap_ ? WalProcessingOption::kStopReplay : WalProcessingOption::kContinueProcessing;
}

namespace {

// Finds which logs a start would replay. They follow from what is in tables.
class LiveLogs final : public rocksdb::WalFilter {
 public:
  const char* Name() const override { return "rkv.LiveLogs"; }
  void ColumnFamilyLogNumberMap(const std::map<std::uint32_t, std::uint64_t>& first_logs,
                                const std::map<std::string, std::uint32_t>& /*ids*/) override {
    for (const auto& [family, log] : first_logs)
      first = std::min(first, log);
    needed = first_needed(first_logs);
  }

  std::uint64_t needed = 0;
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();  // none
};

// Facts read from the tables.
struct Known {
  std::uint64_t first_log = 0;
  std::uint64_t needed_log = 0;       // as in LogChain
  std::optional<std::uint64_t> mark;  // nullopt: no batch has been written yet
};

Status read_mark(rocksdb::DB& db, rocksdb::ColumnFamilyHandle* meta, Known* known) {
  std::string bytes;
  Status read = db.Get({}, meta, database::kMarkKey, &bytes);
  if (read.IsNotFound()) return Status::OK();
  if (!read.ok()) return read;
  if (bytes.size() != 8) return Status::Corruption("the mark of the logs is invalid");
  known->mark = load_le<std::uint64_t>(as_bytes(bytes).data());
  return read;
}

Status look_at_tables(const rocksdb::Options& options, const std::string& path, Known* known) {
  LiveLogs live;
  EnvWithFiles env(*options.env,
                   std::make_shared<CutLogs>(options.env->GetFileSystem(), LogFilePosition{}));
  rocksdb::Options reading = options;
  reading.env = &env;
  reading.create_if_missing = false;
  reading.create_missing_column_families = false;
  reading.wal_filter = &live;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* raw = nullptr;
  Status looked = rocksdb::DB::OpenForReadOnly(
      reading, path,
      {{rocksdb::kDefaultColumnFamilyName, reading}, {database::kMetaFamily, reading}}, &handles,
      &raw);
  if (!looked.ok()) return looked;
  const std::unique_ptr<rocksdb::DB> db(raw);
  known->first_log = live.first;
  known->needed_log = live.needed;
  looked = read_mark(*db, handles[1], known);
  for (rocksdb::ColumnFamilyHandle* handle : handles)
    (void)db->DestroyColumnFamilyHandle(handle);
  (void)db->Close();
  return looked;
}

// Finds the logs from number `first` on, ordered by number.
Status logs_from(std::uint64_t first, rocksdb::Env& env, const std::string& path,
                 std::map<std::uint64_t, std::string>* logs) {
  std::vector<std::string> names;
  if (Status listed = env.GetChildren(path, &names); !listed.ok()) return listed;
  for (const std::string& name : names) {
    const std::uint64_t number = log_number(name);
    if (number != 0 && number >= first) logs->emplace(number, path + "/" + name);
  }
  return Status::OK();
}

class Judge {
 public:
  Judge(rocksdb::Env& env, const Known& known) : env_(env), known_(known) {}

  // Adds a log. REQUIRES: ascending numbers.
  Status add(std::uint64_t number, const std::string& log) {
    std::uint64_t bytes = 0;
    if (Status sized = env_.GetFileSize(log, &bytes); !sized.ok()) return sized;
    if (!broken_) {
      if (Status followed = follow(number, log, bytes); !followed.ok()) return followed;
    }
    if (!broken_) return Status::OK();
    found_.torn_bytes += bytes - (broken_->log == number ? broken_->bytes : 0);
    return known_.mark ? look_for_proof(number, log) : Status::OK();
  }
  LogsFound found() const {
    LogsFound found = found_;
    if (broken_) found.sound_end = *broken_;
    return found;
  }

 private:
  // Follows the chain through a log. Sets broken_ if the chain ends before the log does.
  Status follow(std::uint64_t number, const std::string& log, std::uint64_t bytes) {
    std::unique_ptr<rocksdb::SequentialFile> file;
    if (Status opened = env_.NewSequentialFile(log, &file, {}); !opened.ok()) return opened;
    LogReader reader(std::move(file));
    if (number <= known_.needed_log) expected_ = 0;
    std::uint64_t begin = 0;
    for (; reader.next(); begin = reader.sound_bytes()) {
      const std::uint64_t sequence = sequence_of(reader.record());
      if (expected_ != 0 && sequence != expected_) {
        broken_ = begin == 0 ? end_ : LogFilePosition{.log = number, .bytes = begin};
        return Status::OK();
      }
      expected_ = sequence + count_of(reader.record());
    }
    end_ = {.log = number, .bytes = begin};
    if (begin < bytes) broken_ = end_;
    return reader.failure();
  }

  Status look_for_proof(std::uint64_t number, const std::string& log) {
    std::unique_ptr<rocksdb::SequentialFile> file;
    if (Status opened = env_.NewSequentialFile(log, &file, {}); !opened.ok()) return opened;
    std::vector<char> buffer(LogReader::kBlockBytes);
    StampFinder stamps(*known_.mark);
    for (;;) {
      Slice block;
      if (Status read = file->Read(buffer.size(), &block, buffer.data()); !read.ok()) return read;
      if (block.empty()) break;
      stamps.add(database::bytes_of(block));
    }
    const bool in_later_log = stamps.highest() && number > broken_->log;  // LOGF-1
    if (in_later_log || stamps.highest() > broken_) found_.damaged = true;
    return Status::OK();
  }

  rocksdb::Env& env_;
  const Known known_;
  std::uint64_t expected_ = 0;  // next sequence; 0: any is accepted
  LogFilePosition end_;         // end of the last sound log
  std::optional<LogFilePosition> broken_;
  LogsFound found_;
};

}  // namespace

Status check_logs(const rocksdb::Options& options, const std::string& path, LogsFound* found) {
  return database::guarded([&] {
    rocksdb::Env& env = *options.env;
    *found = {};
    if (env.FileExists(path + "/CURRENT").IsNotFound()) return Status::OK();
    Known known;
    Status looked = look_at_tables(options, path, &known);
    if (looked.IsInvalidArgument()) return Status::OK();  // a missing family: it holds nothing
    std::map<std::uint64_t, std::string> logs;
    if (looked.ok()) looked = logs_from(known.first_log, env, path, &logs);
    Judge judge(env, known);
    for (auto log = logs.begin(); looked.ok() && log != logs.end(); ++log)
      looked = judge.add(log->first, log->second);
    *found = judge.found();
    return looked;
  });
}

}  // namespace rkv::server
