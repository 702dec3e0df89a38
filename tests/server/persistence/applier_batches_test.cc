// The data that reaches the storage: each key's last write of a batch, marks that are true of it,
// and no more at a time than the queue holds. Invariants LASTW-1, LASTW-2, APPL-1, APPL-3, APPL-5,
// CLOG-3.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>

#include "server/persistence/applier.h"
#include "server/persistence/last_writes.h"
#include "tests/server/persistence/support.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

using Contents = std::map<std::string, std::string>;

// Batches in memory; each is there whole when it is written.
class PlainStorage final : public Storage {
 public:
  void add_put(const RecordFields& record) override {
    batch_.emplace_back(as_text(record.key), std::string(as_text(record.value)));
  }
  void add_remove(Bytes key) override { batch_.emplace_back(as_text(key), std::nullopt); }
  Status write_batch() override {
    if (broken) return fail(Code::kIo, "broken");
    for (const auto& [key, value] : batch_) {
      if (value) contents[key] = *value;
      if (!value) contents.erase(key);
    }
    writes += batch_.size();
    batch_.clear();
    return {};
  }
  void clear_batch() override { batch_.clear(); }
  Status sync() override {
    if (during_sync) during_sync();
    if (broken) return fail(Code::kIo, "broken");
    return {};
  }
  Status recover() override {
    if (broken) return fail(Code::kIo, "broken");
    return {};
  }

  std::function<void()> during_sync;
  Contents contents;
  std::size_t writes = 0;
  bool broken = false;

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> batch_;
};

struct Written {
  std::uint64_t sequence;
  std::string key;
  std::optional<std::string> value;  // nothing: removed
};

// Whether `contents` is what all writes up to `mark` make, and none after.
bool is_prefix(const Contents& contents, const std::vector<Written>& history, std::uint64_t mark) {
  Contents model;
  for (const Written& write : history) {
    if (write.sequence > mark) break;
    if (write.value) model[write.key] = *write.value;
    if (!write.value) model.erase(write.key);
  }
  return contents == model;
}

class BatchesTest : public ::testing::Test {
 protected:
  BatchesTest() : log_(std::move(*CommitLog::create(CommitLog::kMinCapacityBytes))) { make(); }
  void make() {
    applier_ = std::make_unique<Applier>(*log_, storage_, clock_, options_, [] {});
  }
  Code write(const std::string& key, const std::optional<std::string>& value) {
    const std::string text = value.value_or("");
    const auto room = log_->try_reserve(key.size(), text.size());
    if (!room) return room.error().code;
    const auto ticket = log_->begin(*room);
    log_->finish(ticket, value ? CommitLog::Kind::kPut : CommitLog::Kind::kRemove,
                 {.version = Version::of(1, ticket.sequence),
                  .key = as_bytes(key),
                  .value = as_bytes(text)});
    history_.push_back({ticket.sequence, key, value});
    return Code{};
  }

  ManualClock clock_;
  ApplierOptions options_;
  std::unique_ptr<CommitLog> log_;
  PlainStorage storage_;
  std::vector<Written> history_;
  std::unique_ptr<Applier> applier_;
};

TEST_F(BatchesTest, VersionsOfOneKeyInTheQueueAreWrittenOnce) {
  for (int i = 0; i < 1000; ++i)
    write("hot", std::to_string(i));
  write("cold", "1");
  write("gone", "1");
  write("gone", std::nullopt);
  write("back", std::nullopt);
  write("back", "again");
  applier_->step();
  EXPECT_EQ(storage_.writes, 4U);
  EXPECT_EQ(applier_->counts().coalesced, 1001U);
  EXPECT_EQ(log_->wal_mark(), log_->last_begun()) << "the mark passes what was left out, too";
  EXPECT_EQ(storage_.contents, (Contents{{"hot", "999"}, {"cold", "1"}, {"back", "again"}}));
}

