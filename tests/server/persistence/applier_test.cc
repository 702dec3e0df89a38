#include "server/persistence/applier.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <thread>
#include <vector>

#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

using test::TempDir;

// Makes every file of this process unwritable beyond its present beginning, as a full disk would.
class BrokenDisk {
 public:
  BrokenDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~BrokenDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  BrokenDisk(const BrokenDisk&) = delete;
  BrokenDisk& operator=(const BrokenDisk&) = delete;

 private:
  rlimit before_{};
};

class ApplierTest : public testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    auto engine = StorageEngine::open(dir_.path());
    ASSERT_TRUE(engine) << to_string(engine.error());
    engine_ = std::move(*engine);
    auto log = CommitLog::create(CommitLog::kMinCapacityBytes);
    ASSERT_TRUE(log);
    log_ = std::move(*log);
    applier_ = std::make_unique<Applier>(*log_, *engine_, clock_, options_, [this] { ++changes_; });
  }
  std::uint64_t append(const std::string& key, const std::string& value,
                       CommitLog::Kind kind = CommitLog::Kind::kPut) {
    const auto room = log_->try_reserve(key.size(), value.size());
    if (!room) return 0;
    const auto ticket = log_->begin(*room);
    log_->finish(ticket, kind,
                 {.version = Version::of(1, ticket.sequence),
                  .key = as_bytes(key),
                  .value = as_bytes(value)});
    expected_[key] = value;
    if (kind == CommitLog::Kind::kRemove) expected_.erase(key);
    return ticket.sequence;
  }
  std::map<std::string, std::string> on_disk() {
    std::map<std::string, std::string> found;
    EXPECT_TRUE(engine_->read_from({}, [&](const RecordFields& record) {
      found.emplace(as_text(record.key), as_text(record.value));
      return true;
    }));
    return found;
  }

  const TempDir dir_;
  ManualClock clock_;
  ApplierOptions options_;
  std::unique_ptr<StorageEngine> engine_;
  std::unique_ptr<CommitLog> log_;
  std::atomic<int> changes_ = 0;
  std::map<std::string, std::string> expected_;
  std::unique_ptr<Applier> applier_;
};

TEST_F(ApplierTest, WritesInOrderAndRaisesTheWalMark) {
  append("a", "1");
  append("b", "2");
  append("a", "3");
  append("b", "", CommitLog::Kind::kRemove);
  applier_->step();
  EXPECT_EQ(on_disk(), expected_);
  EXPECT_EQ(log_->wal_mark(), log_->last_begun());
  EXPECT_EQ(log_->sync_mark(), 0U) << "nobody asked";
  EXPECT_EQ(changes_, 1);
}

TEST_F(ApplierTest, SyncsWhenAskedAndWakesTheWaiter) {
  const std::uint64_t sequence = append("a", "1");
  applier_->request_sync(sequence);
  applier_->step();
  EXPECT_GE(log_->sync_mark(), sequence);
  EXPECT_EQ(changes_, 2);
  EXPECT_EQ(log_->bytes_queued(), 0U) << "room is given back when entries are synced";
  applier_->step();
  EXPECT_EQ(changes_, 2) << "nothing to do, nothing said";
}

// Group commit: all who ask while the disk is at work, or before, share the next write and sync.
TEST_F(ApplierTest, RequestsShareOneWriteAndOneSync) {
  constexpr std::uint64_t kPuts = 100;
  for (std::uint64_t i = 0; i < kPuts; ++i)
    applier_->request_sync(append(std::to_string(i), "value"));
  applier_->step();
  EXPECT_EQ(log_->sync_mark(), log_->last_begun());
  EXPECT_EQ(applier_->counts().batches, 1U);
  EXPECT_EQ(applier_->counts().syncs, 1U);
  applier_->step();
  EXPECT_EQ(applier_->counts().syncs, 1U) << "nothing new to sync";
}

TEST_F(ApplierTest, AWriteIsAskedForWithoutASync) {
  applier_->request_write(append("a", "1"));
  applier_->step();
  EXPECT_EQ(log_->wal_mark(), log_->last_begun());
  EXPECT_EQ(log_->sync_mark(), 0U);
  EXPECT_EQ(applier_->counts().syncs, 0U);
}

