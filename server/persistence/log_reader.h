// Reads a write-ahead log of RocksDB record by record, up to the first byte that makes none.
// RocksDB has such a reader, but does not tell where it has ended.
//
//   LogReader reader(std::move(file));
//   while (reader.next())
//     use(reader.record());
//   if (!reader.failure().ok()) ...
//
// The format (RocksDB's wiki, "Write Ahead Log File Format"): blocks of 32 KiB; in them fragments,
// each with a header of 7 bytes: masked crc32c 4 of all behind it, length 2, type 1 (1 whole, 2
// first, 3 middle, 4 last of a record). No fragment crosses the end of a block; what is too short
// there for a header is zeroes. Not read: recycled and compressed logs, which we do not write.
//
// Invariants:
//  R1  The records are those that were written, from the first on, and none is left out: up to
//      where the file ends, is damaged, or cannot be read (failure()).
//  R2  The bytes of a value are never taken for a record: nothing is looked for behind damage.
//
// Thread safety: none. Blocks on the disk. Holds a block and a record.
#pragma once

#include <rocksdb/env.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/bytes.h"

namespace rkv::server {

std::uint32_t crc32c(Bytes bytes);

class LogReader {
 public:
  static constexpr std::size_t kBlockBytes = std::size_t{32} << 10;
  static constexpr std::size_t kHeaderBytes = 7;

  explicit LogReader(std::unique_ptr<rocksdb::SequentialFile> file) : file_(std::move(file)) {}

  // False: there is no other one.
  bool next();
  // Valid until the next call.
  const std::string& record() const { return record_; }
  // Where the last record that next() found ends in the file.
  std::uint64_t sound_bytes() const { return sound_bytes_; }
  // Of a read of the file.
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
  Bytes block_;                  // read of it
  std::size_t at_ = 0;           // of the block: what comes next
  std::uint64_t block_end_ = 0;  // in the file
  std::uint64_t sound_bytes_ = 0;
  std::string record_;
};

}  // namespace rkv::server