TEST_F(BatchesTest, WhatIsWrittenAgainIsCountedOnce) {
  for (int i = 0; i < 10; ++i)
    write(std::to_string(i), "v");
  applier_->step();
  storage_.broken = true;
  write("last", "v");
  applier_->step();
  EXPECT_EQ(applier_->counts().taken, 11U);
  EXPECT_EQ(applier_->counts().unsynced(), 11U) << "as it is while the disk fails";
  storage_.broken = false;
  clock_.advance(options_.retry_ms_max * kNanosPerMs);
  applier_->step();
  EXPECT_EQ(applier_->counts().taken, 11U);
  EXPECT_EQ(applier_->counts().saved, 11U);
}

// A disk that hangs gives no error to tell of.
TEST_F(BatchesTest, OthersSeeHowLongTheDiskHasNotAnswered) {
  std::vector<Nanos> seen;
  storage_.during_sync = [&] {
    const Nanos began = clock_.now();
    EXPECT_EQ(applier_->counts().asked_since, began);
    for (const Nanos later : {Nanos{0}, Applier::kHungAfter - 1, Applier::kHungAfter})
      seen.push_back(applier_->counts().hung_for(began + later));
    clock_.advance(3 * Applier::kHungAfter);
  };
  EXPECT_EQ(write("key", "v"), Code{});
  applier_->request_sync(log_->last_begun());
  applier_->step();
  EXPECT_EQ(seen, (std::vector<Nanos>{0, 0, Applier::kHungAfter}));
  EXPECT_EQ(applier_->counts().asked_since, 0);
  EXPECT_EQ(applier_->counts().hung_for(clock_.now()), 0) << "it has answered";
}

TEST_F(BatchesTest, NothingIsLeftOutAcrossBatches) {
  options_.batch_records = 10;
  make();
  for (int i = 0; i < 30; ++i)
    write("hot", std::to_string(i));
  applier_->step();
  EXPECT_EQ(storage_.contents["hot"], "9");
  EXPECT_TRUE(is_prefix(storage_.contents, history_, log_->wal_mark()));
  applier_->step();
  EXPECT_EQ(storage_.contents["hot"], "19");
  EXPECT_EQ(storage_.writes, 2U);
}

// A process that dies between two steps leaves what the storage holds then.
TEST_F(BatchesTest, AtEveryMarkTheStorageIsThePrefixThatItNames) {
  Random random(test::test_seed());
  for (int round = 0; round < 300; ++round) {
    options_.batch_records = static_cast<std::uint32_t>(1 + random.below(20));
    options_.batch_bytes = 1 + random.below(500);
    if (!applier_->step()) make();  // other limits; what it knew is all in the log
    for (std::uint64_t n = random.below(40); n > 0; --n) {
      const std::string key = std::to_string(random.below(6));
      write(key, random.below(4) == 0 ? std::nullopt
                                      : std::optional(std::string(random.below(60), 'v')));
    }
    if (random.below(3) == 0) applier_->request_sync(log_->last_begun());
    storage_.broken = random.below(10) == 0;
    applier_->step();
    if (storage_.broken) {
      // Tried again until it is well; then everything since the last sync is there at once.
      storage_.broken = false;
      clock_.advance(options_.retry_ms_max * kNanosPerMs);
      applier_->step();
    }
    ASSERT_TRUE(is_prefix(storage_.contents, history_, log_->wal_mark())) << "round " << round;
    ASSERT_LE(log_->sync_mark(), log_->wal_mark());
  }
  EXPECT_GT(applier_->counts().batches, 0U);
}

// The check above sees: a value of the wrong write, a write too many, one too few.
TEST_F(BatchesTest, TheCheckSeesStatesThatAreNoPrefix) {
  write("a", "1");
  write("a", "2");
  write("b", "1");
  write("b", std::nullopt);
  const std::uint64_t middle = history_[2].sequence;
  EXPECT_TRUE(is_prefix({{"a", "2"}, {"b", "1"}}, history_, middle));
  EXPECT_FALSE(is_prefix({{"a", "1"}, {"b", "1"}}, history_, middle)) << "the first, not the last";
  EXPECT_FALSE(is_prefix({{"a", "2"}}, history_, middle)) << "a later removal";
  EXPECT_FALSE(is_prefix({{"b", "1"}}, history_, middle)) << "one lost";
}

