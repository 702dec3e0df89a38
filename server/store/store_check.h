// StoreCheck: checks the memory of a store at rest. Checked: the index keeps its invariants
// (INDEX-1 to INDEX-6, INDEX-8). Each slot leads to a live record of a key that belongs there, and
// to a block of the record's length. No two records share a unit. The counters match.
//
//   const std::string wrong = StoreCheck(table, disk.in_use()).run();
//
// REQUIRES: no operation runs in any thread until run() has returned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/bytes.h"
#include "common/layout.h"
#include "server/memory/record_allocator.h"
#include "server/store/record_table.h"

namespace rkv::server {

class StoreCheck {
 public:
  // `has_disk`: records may be on disk only.
  StoreCheck(const RecordTable& table, bool has_disk)
      : table_(table), has_disk_(has_disk), blocks_(table.blocks()) {}

  // Returns the first violation, or "". Reads all records. Call it once.
  std::string run();

 private:
  std::string check_pair(const RecordTable::Pair& pair);
  std::string check_slot(const RecordTable::Pair& pair, GroupPlace home, Slot slot);
  std::string check_record(GroupPlace home, Slot slot, const RecordFields& record);
  std::string check_counters() const;

  const RecordTable& table_;
  const bool has_disk_;
  RecordAllocator::Check blocks_;
  std::vector<Bytes> keys_;  // of one pair, with the record in memory
  // The counts found so far.
  std::uint64_t records_ = 0;
  std::uint64_t on_disk_ = 0;
  std::uint64_t expiring_ = 0;
  std::uint64_t stashed_ = 0;
};

}  // namespace rkv::server
