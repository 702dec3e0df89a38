// The stamp of a batch: how far the logs were synced when the batch was written, as "the first
// 1,000 bytes of log 7". Stamps are only in the write-ahead log. A stamp behind damage
// distinguishes what a crash leaves from the loss of synced bytes (log_chain.h).
//
//   batch.PutLogData(stamp_of(synced, mark));
//
//   StampFinder finder(mark);
//   for (each block of a log) finder.add(block);
//   if (finder.highest()) ...
//
// Format of a stamp, 28 bytes, little-endian: mark 8, log 8, bytes 8, crc32c of these 4. The mark
// is a random number drawn for the database; clients never see it.
//
// Invariants:
//  STAMP-1  A stamp is true wherever it is found, inside a record or between damaged bytes. Without
//      the mark nobody can forge a stamp (2^-64 per attempt). A copy of a stamp, for example in a
//      value, remains true. Logs are numbered upwards, and a number is not used again once a byte
//      of that log is synced.
//  STAMP-2  Every sound stamp of a log is found, whatever is damaged around it, including a stamp
//      that the end of a block divides.
//
// Thread safety: none.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "common/bytes.h"

namespace rkv::server {

// All logs of a lower number, and the first `bytes` bytes of log `log`.
struct LogFilePosition {
  std::uint64_t log = 0;
  std::uint64_t bytes = 0;
  auto operator<=>(const LogFilePosition&) const = default;
};

std::string stamp_of(const LogFilePosition& synced, std::uint64_t mark);

// Finds the stamps of one log.
class StampFinder {
 public:
  explicit StampFinder(std::uint64_t mark);
  // Adds the next block. Blocks start at the log's beginning and have LogReader::kBlockBytes each;
  // the last may be shorter.
  void add(Bytes block);
  const std::optional<LogFilePosition>& highest() const { return highest_; }

 private:
  const std::string mark_;
  std::string text_;  // the last block, behind the end of the block before it
  std::optional<LogFilePosition> highest_;
};

}  // namespace rkv::server
