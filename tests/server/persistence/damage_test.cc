// The applier's reaction to a database that reports damage (APPL-6), and the words for each state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/status.h>

#include <cerrno>
#include <set>
#include <string>

#include "common/log.h"
#include "server/persistence/applier.h"
#include "server/persistence/database.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

// Fails with `error` while there is one; counts what is asked of it.
class SickStorage final : public Storage {
 public:
  void add_put(const RecordFields& /*record*/) override { ++added; }
  void add_remove(Bytes /*key*/) override { ++added; }
  Status write_batch() override {
    if (error.text != nullptr) return std::unexpected(error);
    saved += std::exchange(added, 0);
    return {};
  }
  void clear_batch() override { added = 0; }
  Status sync() override { return {}; }
  Status recover() override {
    ++recovered;
    error = {};
    return {};
  }
  Status check_whole() override {
    ++checked;
    if (damaged) return fail(Code::kCorrupt, "indeed");
    return {};
  }

  Error error = {};
  Status claim_through(std::uint64_t sequence) override {
    if (!claims) return fail(Code::kIo, "no");
    claimed = sequence;
    return {};
  }

  bool damaged = false;
  bool claims = true;
  std::uint64_t claimed = 0;
  std::uint32_t added = 0;
  std::uint32_t saved = 0;
  int recovered = 0;
  int checked = 0;
};

class Damage : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }
  bool append() {
    const auto room = log_->try_reserve(3, 0);
    if (!room) return false;
    const auto ticket = log_->begin(*room);
    log_->finish(ticket, CommitLog::Kind::kPut, {.key = as_bytes("key")});
    return true;
  }
  void turn() {
    clock_.advance(options_.retry_ms_max * kNanosPerMs);
    applier_.step();
  }

  ManualClock clock_;
  const ApplierOptions options_;
  SickStorage storage_;
  const std::unique_ptr<CommitLog> log_ = *CommitLog::create(CommitLog::kMinCapacityBytes);
  Applier applier_{*log_, storage_, clock_, options_, [] {}};
};

TEST_F(Damage, IsSavedToAndNeverCalledWell) {
  storage_.damaged = true;
  storage_.error = {.code = Code::kCorrupt, .text = "a table cannot be read"};
  ASSERT_TRUE(append());
  // Let in before the failure was known, written after it.
  const auto room = log_->try_reserve(4, 0);
  ASSERT_TRUE(room);
  turn();
  EXPECT_EQ(log_->disk_state(), DiskState::kDamaged);
  EXPECT_FALSE(append());
  turn();
  ASSERT_EQ(log_->sync_mark(), log_->last_begun()) << "what was accepted is saved";
  EXPECT_EQ(storage_.saved, 1U);
  EXPECT_EQ(storage_.checked, 1);
  const auto ticket = log_->begin(*room);
  log_->finish(ticket, CommitLog::Kind::kPut, {.key = as_bytes("late")});
  turn();
  ASSERT_EQ(log_->sync_mark(), log_->last_begun());
  const int recovered = storage_.recovered;
  for (int i = 0; i < 5; ++i)
    turn();
  EXPECT_EQ(log_->disk_state(), DiskState::kDamaged);
  EXPECT_EQ(storage_.checked, 1) << "reading everything is done once";
  EXPECT_EQ(storage_.recovered, recovered) << "there is nothing to save";
  EXPECT_FALSE(append());
  EXPECT_TRUE(applier_.stop());
}

// APPL-7: versions are claimed before there is room for the writes that will have them.
TEST_F(Damage, RoomIsGivenBackWhenTheVersionsForItAreClaimed) {
  storage_.claims = false;
  ASSERT_TRUE(append());
  turn();  // writes
  turn();  // syncs
  EXPECT_GT(log_->bytes_queued(), 0U);
  EXPECT_NE(log_->disk_state(), DiskState::kOk);
  EXPECT_FALSE(append());
  storage_.claims = true;
  turn();
  EXPECT_EQ(log_->disk_state(), DiskState::kOk);
  EXPECT_EQ(log_->bytes_queued(), 0U);
  EXPECT_GE(storage_.claimed, log_->last_begun() + log_->capacity_bytes() / 8);
  ASSERT_TRUE(append());
  turn();
  turn();
  EXPECT_GE(storage_.claimed, log_->last_begun() + log_->capacity_bytes() / 8);
  EXPECT_TRUE(applier_.stop());
}

