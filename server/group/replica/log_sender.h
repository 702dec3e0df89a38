// LogSender: the thread that reads a primary's commit log and makes blocks of its entries.
//
// While blocks wait for the replicator's thread, the entries behind them gather, and go together
// into the next block.
//
// Invariants:
//  SENDER-1  Blocks hold all entries of the log in its order, each once.
//  SENDER-2  Among the blocks that were taken, all entries up to the mark sequence_of(v) of the log
//      have versions at or below v.
//
// Thread safety: taken, sequence_of, forget: the thread that takes the blocks. start, stop: the
// owner. term: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "common/mutex.h"
#include "server/group/rules/replica_log.h"
#include "server/log/commit_log.h"
#include "server/log/replication_reader.h"

namespace rkv::server {

class LogSender {
 public:
  struct Block {
    LogPosition last;
    EntryBytes bytes;
    std::uint64_t sequence = 0;  // of the log: an upper bound of the block's entries
  };
  using Give = std::function<void(const Block&)>;

  // `give` is called on the sender's thread. Each block that it hands on must be passed to taken().
  // The log must outlive the sender.
  LogSender(CommitLog& log, std::uint32_t term, Give give);
  ~LogSender();  // stop()
  LogSender(const LogSender&) = delete;
  LogSender& operator=(const LogSender&) = delete;

  void start();
  void stop();
  // The block has arrived. Call it for each block, in order.
  void taken(const Block& block);
  // Returns the mark of the log for a version that is replicated, or on disks.
  std::uint64_t sequence_of(std::uint64_t version);
  // From now on sequence_of() is not called for lower versions.
  void forget(std::uint64_t version);
  std::uint32_t term() const { return term_; }

 private:
  void run();
  bool make_block(Block& block);

  CommitLog& log_;
  ReplicationReader reader_;
  const std::uint32_t term_;
  const Give give_;
  std::thread thread_;
  Mutex mutex_;
  ConditionVariable room_made_;
  std::size_t given_bytes_ RKV_GUARDED_BY(mutex_) = 0;  // and not taken yet
  bool stopping_ RKV_GUARDED_BY(mutex_) = false;
  // The ends of the blocks taken; the first one is at or below all marks.
  struct End {
    std::uint64_t version = 0;
    std::uint64_t sequence = 0;
  };
  std::deque<End> ends_;
};

}  // namespace rkv::server
