// The writes of one batch, without those that a later write of the same key replaces, in the order
// of their keys.
//
// RocksDB keeps recent writes in a skip list. With the option of database.cc it searches for a key
// from the place of the key before, so that a sorted batch costs a fraction of the comparisons.
//
// Invariants:
//  LASTW-1  For each key, the entry that add() got last is visited once; nothing else is visited.
//  LASTW-2  Only writes of one batch are compared. A batch is on disk whole or not at all (DISK-1)
//      and marks stand between batches (APPL-3). So the state after a write that is left out can
//      never be seen. After a crash the state is that before the batch or that after it, and both
//      are the same without the write.
//
// Thread safety: none. Allocates while it grows, afterwards not.
#pragma once

#include <cstdint>
#include <vector>

#include "server/log/commit_log.h"

namespace rkv::server {

class LastWrites {
 public:
  // `seed`: seed of the key hash, random so that clients cannot choose keys that collide.
  explicit LastWrites(std::uint64_t seed) : seed_(seed), table_(kSmallestTable) {}

  // The spans of the entry must stay valid until clear().
  void add(const CommitLog::Entry& entry);
  void clear();

  std::size_t added() const { return entries_.size(); }
  std::size_t void_ones() const { return void_; }  // entries that are not visited
  std::size_t bytes() const { return bytes_; }     // length of keys and values to be visited

  // In the order of the keys, as memcmp(3) compares them.
  template <class Visit>
  void for_each(Visit visit) {
    sort();
    for (const Sorted& one : sorted_)
      visit(entries_[one.place].entry);
  }

 private:
  struct Kept {
    CommitLog::Entry entry;
    std::uint64_t hash;
    bool is_void;
  };
  struct Sorted {
    std::uint64_t beginning;  // the first bytes of the key, as a big-endian number
    std::uint32_t place;      // in entries_
  };
  static constexpr std::size_t kSmallestTable = 1024;
  static constexpr std::size_t kLargestKept = std::size_t{1} << 14;

  static std::size_t size_of(const CommitLog::Entry& entry) {
    return entry.record.key.size() + entry.record.value.size();
  }
  std::uint32_t& place_of(std::uint64_t hash, Bytes key);
  void grow();
  void sort();

  const std::uint64_t seed_;
  std::vector<Kept> entries_;         // in commit order
  std::vector<std::uint32_t> table_;  // index of a key's last entry, plus one; open addressing
  std::vector<Sorted> sorted_;
  std::size_t keys_ = 0;  // in table_: at most half its size
  std::size_t void_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace rkv::server
