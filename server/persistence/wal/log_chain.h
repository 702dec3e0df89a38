// Checks at a start whether the write-ahead logs form one chain. If not, it decides what is
// missing: the unsynced end that a lost machine may leave, or something that had been synced.
// RocksDB by itself would take the first damage for the end.
//
// Each batch of the applier carries a stamp in the log: the position up to which the logs were
// synced when the batch was written (log_stamp.h). A stamp that reaches beyond the end of the sound
// part proves that synced bytes are missing.
//
// Invariants:
//  CHAIN-1  A start replays a prefix: it stops at the first gap in RocksDB's sequences, whatever
//      follows. Gaps before the first log that the records need are allowed: records of those logs
//      are in tables, RocksDB removes the logs in any order, and a crash may leave some of them.
//  CHAIN-2  With an honest disk, a lost machine leaves no proof of damage: everything that a stamp
//      speaks of is there, stamps are true (STAMP-1), and only stamps are believed. A log holds a
//      stamp only when all logs before it that a start reads are synced (LOGF-1; a start does not
//      read those of earlier starts).
//  CHAIN-3  Damage of synced bytes is detected if a sound stamp behind them (STAMP-2) says that
//      they were synced. A stamp in a later log says so by being there (LOGF-1).
//
// Thread safety: none; one replay at a time.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/wal_filter.h>

#include <cstdint>
#include <map>
#include <string>

#include "server/persistence/wal/log_stamp.h"

namespace rkv::server {

// A WAL filter that stops the replay at a gap (CHAIN-1).
class LogChain final : public rocksdb::WalFilter {
 public:
  // Reads the logs' first bytes by `env`, which must outlive the chain.
  explicit LogChain(rocksdb::Env& env) : env_(env) {}
  const char* Name() const override { return "rkv.LogChain"; }
  void ColumnFamilyLogNumberMap(const std::map<std::uint32_t, std::uint64_t>& first_logs,
                                const std::map<std::string, std::uint32_t>& ids) override;
  WalProcessingOption LogRecordFound(unsigned long long log_number, const std::string& log_file,
                                     const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* new_batch, bool* changed) override;

 private:
  bool continues(std::uint64_t log_number, const std::string& log_file, std::uint64_t sequence);

  rocksdb::Env& env_;
  std::uint64_t needed_ = 0;    // first log with records that are in no table
  std::uint64_t log_ = 0;       // log of the last record
  std::uint64_t expected_ = 0;  // next sequence; 0: any is accepted
  bool gap_ = false;
};

struct LogsFound {
  bool damaged = false;          // synced writes are missing
  std::uint64_t torn_bytes = 0;  // bytes behind the sound part, which a start drops
  LogFilePosition sound_end;     // end of the sound part; valid if damaged or torn_bytes != 0
};

// Reads the logs of the database in `path` and changes nothing. If there is no database, there are
// no logs. A status other than OK means that the logs could not be read; nothing is known then.
rocksdb::Status check_logs(const rocksdb::Options& options, const std::string& path,
                           LogsFound* found);

}  // namespace rkv::server