TEST_F(Damage, ThatIsNoneEndsWhenEverythingHasBeenRead) {
  storage_.error = {.code = Code::kCorrupt, .text = "a table cannot be read"};
  ASSERT_TRUE(append());
  turn();
  EXPECT_EQ(log_->disk_state(), DiskState::kDamaged);
  EXPECT_EQ(applier_.counts().failures, 1U);
  EXPECT_NE(applier_.counts().failed_since, 0);
  turn();
  EXPECT_EQ(storage_.checked, 1);
  EXPECT_EQ(log_->disk_state(), DiskState::kOk);
  EXPECT_EQ(applier_.counts().failed_since, 0);
  EXPECT_TRUE(append());
  EXPECT_TRUE(applier_.stop());
}

TEST(DiskState, FollowsFromWhatRocksDbSays) {
  const auto state = [](const rocksdb::Status& status) {
    return disk_state_of(database::to_error(status, status.ToString()));
  };
  using rocksdb::Status;
  EXPECT_EQ(state(Status::NoSpace("x")), DiskState::kFull);
  EXPECT_EQ(state(Status::IOError("x", "No space left on device")), DiskState::kFull);
  EXPECT_EQ(state(Status::IOError("x", "Disk quota exceeded")), DiskState::kFull);
  EXPECT_EQ(state(Status::IOError("x", "File too large")), DiskState::kFull);
  EXPECT_EQ(state(Status::IOError("x", "Read-only file system")), DiskState::kReadOnly);
  EXPECT_EQ(state(Status::IOError("x", "Permission denied")), DiskState::kReadOnly);
  EXPECT_EQ(state(Status::IOError("x", "Input/output error")), DiskState::kFailing);
  EXPECT_EQ(state(Status::IOError("x", "Too many open files")), DiskState::kNoFiles);
  EXPECT_EQ(state(Status::IOError("x", "Too many open files in system")), DiskState::kNoFiles);
  EXPECT_EQ(state(Status::Corruption("block checksum mismatch")), DiskState::kDamaged);
  EXPECT_EQ(state(Status::Corruption("x", "No space left on device")), DiskState::kFull);
}

TEST(DiskState, HasAWordAndASentenceForEach) {
  EXPECT_STREQ(to_string(DiskState::kOk), "ok");
  for (const auto state : kDiskStates) {
    if (state == DiskState::kOk) continue;
    EXPECT_EQ(refusal_of(Refused::kWrite, state).code, Code::kIo);
    EXPECT_THAT(refusal_of(Refused::kWrite, state).text,
                ::testing::HasSubstr("writes are refused"));
    EXPECT_STRNE(to_string(state), "ok");
  }
}

TEST(DiskState, IsNamedInEveryRefusal) {
  std::set<std::string> sentences;
  for (const auto what :
       {Refused::kWrite, Refused::kMadeWrite, Refused::kFlush, Refused::kScan, Refused::kBackup}) {
    const auto text = [&](DiskState state) { return std::string(refusal_of(what, state).text); };
    EXPECT_THAT(text(DiskState::kFull), ::testing::HasSubstr(" full"));
    EXPECT_THAT(text(DiskState::kReadOnly), ::testing::HasSubstr(" read-only"));
    EXPECT_THAT(text(DiskState::kFailing), ::testing::HasSubstr(" failed"));
    EXPECT_THAT(text(DiskState::kDamaged), ::testing::HasSubstr(" damaged"));
    EXPECT_THAT(text(DiskState::kNoFiles), ::testing::HasSubstr(" no free file descriptor"));
    EXPECT_THAT(text(DiskState::kMissing), ::testing::HasSubstr(" missing"));
    EXPECT_EQ(text(DiskState::kOk), text(DiskState::kFailing)) << "well again by now";
    for (const auto state : kDiskStates) {
      if (state == DiskState::kOk) continue;
      EXPECT_TRUE(sentences.insert(text(state)).second) << text(state);
    }
  }
}

}  // namespace
}  // namespace rkv::server