// Their copies hold the queue's room like entries of the ring: a quarter of it, and it is synced.
TEST_F(ApplierTest, CopiesOfLargeValuesMakeASyncDue) {
  const auto log = *CommitLog::create(4 * CommitLog::kMinCapacityBytes);
  Applier applier(*log, *engine_, clock_, options_, [] {});
  constexpr std::size_t kLength = 2 * kMaxInlineBytes;
  const std::vector<std::byte> value = test::patterned(1, kLength);
  for (int i = 0; i < 100; ++i) {
    const auto room = log->try_reserve(3, kLength);
    ASSERT_TRUE(room) << "the queue is full at number " << i;
    auto copy = std::make_unique<std::byte[]>(kLength);
    std::ranges::copy(value, copy.get());
    const auto ticket = log->begin(*room);
    log->finish(
        ticket, CommitLog::Kind::kPut,
        {.version = Version::of(1, ticket.sequence), .key = as_bytes("key"), .value = value},
        std::move(copy));
    (void)applier.step();  // no time passes
  }
  EXPECT_GE(applier.counts().syncs, 20U);
  EXPECT_LE(applier.counts().syncs, 50U) << "a quarter is four of them";
  ASSERT_TRUE(applier.stop());
}

// Little is written and unsynced, less than a quarter; but it leaves no room for what comes.
TEST_F(ApplierTest, AWriteWithoutRoomIsGivenItByASyncAtOnce) {
  const SteadyClock clock;
  options_.sync_interval_ms = 600'000;
  Applier applier(*log_, *engine_, clock, options_, [] {});
  const std::size_t most = log_->capacity_bytes() - 256;
  const std::uint64_t sequence = append("small", std::string(1000, 'x'));
  applier.start();
  while (log_->wal_mark() < sequence)
    std::this_thread::yield();
  auto room = log_->try_reserve(3, most);
  EXPECT_FALSE(room);
  while (!room)
    room = log_->try_reserve(3, most);
  EXPECT_GE(log_->sync_mark(), sequence);
  log_->unreserve(*room);
  ASSERT_TRUE(applier.stop());
}

// With the thread: a request ends the applier's nap of `linger_us`, here longer than the test.
TEST_F(ApplierTest, ARequestDoesNotWaitForTheLinger) {
  const SteadyClock clock;
  options_.linger_us = 600'000'000;
  options_.sync_interval_ms = 600'000;
  Applier applier(*log_, *engine_, clock, options_, [] {});
  applier.start();
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t sequence = append("a", std::to_string(i));
    applier.request_write(sequence);
    while (log_->wal_mark() < sequence)
      std::this_thread::yield();
  }
  EXPECT_EQ(log_->sync_mark(), 0U);
  ASSERT_TRUE(applier.stop());
  EXPECT_EQ(on_disk(), expected_);
}

TEST_F(ApplierTest, SyncsAfterTheIntervalWhenNobodyAsks) {
  append("a", "1");
  applier_->step();
  clock_.advance((options_.sync_interval_ms - 1) * kNanosPerMs);
  applier_->step();
  EXPECT_EQ(log_->sync_mark(), 0U);
  clock_.advance(kNanosPerMs);
  applier_->step();
  EXPECT_EQ(log_->sync_mark(), log_->last_begun());
}

