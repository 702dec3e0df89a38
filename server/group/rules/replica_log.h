// ReplicaLog: the end of a group's log in the memory of one replica. A primary sends from it. A
// backup gives its engine the entries at or below the mark.
//
//   log.append({.term = 7, .version = 90}, bytes);      // entries up to version 90
//   const auto next = log.after(position, 1 << 20);     // what a backup at `position` lacks
//   log.release(version);                               // on the disk of all replicas
//
// Entries come in blocks: bytes that the log does not look into, ended by the position of their
// last entry. A block is of one term, and is sent and taken as a whole.
//
// Invariants:
//  REPLOG-1  Blocks are kept from start() to last() without a gap, in ascending order.
//  REPLOG-2  history() has every term of the log since it was empty, including those of blocks that
//      were released or never received as blocks.
//  REPLOG-3  cut() takes back nothing that was released.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "server/group/rules/term_history.h"

namespace rkv::server {

// Immutable and shared: a block that is being sent outlives its log's hold on it.
using EntryBytes = std::shared_ptr<const std::vector<std::byte>>;

struct EntryBlock {
  LogPosition previous;
  LogPosition last;
  EntryBytes bytes;
};

class ReplicaLog {
 public:
  ReplicaLog() = default;
  // Makes a log whose blocks up to history.last() are on this replica's disk only.
  explicit ReplicaLog(TermHistory history) : start_(history.last()), history_(std::move(history)) {}

  // REQUIRES: `last` is behind last().
  void append(const LogPosition& last, EntryBytes bytes);
  // Returns the block that begins at `position`; nullptr: position is last(). REQUIRES:
  // can_send_after().
  const EntryBlock* after(const LogPosition& position) const;
  // Whether the blocks behind `position` are kept. A replica without them needs a copy of the
  // engine.
  bool can_send_after(const LogPosition& position) const;
  // Drops blocks that end at or below `version`.
  void release(std::uint64_t version);
  // Like release(), but drops only the oldest blocks, until at most `bytes` are kept.
  void shrink(std::size_t bytes, std::uint64_t version);
  // Whether the position is at the end of a block of the log, at or behind start().
  bool can_cut(const LogPosition& position) const;
  // Drops the blocks behind `position`. REQUIRES: can_cut().
  void cut(const LogPosition& position);

  LogPosition start() const { return start_; }
  LogPosition last() const { return history_.last(); }
  const TermHistory& history() const { return history_; }
  std::size_t kept_bytes() const { return kept_bytes_; }
  // Returns the bytes of the kept blocks behind `position`.
  std::uint64_t bytes_after(const LogPosition& position) const;
  // Like bytes_after(), for a version of any term. A block that begins before it does not count.
  std::uint64_t bytes_after_version(std::uint64_t version) const;
  // Returns the bytes of the kept blocks between two versions.
  std::uint64_t bytes_between(std::uint64_t version, std::uint64_t later) const {
    const std::uint64_t bytes = bytes_after_version(version);
    return bytes - std::min(bytes, bytes_after_version(later));
  }
  // Returns the number of blocks behind a version. A block that begins before it does not count.
  std::size_t blocks_after_version(std::uint64_t version) const;
  // Returns the end of the last block that begins less than `bytes` behind `version`; `version` if
  // there is none.
  std::uint64_t end_within(std::uint64_t version, std::uint64_t bytes) const;
  // Like end_within(), counted from the beginning of the log: for the first `bytes` that it ever
  // had.
  std::uint64_t end_at(std::uint64_t bytes) const;
  std::uint64_t appended_bytes() const { return appended_bytes_; }

 private:
  struct Kept : EntryBlock {
    std::uint64_t before = 0;  // bytes of all blocks of the log before this one
  };
  std::deque<Kept>::const_iterator find_after(const LogPosition& position) const;
  std::deque<Kept>::const_iterator find_after_version(std::uint64_t version) const;
  std::uint64_t end_before(std::deque<Kept>::const_iterator first, std::uint64_t bytes) const;

  LogPosition start_;
  TermHistory history_;
  std::deque<Kept> blocks_;
  std::size_t kept_bytes_ = 0;
  std::uint64_t appended_bytes_ = 0;  // of all blocks of the log
};

}  // namespace rkv::server
