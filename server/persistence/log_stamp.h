// What a batch says, in the write-ahead log alone, about what was synced when it was written: "of
// log 7 the first 1,000 bytes". Behind damage, such a statement tells what a crash has left from
// what had been safe (log_chain.h).
//
//   batch.PutLogData(stamp_of(synced, mark));
//
//   StampFinder finder(mark);
//   for (each block of a log) finder.add(block);
//   if (finder.highest()) ...
//
// A stamp, 28 bytes, little-endian: mark 8, log 8, bytes 8, crc32c 4 of these. The mark is a number
// that was drawn for the database and that no client ever sees.
//
// Invariants:
//  Z1  A stamp is true wherever it is found, within a record or between the ruins of one: who does
//      not know the mark makes none (2^-64 a try), and a copy of one, in a value perhaps, says what
//      has been true since it was written. Logs are numbered upwards, and a number is not used
//      again once a byte of that log is synced.
//  Z2  Every sound stamp of a log is found, whatever is damaged around it, also one that the end of
//      a block divides.
//
// Thread safety: none.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "common/bytes.h"

namespace rkv::server {

// All logs of a lower number, and the first bytes of this one.
struct LogPosition {
  std::uint64_t log = 0;
  std::uint64_t bytes = 0;
  auto operator<=>(const LogPosition&) const = default;
};

std::string stamp_of(const LogPosition& synced, std::uint64_t mark);

// Of one log.
class StampFinder {
 public:
  explicit StampFinder(std::uint64_t mark);
  // Its blocks from the first on, each of LogReader::kBlockBytes, the last one perhaps shorter.
  void add(Bytes block);
  const std::optional<LogPosition>& highest() const { return highest_; }

 private:
  const std::string mark_;
  std::string text_;  // the block, behind the end of the one before
  std::optional<LogPosition> highest_;
};

}  // namespace rkv::server
