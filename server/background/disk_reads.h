// DiskReads: trustworthy reads of the disk. It says which writes a read is sure to see, and whether
// the database may have lost them since.
//
// Invariants:
//  DREAD-1  When begin() returns n, every write at or below n is in the database, and stays there
//      at least while still_holds() is true.
//  DREAD-2  A write at or below the wal mark is in the database unless the database was reopened
//      after a disk failure. So begin() reads the count of reopenings before the mark. While the
//      disk is failing, the sync mark counts instead.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/layout.h"
#include "rkv/result.h"
#include "server/log/commit_log.h"

namespace rkv::server {

struct DiskReads {
  using Visitor = std::function<Status(const RecordFields&)>;
  using RangeVisitor = std::function<bool(const RecordFields&)>;  // false: ends the read

  const CommitLog& log;
  // StorageEngine's functions of these names.
  std::function<Status(Bytes key, const Visitor&)> read;
  std::function<Status(Bytes first, const RangeVisitor&)> read_from;
  std::function<std::uint64_t()> reopened;

  // A point in time of the database.
  struct AsOf {
    std::uint64_t sequence = 0;
    std::uint64_t reopened = 0;
  };
  // Call it before a read: the read sees every write at or below the result's sequence.
  AsOf begin() const {
    const std::uint64_t opened = reopened();
    return {.sequence = written(), .reopened = opened};
  }
  // Whether the database was not reopened since begin().
  bool still_holds(const AsOf& as_of) const { return reopened() == as_of.reopened; }
  // The highest sequence that is in this server's database.
  std::uint64_t written() const { return log.failed() ? log.sync_mark() : log.wal_mark(); }
};

}  // namespace rkv::server
