// The thread that makes blocks of a commit log's entries, beside threads that write.
#include "server/group/replica/log_sender.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/mutex.h"
#include "server/group/replica/entry_block.h"

namespace rkv::server {
namespace {

constexpr std::uint32_t kTerm = 5;

// Takes blocks as a replicator does, and checks them.
class Taker {
 public:
  void give(const LogSender::Block& block) {
    const MutexLock lock(mutex_);
    given_.push_back(block);
    changed_.notify_all();
  }
  // Waits for a block and takes it. The last version must be `previous` for SENDER-1.
  LogSender::Block take(LogSender& sender) {
    LogSender::Block block;
    {
      const MutexLock lock(mutex_);
      while (given_.empty())
        changed_.wait(mutex_);
      block = given_.front();
      given_.pop_front();
    }
    sender.taken(block);
    EXPECT_TRUE(is_valid_block({.previous = previous_, .last = block.last, .bytes = block.bytes}));
    previous_ = block.last;
    for (Bytes rest = *block.bytes; !rest.empty();) {
      const auto entry = first_entry(rest);
      rest = rest.subspan(entry_bytes(*entry));
      ++entries_;
    }
    return block;
  }
  std::uint64_t entries() const { return entries_; }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<LogSender::Block> given_ RKV_GUARDED_BY(mutex_);
  LogPosition previous_{};
  std::uint64_t entries_ = 0;
};

TEST(LogSender, GivesEachEntryOnceWhileOthersWrite) {
  constexpr std::uint64_t kEach = 20'000;
  const auto log = *CommitLog::create(CommitLog::kMinCapacityBytes, CommitLog::Group::kReplicated);
  Taker taker;
  LogSender sender(*log, kTerm, [&](const LogSender::Block& block) { taker.give(block); });
  sender.start();
  const auto write = [&](int writer) {
    const std::string value(100, static_cast<char>('a' + writer));
    for (std::uint64_t number = 0; number < kEach;) {
      const std::string key = fmt::format("{}-{}", writer, number);
      const auto room = log->try_reserve(key.size(), value.size());
      if (!room) {
        std::this_thread::yield();
        continue;
      }
      const auto ticket = log->begin(*room);
      log->finish(ticket, CommitLog::Kind::kPut,
                  {.version = Version::of(kTerm, ticket.sequence),
                   .key = as_bytes(key),
                   .value = as_bytes(value)});
      ++number;
    }
  };
  std::thread first([&] { write(0); });
  std::thread second([&] { write(1); });
  std::uint64_t mark = 0;
  while (taker.entries() < 2 * kEach) {
    const LogSender::Block block = taker.take(sender);
    const std::uint64_t sequence = sender.sequence_of(block.last.version);
    EXPECT_EQ(sequence, block.sequence);
    EXPECT_GT(sequence, mark);
    mark = sequence;
    log->set_replicated_mark(mark);
    sender.forget(block.last.version);
    // The applier: frees the log's space.
    for (CommitLog::Entry entry; log->consume(&entry);)
      EXPECT_LE(entry.record.version.bits, block.last.version);
    log->advance();
  }
  first.join();
  second.join();
  EXPECT_EQ(mark, log->last_begun()) << "nothing waits for a mark behind the last entry";
  sender.stop();
}

// SENDER-2
TEST(LogSender, AVersionBetweenTwoBlocksIsItsOwnMark) {
  const auto log = *CommitLog::create(CommitLog::kMinCapacityBytes, CommitLog::Group::kReplicated);
  LogSender sender(*log, kTerm, [](const LogSender::Block&) {});
  const auto block = [](std::uint64_t sequence, std::uint64_t bound) {
    return LogSender::Block{.last = {.term = kTerm, .version = Version::of(kTerm, sequence).bits},
                            .bytes = std::make_shared<const std::vector<std::byte>>(),
                            .sequence = bound};
  };
  EXPECT_EQ(sender.sequence_of(Version::of(kTerm - 1, 500).bits), 0U) << "of another term";
  sender.taken(block(11, 20));
  sender.taken(block(31, 40));
  EXPECT_EQ(sender.sequence_of(Version::of(kTerm, 5).bits), 5U);
  EXPECT_EQ(sender.sequence_of(Version::of(kTerm, 11).bits), 20U);
  EXPECT_EQ(sender.sequence_of(Version::of(kTerm, 25).bits), 25U);
  EXPECT_EQ(sender.sequence_of(Version::of(kTerm, 31).bits), 40U);
  sender.forget(Version::of(kTerm, 31).bits);
  EXPECT_EQ(sender.sequence_of(Version::of(kTerm, 31).bits), 40U);
}

}  // namespace
}  // namespace rkv::server