// Bounded write-behind: when the disk stands still writers are informed, what is reported done is
// kept, and when it goes on so do they.
TEST_F(BatchesTest, AFullQueueTurnsWritersAwayAndLosesNothing) {
  const std::string value(50'000, 'v');
  Code last{};
  int taken = 0;
  for (; taken < 1000 && last == Code{}; ++taken)
    last = write(std::to_string(taken), value);
  EXPECT_EQ(last, Code::kBusy);
  EXPECT_LE(log_->bytes_queued(), log_->capacity_bytes());
  EXPECT_EQ(log_->refused(), 1U);
  // Written is not enough: unsynced writes keep their room, or a failing disk would lose them. A
  // full queue is far above the quarter at which a sync is due.
  while (applier_->step()) {
  }
  EXPECT_EQ(log_->bytes_queued(), 0U);
  EXPECT_EQ(write("more", value), Code{});
  EXPECT_EQ(log_->refused(), 1U);
  while (applier_->step()) {
  }
  EXPECT_TRUE(is_prefix(storage_.contents, history_, log_->wal_mark()));
  EXPECT_EQ(storage_.contents.size(), static_cast<std::size_t>(taken));
}

// ------------------------------------------------------------------------------- LastWrites

TEST(LastWrites, KeepsTheLastOfEachKeyInAnyOrderAndNumber) {
  Random random(test::test_seed());
  LastWrites writes(random());
  for (int round = 0; round < 20; ++round) {
    const std::uint64_t keys = 1 + random.below(40'000);
    std::vector<std::string> names;
    for (std::uint64_t i = 0; i < 30'000; ++i)
      names.push_back(std::to_string(random.below(keys)));
    std::map<std::string, std::uint64_t> last;
    for (std::uint64_t i = 0; i < names.size(); ++i) {
      writes.add({.sequence = i, .record = {.key = as_bytes(names[i])}});
      last[names[i]] = i;
    }
    EXPECT_EQ(writes.added(), names.size());
    EXPECT_EQ(writes.added() - writes.void_ones(), last.size());
    std::size_t bytes = 0;
    std::size_t visited = 0;
    auto next = last.begin();  // a map of strings has the order of memcmp(3)
    writes.for_each([&](const CommitLog::Entry& entry) {
      ++visited;
      EXPECT_EQ((next++)->first, as_text(entry.record.key));
      bytes += entry.record.key.size();
      EXPECT_EQ(last.at(std::string(as_text(entry.record.key))), entry.sequence);
    });
    EXPECT_EQ(visited, last.size());
    EXPECT_EQ(bytes, writes.bytes());
    writes.clear();
    EXPECT_EQ(writes.added(), 0U);
  }
}

TEST(LastWrites, VisitsKeysInTheOrderOfTheirBytes) {
  const std::vector<std::string> sorted = {std::string(1, '\0'),
                                           std::string(2, '\0'),
                                           std::string(8, '\0'),
                                           std::string(9, '\0'),
                                           "a",
                                           std::string("a\0", 2),
                                           std::string("a\0\0b", 4),
                                           "aaaaaaaa",
                                           "aaaaaaaaa",
                                           "aaaaaaaab",
                                           "aaaaaaab",
                                           "\x7f",
                                           "\x80",
                                           "\xff",
                                           "\xff\xff"};
  std::vector<std::string> shuffled = sorted;
  std::ranges::shuffle(shuffled, Random(test::test_seed()));
  LastWrites writes(1);
  for (const std::string& key : shuffled)
    writes.add({.record = {.key = as_bytes(key)}});
  std::vector<std::string> visited;
  writes.for_each(
      [&](const CommitLog::Entry& entry) { visited.emplace_back(as_text(entry.record.key)); });
  EXPECT_EQ(visited, sorted);
}

}  // namespace
}  // namespace rkv::server
