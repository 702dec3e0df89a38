// Reads a RocksDB write-ahead log record by record, up to the first byte that is not part of a
// record. RocksDB's own log reader does not report where it stopped.
//
//   LogReader reader(std::move(file));
//   while (reader.next())
//     use(reader.record());
//   if (!reader.failure().ok()) ...
//
// Format (RocksDB's wiki, "Write Ahead Log File Format"): blocks of 32 KiB that hold fragments. The
// header of a fragment has 7 bytes: masked crc32c of all that follows it 4, length 2, type 1 (1
// whole, 2 first, 3 middle, 4 last of a record). No fragment crosses the end of a block; a rest too
// short for a header is zeroes. Recycled and compressed logs are not read; we do not write them.
//
// Invariants:
//  LOGR-1  The records are those that were written, from the first on without omission, up to where
//      the file ends, is damaged or is unreadable (failure()).
//  LOGR-2  The bytes of a value are never taken for a record: nothing is searched for behind
//      damage.
//
// Thread safety: none. Blocks on the disk. Holds one block and one record in memory.
#pragma once

#include <rocksdb/env.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/bytes.h"

namespace rkv::server {

std::uint32_t crc32c(Bytes bytes);

class LogReader {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{32} << 10;
  static constexpr std::size_t kHeaderBytes = 7;

  explicit LogReader(std::unique_ptr<rocksdb::SequentialFile> file) : file_(std::move(file)) {}

  // Reads the next record. False: the end, damage, or a failed read (failure()).
  bool next();
  // Valid until the next call.
  const std::string& record() const { return record_; }
  // Position in the file where the last record returned by next() ends.
  std::uint64_t sound_bytes() const { return sound_bytes_; }
  // Status of the last read of the file.
  const rocksdb::Status& failure() const { return failure_; }

 private:
  enum Type : std::uint8_t { kWhole = 1, kFirst = 2, kMiddle = 3, kLast = 4 };
  struct Fragment {
    Type type;
    Bytes bytes;
  };

  bool fill();
  std::optional<Fragment> take_fragment();

  const std::unique_ptr<rocksdb::SequentialFile> file_;
  rocksdb::Status failure_;
  std::array<char, kBlockBytes> buffer_{};
  Bytes block_;                  // what was read into buffer_
  std::size_t at_ = 0;           // position of the next fragment in block_
  std::uint64_t block_end_ = 0;  // position of the block's end in the file
  std::uint64_t sound_bytes_ = 0;
  std::string record_;
};

}  // namespace rkv::server
