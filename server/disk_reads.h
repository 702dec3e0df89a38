// Reads of the disk that may be believed: what of a record was written before the disk was read,
// and whether the disk can have lost it since.
//
// Invariants:
//  J1  When begin() returns n, everything at or below it is in the database, and stays there at
//      least as long as still_holds() says so.
//  J2  A write at or below the wal mark is in the database, unless the database was opened anew
//      after trouble with the disk. So the count of openings is taken before the mark; and while
//      the disk is failing the sync mark is what counts.
//
// Thread safety: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/layout.h"
#include "rkv/result.h"
#include "server/persistence/commit_log.h"

namespace rkv::server {

struct DiskReads {
  using Visitor = std::function<Status(const RecordFields&)>;

  const CommitLog& log;
  // As those of Engine.
  std::function<Status(Bytes key, const Visitor&)> read;
  std::function<Status(Bytes first, const Visitor&)> read_from;
  std::function<std::uint64_t()> reopened;

  struct AsOf {
    std::uint64_t sequence = 0;
    std::uint64_t reopened = 0;
  };
  AsOf begin() const {
    const std::uint64_t opened = reopened();
    return {.sequence = written(), .reopened = opened};
  }
  bool still_holds(const AsOf& as_of) const { return reopened() == as_of.reopened; }
  std::uint64_t written() const { return log.failed() ? log.sync_mark() : log.wal_mark(); }
};

}  // namespace rkv::server
