// What a start finds in the write-ahead logs: is it one chain, and if not, is what is missing the
// unsynced end that a lost machine may leave, or something that had been synced? RocksDB by itself
// would take the first damage for the end.
//
// Every batch of the applier carries a stamp in the log: up to where the logs were synced when it
// was written (log_stamp.h). A stamp that reaches beyond the place where the logs cease to be sound
// proves that what is missing there had been safe.
//
// Invariants:
//  N1  A start replays a prefix: at a gap in RocksDB's sequences it stops, whatever comes behind.
//  Not
//      before the first log that the records need: of those that are in tables, and that RocksDB
//      therefore removes, in any order, a crash may leave some.
//  N2  With an honest disk a lost machine leaves no proof of damage: all that a stamp speaks of is
//      there, stamps are true (Z1), and nothing but stamps is believed. A stamp is in a log only
//      when all those before it that a start reads are synced (W1; those of earlier starts are
//      read no more).
//  N3  Synced bytes that are damaged are noticed if a sound stamp anywhere behind them says of them
//      that they were synced, by itself or by being in a later log (Z2).
//
// Thread safety: none; one replay at a time.
#pragma once

#include <rocksdb/options.h>
#include <rocksdb/wal_filter.h>

#include <cstdint>
#include <map>
#include <string>

#include "server/persistence/log_stamp.h"

namespace rkv::server {

// A replay that stops at a gap (N1).
class LogChain final : public rocksdb::WalFilter {
 public:
  const char* Name() const override { return "rkv.LogChain"; }
  void ColumnFamilyLogNumberMap(const std::map<std::uint32_t, std::uint64_t>& first_logs,
                                const std::map<std::string, std::uint32_t>& ids) override;
  WalProcessingOption LogRecordFound(unsigned long long log_number, const std::string& log_file,
                                     const rocksdb::WriteBatch& batch,
                                     rocksdb::WriteBatch* new_batch, bool* changed) override;

 private:
  bool continues(std::uint64_t log_number, const std::string& log_file, std::uint64_t sequence);

  std::uint64_t needed_ = 0;    // the first log with records that are in no table
  std::uint64_t log_ = 0;       // of the last record
  std::uint64_t expected_ = 0;  // the next sequence; 0: any
  bool gap_ = false;
};

struct LogsFound {
  bool damaged = false;          // synced writes are missing
  std::uint64_t torn_bytes = 0;  // from where the logs are not sound on: a start drops them
  LogPosition sound_end;         // that place; damaged, or torn_bytes != 0
};

// Reads the logs of the database in `path`, changes nothing. Where there is no database yet, there
// are no logs. What cannot be read is no OK: nothing is known then.
rocksdb::Status check_logs(const rocksdb::Options& options, const std::string& path,
                           LogsFound* found);

}  // namespace rkv::server
