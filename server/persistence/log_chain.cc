#include "server/persistence/log_chain.h"

#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "common/bytes.h"
#include "server/persistence/database.h"

namespace rkv::server {

using rocksdb::Slice;
using rocksdb::Status;
using rocksdb::WriteBatch;

namespace {

constexpr std::string_view kStamp = "rkv.synced";

class FindStamp final : public WriteBatch::Handler {
 public:
  void LogData(const Slice& blob) override {
    if (blob.size() != kStamp.size() + 8 || !blob.starts_with(Slice(kStamp.data(), kStamp.size())))
      return;
    synced = load_le<std::uint64_t>(database::bytes_of(blob).data() + kStamp.size());
  }
  Status PutCF(std::uint32_t /*family*/, const Slice& /*key*/, const Slice& /*value*/) override {
    return Status::OK();
  }
  Status DeleteCF(std::uint32_t /*family*/, const Slice& /*key*/) override { return Status::OK(); }

  std::uint64_t synced = 0;
};

// A batch begins with its sequence, and a log with a header of 7 bytes and a batch. 0: not so long.
constexpr std::size_t kLogHeaderBytes = 7;
std::uint64_t sequence_of(const Slice& batch) {
  return batch.size() < 8 ? 0 : load_le<std::uint64_t>(database::bytes_of(batch).data());
}
std::uint64_t first_sequence(const std::string& log_file) {
  std::unique_ptr<rocksdb::SequentialFile> file;
  std::array<char, kLogHeaderBytes + 8> buffer{};
  Slice bytes;
  Status read = rocksdb::Env::Default()->NewSequentialFile(log_file, &file, {});
  if (read.ok()) read = file->Read(buffer.size(), &bytes, buffer.data());
  if (!read.ok() || bytes.size() < buffer.size()) return 0;
  bytes.remove_prefix(kLogHeaderBytes);
  return sequence_of(bytes);
}

}  // namespace

Status LogChain::stamp(WriteBatch& batch, std::uint64_t synced) {
  std::string blob(kStamp);
  std::array<std::byte, 8> number{};
  store_le(number.data(), synced);
  blob.append(as_text(number));
  return batch.PutLogData(blob);
}

// The first record of all has none before it to be compared with; but when the log begins with
// another one, that one is damaged.
bool LogChain::continues(std::uint64_t log_number, const std::string& log_file,
                         std::uint64_t sequence) {
  if (expected_ != 0) return sequence == expected_;
  return log_ == log_number || first_sequence(log_file) == sequence;
}

LogChain::WalProcessingOption LogChain::LogRecordFound(unsigned long long log_number,
                                                       const std::string& log_file,
                                                       const WriteBatch& batch,
                                                       WriteBatch* /*new_batch*/,
                                                       bool* /*changed*/) {
  const std::uint64_t sequence = sequence_of(batch.Data());
  if (!gap_ && !continues(log_number, log_file, sequence)) {
    gap_ = true;
    missing_ = expected_ != 0 ? expected_ : sequence - 1;
  }
  log_ = log_number;
  expected_ = sequence + batch.Count();
  if (gap_ && look_) {
    FindStamp found;
    if (batch.Iterate(&found).ok() && found.synced >= missing_) damaged_ = true;
  }
  if (look_) return WalProcessingOption::kIgnoreCurrentRecord;
  return gap_ ? WalProcessingOption::kStopReplay : WalProcessingOption::kContinueProcessing;
}

Status check_logs(const rocksdb::Options& options, const std::string& path,
                  const char* meta_family) {
  LogChain chain(true);
  rocksdb::Options reading = options;
  reading.create_if_missing = false;
  reading.create_missing_column_families = false;
  reading.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  reading.wal_filter = &chain;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* raw = nullptr;
  const Status opened = rocksdb::DB::OpenForReadOnly(
      reading, path, {{rocksdb::kDefaultColumnFamilyName, reading}, {meta_family, reading}},
      &handles, &raw);
  if (!opened.ok()) return Status::OK();
  const std::unique_ptr<rocksdb::DB> db(raw);
  for (rocksdb::ColumnFamilyHandle* handle : handles)
    (void)db->DestroyColumnFamilyHandle(handle);
  (void)db->Close();
  if (!chain.is_damaged()) return Status::OK();
  return Status::Corruption("a write-ahead log is damaged before its end, where it was synced");
}

}  // namespace rkv::server
