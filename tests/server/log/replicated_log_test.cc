// A replicated commit log on one thread: who may read what, and when.
#include <gtest/gtest.h>

#include <vector>

#include "server/log/commit_log.h"
#include "server/log/replication_reader.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::equal;
using test::patterned;

class ReplicatedLog : public ::testing::Test {
 protected:
  std::uint64_t append(Bytes value) {
    const auto room = log_->try_reserve(1, value.size());
    EXPECT_TRUE(room);
    CommitLog::Attachment copy;
    if (is_large(value.size())) {
      copy = std::make_unique_for_overwrite<std::byte[]>(value.size());
      std::ranges::copy(value, copy.get());
    }
    const auto ticket = log_->begin(*room);
    log_->finish(ticket, CommitLog::Kind::kPut,
                 {.version = Version::of(1, ticket.sequence), .key = as_bytes("k"), .value = value},
                 std::move(copy));
    return ticket.sequence;
  }
  std::uint64_t append() { return append(as_bytes("value")); }
  std::size_t read_all() {
    std::size_t count = 0;
    for (CommitLog::Entry entry; reader_.next(&entry);)
      ++count;
    return count;
  }
  std::size_t consume_all() {
    std::size_t count = 0;
    for (CommitLog::Entry entry; log_->consume(&entry);)
      ++count;
    return count;
  }
  const std::unique_ptr<CommitLog> log_ =
      *CommitLog::create(CommitLog::kMinCapacityBytes, CommitLog::Group::kReplicated);
  ReplicationReader reader_{*log_};
};

TEST_F(ReplicatedLog, GivesTheApplierNothingAboveTheMark) {
  const std::uint64_t first = append();
  const std::uint64_t second = append();
  EXPECT_EQ(consume_all(), 0U);
  EXPECT_EQ(log_->last_for_disk(), 0U);
  ASSERT_EQ(read_all(), 2U);
  EXPECT_EQ(consume_all(), 0U) << "that it was read is not enough";
  log_->set_replicated_mark(first);
  EXPECT_EQ(log_->last_for_disk(), first);
  CommitLog::Entry entry;
  ASSERT_TRUE(log_->consume(&entry));
  EXPECT_EQ(entry.sequence, first);
  EXPECT_FALSE(log_->consume(&entry));
  log_->set_replicated_mark(second - 1);
  EXPECT_FALSE(log_->consume(&entry));
  log_->set_replicated_mark(reader_.position());
  ASSERT_TRUE(log_->consume(&entry));
  EXPECT_EQ(entry.sequence, second);
  EXPECT_EQ(log_->last_for_disk(), log_->last_begun());
}

TEST_F(ReplicatedLog, FreesOnlyWhatTheMarkHasPassed) {
  append(patterned(1, kMaxInlineBytes + 1));
  const std::uint64_t queued = log_->bytes_queued();
  append(patterned(2, 100'000));
  CommitLog::Entry entry;
  ASSERT_TRUE(reader_.next(&entry));
  log_->set_replicated_mark(entry.sequence);
  ASSERT_TRUE(reader_.next(&entry));
  EXPECT_EQ(consume_all(), 1U);
  const std::uint64_t before = log_->bytes_queued();
  log_->advance();
  EXPECT_EQ(log_->bytes_queued(), before - queued);
  EXPECT_TRUE(equal(entry.record.value, patterned(2, 100'000))) << "the replicator still reads it";
  log_->set_replicated_mark(entry.sequence);
  EXPECT_EQ(consume_all(), 1U);
  log_->advance();
  EXPECT_EQ(log_->bytes_queued(), 0U);
}

TEST_F(ReplicatedLog, IsReadOnceAlthoughTheApplierStartsAgain) {
  append();
  append();
  ASSERT_EQ(read_all(), 2U);
  log_->set_replicated_mark(reader_.position());
  ASSERT_EQ(consume_all(), 2U);
  log_->rewind();
  EXPECT_EQ(read_all(), 0U);
  EXPECT_EQ(consume_all(), 2U);
}

TEST_F(ReplicatedLog, RefusesWritesWhileItIsFullOfWhatIsNotReplicated) {
  CommitLog::Reservation last;
  for (auto room = log_->try_reserve(1, 5); room; room = log_->try_reserve(1, 5))
    last = *room;
  log_->unreserve(last);
  append();
  const auto full = log_->try_reserve(1, 5);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kBusy);
  ASSERT_EQ(read_all(), 1U);
  log_->set_replicated_mark(reader_.position());
  ASSERT_EQ(consume_all(), 1U);
  log_->advance();
  EXPECT_TRUE(log_->try_reserve(1, 5));
}

TEST_F(ReplicatedLog, MarksNeverFallAndKeepTheirOrder) {
  append();
  append();
  ASSERT_EQ(read_all(), 2U);
  const std::uint64_t all = reader_.position();
  log_->set_replicated_mark(all);
  log_->set_replicated_mark(1);
  EXPECT_EQ(log_->replicated_mark(), all);
  ASSERT_EQ(consume_all(), 2U);
  log_->set_wal_mark(all);
  log_->set_sync_mark(all);
  EXPECT_EQ(log_->group_wal_mark(), 0U) << "this server's disk does not speak for the others";
  EXPECT_EQ(log_->group_sync_mark(), 0U);
  log_->set_group_marks(all, 1);
  log_->set_group_marks(1, 0);
  EXPECT_EQ(log_->group_wal_mark(), all);
  EXPECT_EQ(log_->group_sync_mark(), 1U);
}

TEST_F(ReplicatedLog, EndsTheProcessWhenAMarkPromisesTooMuch) {
  append();
  EXPECT_DEATH(log_->set_replicated_mark(1), "CLOG-7") << "the replicator has not read it";
  EXPECT_DEATH(log_->set_group_marks(1, 0), "CLOG-8");
}

TEST(LogWithoutGroup, HasOneKindOfMarks) {
  const auto log = *CommitLog::create(CommitLog::kMinCapacityBytes);
  EXPECT_FALSE(log->is_replicated());
  const auto ticket = log->begin(*log->try_reserve(1, 0));
  log->finish(ticket, CommitLog::Kind::kRemove, {.key = as_bytes("k")});
  EXPECT_GT(log->replicated_mark(), log->last_begun());
  EXPECT_EQ(log->last_for_disk(), log->last_begun());
  CommitLog::Entry entry;
  ASSERT_TRUE(log->consume(&entry));
  log->set_wal_mark(log->consumed());
  EXPECT_EQ(log->group_wal_mark(), log->wal_mark());
  EXPECT_EQ(log->group_sync_mark(), 0U);
  log->set_sync_mark(log->consumed());
  EXPECT_EQ(log->group_sync_mark(), log->sync_mark());
  EXPECT_DEATH(ReplicationReader{*log}, "replicator");
}

}  // namespace
}  // namespace rkv::server