TEST_F(ApplierTest, SyncsWhenUnsyncedEntriesHoldAQuarterOfTheLog) {
  const std::string value(60'000, 'v');
  while ((log_->last_begun() - log_->sync_mark()) * 8 < log_->capacity_bytes() / 4)
    append("a", value);
  applier_->step();
  EXPECT_EQ(log_->sync_mark(), log_->last_begun());
}

TEST_F(ApplierTest, LaterRequestsDoNotPutOffAnEarlierOne) {
  const std::uint64_t first = append("a", "1");
  applier_->request_sync(first);
  const auto open = log_->begin(*log_->try_reserve(1, 1));  // begun, not finished
  applier_->request_sync(log_->last_begun());
  applier_->step();
  // Both were open when the sync target was taken: it waits for the later one, no longer.
  EXPECT_EQ(log_->sync_mark(), 0U);
  log_->finish(open, CommitLog::Kind::kRemove, {.key = as_bytes("x")});
  applier_->step();
  EXPECT_GE(log_->sync_mark(), first);
}

TEST_F(ApplierTest, ABatchEndsAtItsLimits) {
  for (std::uint32_t i = 0; i < options_.batch_records + 1; ++i)
    append(std::to_string(i % 7), "");
  EXPECT_TRUE(applier_->step()) << "there is more";
  EXPECT_LT(log_->wal_mark(), log_->last_begun());
  EXPECT_FALSE(applier_->step());
  EXPECT_EQ(log_->wal_mark(), log_->last_begun());
}

TEST_F(ApplierTest, StopSavesEverything) {
  for (int i = 0; i < 100; ++i)
    append(std::to_string(i), "value");
  ASSERT_TRUE(applier_->stop());
  EXPECT_EQ(log_->sync_mark(), log_->last_begun());
  EXPECT_EQ(on_disk(), expected_);
}

TEST_F(ApplierTest, AFailingDiskLosesNothingAndRecovers) {
  append("before", "synced");
  applier_->request_sync(log_->last_begun());
  applier_->step();
  const std::uint64_t synced = log_->sync_mark();
  append("a", "1");
  applier_->step();  // written, not synced
  {
    const BrokenDisk broken;
    append("a", std::string(100'000, '2'));
    append("b", "1");
    applier_->step();
    EXPECT_TRUE(log_->failed());
    EXPECT_EQ(log_->try_reserve(1, 1).error().code, Code::kIo);
    EXPECT_EQ(log_->sync_mark(), synced);
    for (int i = 0; i < 5; ++i) {
      clock_.advance(options_.retry_ms_max * kNanosPerMs);
      applier_->step();
      EXPECT_TRUE(log_->failed());
    }
  }
  EXPECT_FALSE(log_->try_reserve(1, 1)) << "not before everything is on disk again";
  clock_.advance(options_.retry_ms_max * kNanosPerMs);
  applier_->step();
  EXPECT_FALSE(log_->failed());
  EXPECT_EQ(log_->sync_mark(), log_->last_begun());
  append("c", "after");
  applier_->step();
  EXPECT_EQ(on_disk(), expected_);
}

TEST_F(ApplierTest, AFailureIsToldOnceAndWritesStayRefused) {
  const BrokenDisk broken;
  append("a", std::string(100'000, '2'));
  applier_->step();
  ASSERT_TRUE(log_->failed());
  const int before = changes_;
  for (int ms = 0; ms < 20'000; ms += 50) {
    clock_.advance(50 * kNanosPerMs);
    applier_->step();
  }
  EXPECT_EQ(changes_, before);
  EXPECT_TRUE(log_->failed());
}

TEST_F(ApplierTest, StopGivesUpOnADeadDiskAndSaysSo) {
  options_.stop_timeout_ms = 0;
  applier_ = std::make_unique<Applier>(*log_, *engine_, clock_, options_, [] {});
  const BrokenDisk broken;
  append("a", std::string(100'000, '2'));
  applier_->step();
  const auto stopped = applier_->stop();
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Code::kIo);
}

TEST_F(ApplierTest, ThreadServesWritersAndFlushes) {
  const SteadyClock clock;
  Applier applier(*log_, *engine_, clock, options_, [] {});
  applier.start();
  std::vector<std::jthread> writers;
  writers.reserve(2);
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 3000; ++i) {
        const std::string key = fmt::format("{}-{}", writer, i % 50);
        const std::string value = fmt::format("{}{}", std::string(500, 'v'), i);
        auto room = log_->try_reserve(key.size(), value.size());
        for (; !room; room = log_->try_reserve(key.size(), value.size()))
          std::this_thread::yield();
        const auto ticket = log_->begin(*room);
        log_->finish(ticket, CommitLog::Kind::kPut,
                     {.version = Version::of(1, ticket.sequence),
                      .key = as_bytes(key),
                      .value = as_bytes(value)});
        if (i % 500 != 0) continue;
        applier.request_sync(ticket.sequence);
        while (log_->sync_mark() < ticket.sequence)
          std::this_thread::yield();
      }
    });
  }
  writers.clear();
  ASSERT_TRUE(applier.stop());
  EXPECT_EQ(log_->sync_mark(), log_->last_begun());
  const auto found = on_disk();
  ASSERT_EQ(found.size(), 100U);
  for (const auto& [key, value] : found) {
    const int i = std::stoi(key.substr(2));
    EXPECT_EQ(value, fmt::format("{}{}", std::string(500, 'v'), 2950 + i));
  }
}

}  // namespace
}  // namespace rkv::server
