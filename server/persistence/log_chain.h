// What a start reads in the write-ahead logs, looked at record by record: is it one chain, and if
// not, is what is missing the unsynced end that a lost machine may leave, or something that had
// been synced?
//
// Every batch of the applier carries, in the log alone, the sequence up to which everything was
// synced when it was written (stamp()). A record behind a gap that says so of what is in the gap
// proves that a synced record has been damaged since. RocksDB by itself would take the gap for the
// end.
//
// Invariants:
//  N1  A start replays a prefix: at a gap in RocksDB's sequences it stops, whatever comes behind.
//  N2  With an honest disk a lost machine leaves no proof of damage: what was synced is not in a
//  gap.
//
// Thread safety: none; one replay at a time.
#pragma once

#include <rocksdb/options.h>
#include <rocksdb/wal_filter.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <string>

namespace rkv::server {

class LogChain final : public rocksdb::WalFilter {
 public:
  // `look`: reads all that is left and applies nothing; else stops at a gap (N1).
  explicit LogChain(bool look) : look_(look) {}
  const char* Name() const override { return "rkv.LogChain"; }
  WalProcessingOption LogRecordFound(unsigned long long log_number, const std::string& log_file,
                                     const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* new_batch, bool* changed) override;

  bool has_gap() const { return gap_; }
  // Synced records are missing.
  bool is_damaged() const { return damaged_; }

  // Puts the mark into a batch.
  static rocksdb::Status stamp(rocksdb::WriteBatch& batch, std::uint64_t synced);

 private:
  bool continues(std::uint64_t log_number, const std::string& log_file, std::uint64_t sequence);

  const bool look_;
  std::uint64_t log_ = 0;       // of the last record
  std::uint64_t expected_ = 0;  // the next sequence; 0: any
  std::uint64_t missing_ = 0;   // a sequence that is in the gap
  bool gap_ = false;
  bool damaged_ = false;
};

// Reads the logs of the database in `path`, changes nothing. Corruption: synced writes are missing.
// What else is wrong with the database is left to DB::Open to tell.
rocksdb::Status check_logs(const rocksdb::Options& options, const std::string& path,
                           const char* meta_family);

}  // namespace rkv::server
