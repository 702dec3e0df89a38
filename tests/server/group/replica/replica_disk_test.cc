// A replica's database, with RocksDB: what it keeps beside the records, and what a backup feeds it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "common/mutex.h"
#include "common/random.h"
#include "server/group/replica/backup_disk.h"
#include "server/group/replica/entry_block.h"
#include "server/group/replica/replica_storage.h"
#include "tests/server/persistence/disk_model.h"
#include "tests/server/persistence/support.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

constexpr std::uint32_t kDiskTerm = 9;

LogPosition at(std::uint64_t sequence, std::uint32_t term = kDiskTerm) {
  return {.term = term, .version = Version::of(term, sequence).bits};
}
void put(StorageEngine& engine, std::string_view key, std::uint64_t version) {
  engine.add_put({.version = {version}, .key = as_bytes(key), .value = as_bytes("v")});
}
std::unique_ptr<StorageEngine> open_engine(const test::TempDir& directory) {
  auto engine = StorageEngine::open(directory.path());
  EXPECT_TRUE(engine) << to_string(engine.error());
  return std::move(*engine);
}

TEST(ReplicaStorage, ANewDatabaseBelongsToNoGroup) {
  const test::TempDir directory;
  const auto engine = open_engine(directory);
  const auto kept = ReplicaStorage::kept_in(*engine);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->group, 0U);
  EXPECT_TRUE(kept->history.terms().empty());
}

TEST(ReplicaStorage, KeepsItsGroupAndHowFarItHasCome) {
  const test::TempDir directory;
  {
    const auto engine = open_engine(directory);
    ReplicaStorage storage(*engine, {});
    ASSERT_TRUE(storage.join(77));
    ASSERT_TRUE(ReplicaStorage::note_configuration(*engine, 12, 5));
    storage.note_block(at(10));
    storage.note_block(at(20));
    storage.note_block(at(5, kDiskTerm + 1));
    put(*engine, "a", at(25).version);
    storage.set_through({at(25).version});  // within the third block
    ASSERT_TRUE(storage.write_batch());
    ASSERT_TRUE(storage.sync());
  }
  const auto engine = open_engine(directory);
  const auto kept = ReplicaStorage::kept_in(*engine);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->group, 77U);
  EXPECT_EQ(kept->number, 12U);
  EXPECT_EQ(kept->term, 5U);
  EXPECT_EQ(kept->history.last(), at(20)) << "the end of a block, and never ahead of the records";
}

TEST(ReplicaStorage, RecordsOfAServerOfItsOwnAreATermOfTheirs) {
  const test::TempDir directory;
  std::uint64_t highest = 0;
  {
    const auto engine = open_engine(directory);
    ASSERT_TRUE(engine->claim_boot());
    highest = Version::of(engine->boot(), 1000).bits;
    put(*engine, "a", highest);
    ASSERT_TRUE(engine->write_batch());
  }
  const auto engine = open_engine(directory);
  const auto kept = ReplicaStorage::kept_in(*engine);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->group, 0U);
  EXPECT_GE(kept->history.last().version, highest);
  EXPECT_LT(kept->history.last().version >> 32U, engine->boot());
}

TEST(ReplicaStorage, ARestoredDatabaseBelongsToNoGroup) {
  const test::TempDir directory;
  std::uint64_t highest = 0;
  {
    const auto engine = open_engine(directory);
    EXPECT_EQ(ReplicaStorage::leave_group(*engine), false) << "it never belonged to one";
    ASSERT_TRUE(engine->begin_at(kDiskTerm));
    ASSERT_TRUE(engine->claim_boot());
    ReplicaStorage storage(*engine, {});
    ASSERT_TRUE(storage.join(77));
    ASSERT_TRUE(ReplicaStorage::note_configuration(*engine, 12, 5));
    storage.note_block(at(10));
    highest = at(10).version;
    put(*engine, "a", highest);
    storage.set_through({highest});
    ASSERT_TRUE(storage.write_batch());
    ASSERT_TRUE(engine->skip_boots());
    EXPECT_EQ(ReplicaStorage::leave_group(*engine), true);
    EXPECT_EQ(ReplicaStorage::leave_group(*engine), false);
  }
  const auto engine = open_engine(directory);
  const auto kept = ReplicaStorage::kept_in(*engine);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->group, 0U);
  EXPECT_EQ(kept->number, 0U) << "another group begins with 1";
  EXPECT_EQ(kept->history.terms().size(), 1U) << "as of a server of its own";
  EXPECT_GT(kept->history.last().version, highest);
}

TEST(ReplicaStorage, VersionsOfAGroupAreNotUsedAgain) {
  const test::TempDir directory;
  const auto engine = open_engine(directory);
  ReplicaStorage storage(*engine, {});
  ASSERT_TRUE(storage.join(77));
  storage.note_block(at(10, 1 << 30));
  storage.set_through({at(10, 1 << 30).version});
  ASSERT_TRUE(storage.write_batch());
  EXPECT_EQ(ReplicaStorage::leave_group(*engine).error().code, Code::kUnsupported);
  EXPECT_EQ(ReplicaStorage::kept_in(*engine)->group, 77U) << "nothing has changed";
}

TEST(ReplicaStorage, DamagedNotesAreFound) {
  const test::TempDir directory;
  const auto engine = open_engine(directory);
  ASSERT_TRUE(engine->write_note("group", as_bytes("short")));
  EXPECT_EQ(ReplicaStorage::kept_in(*engine).error().code, Code::kCorrupt);
  ASSERT_TRUE(engine->write_note("group", as_bytes("12345678")));
  EXPECT_TRUE(ReplicaStorage::kept_in(*engine));
  ASSERT_TRUE(engine->write_note("configuration", as_bytes("twelve bytes")));
  EXPECT_TRUE(ReplicaStorage::kept_in(*engine));
  ASSERT_TRUE(engine->write_note("configuration", as_bytes("short")));
  EXPECT_EQ(ReplicaStorage::kept_in(*engine).error().code, Code::kCorrupt);
  ASSERT_TRUE(engine->write_note("configuration", {}));
  ASSERT_TRUE(engine->write_note("history", as_bytes("twelve bytes!")));
  EXPECT_EQ(ReplicaStorage::kept_in(*engine).error().code, Code::kCorrupt);
}

TEST(StorageEngine, ATermThatMayHaveBeenUsedIsRefused) {
  const test::TempDir directory;
  const auto engine = open_engine(directory);
  ASSERT_TRUE(engine->begin_at(50));
  ASSERT_TRUE(engine->claim_boot());
  EXPECT_EQ(engine->begin_at(50).error().code, Code::kConflict);
  EXPECT_TRUE(engine->begin_at(51));
}

// A log of random blocks, fed by and by, with restarts of the process: the database has exactly the
// entries at or below the mark.
class Feed {
 public:
  explicit Feed(std::uint64_t seed) : random_(seed) {}

  void append_blocks(std::uint64_t count) {
    for (; count != 0; --count) {
      std::vector<std::byte> bytes;
      for (std::uint64_t entries = 1 + random_.below(20); entries != 0; --entries) {
        sequence_ += 1 + random_.below(30);
        const std::string key = fmt::format("key-{}", random_.below(50));
        const std::string value =
            random_.below(40) == 0 ? std::string(200'000, 'x') : std::to_string(sequence_);
        const bool removes = random_.below(4) == 0;
        append_entry(bytes, {.kind = removes ? CommitLog::Kind::kRemove : CommitLog::Kind::kPut,
                             .record = {.version = {at(sequence_).version},
                                        .key = as_bytes(key),
                                        .value = removes ? Bytes{} : as_bytes(value)}});
        written_.push_back({at(sequence_).version, key, removes ? std::string() : value});
      }
      log_.append(at(sequence_), std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
      ends_.push_back(at(sequence_).version);
    }
  }

  // A process with this database: feeds up to random marks, and stops, or is killed.
  void run(const test::TempDir& directory) {
    const auto engine = open_engine(directory);
    const auto kept = ReplicaStorage::kept_in(*engine);
    ASSERT_TRUE(kept);
    ReplicaStorage storage(*engine, kept->history);
    auto queue = CommitLog::create(8 << 20, CommitLog::Group::kReplicated);
    ASSERT_TRUE(queue);
    const SteadyClock clock;
    BackupDisk disk(storage, clock, std::move(*queue), kept->history.last(),
                    // small batches, so that many would end within a block
                    {.batch_bytes = 3000, .batch_records = 5, .linger_us = 1}, [] {});
    for (std::uint64_t steps = 1 + random_.below(10); steps != 0; --steps) {
      mark_ = std::max(mark_, ends_[random_.below(ends_.size())]);
      disk.feed(log_, mark_);
      disk.want({.wal = mark_});
      EXPECT_LE(disk.through().wal, mark_);
      if (random_.below(4) == 0) expect_whole_blocks(*engine);
      EXPECT_LE(disk.through().sync, disk.through().wal);
    }
    while (disk.fed().version < mark_) {
      disk.feed(log_, mark_);
      std::this_thread::yield();
    }
    ASSERT_TRUE(disk.stop());
    EXPECT_EQ(disk.through().sync, mark_) << "a mark is the end of a block";
    expect_records(*engine, mark_);
  }

 private:
  struct Written {
    std::uint64_t version;
    std::string key;
    std::string value;  // empty: removed
  };
  // RSTORE-1, while the applier writes: a copy of the database has the log up to its position.
  void expect_whole_blocks(StorageEngine& engine) {
    const test::TempDir copy;
    ASSERT_TRUE(engine.checkpoint(copy.file("db")));
    const auto copied = open_engine(copy);
    const auto kept = ReplicaStorage::kept_in(*copied);
    ASSERT_TRUE(kept);
    expect_records(*copied, kept->history.last().version);
  }
  void expect_records(const StorageEngine& engine, std::uint64_t through) {
    std::map<std::string, std::string> expected;
    for (const Written& write : written_) {
      if (write.version > through) break;
      if (write.value.empty())
        expected.erase(write.key);
      else
        expected[write.key] = write.value;
    }
    std::map<std::string, std::string> found;
    ASSERT_TRUE(engine.read_from({}, [&](const RecordFields& record) {
      found[std::string(as_text(record.key))] = as_text(record.value);
      return true;
    }));
    EXPECT_EQ(found.size(), expected.size());
    EXPECT_TRUE(found == expected);
  }

  Random random_;
  std::uint64_t sequence_ = 0;
  ReplicaLog log_;
  std::vector<std::uint64_t> ends_;
  std::vector<Written> written_;
  std::uint64_t mark_ = 0;
};

// Holds back every sync of a file while it is closed.
class Gate {
 public:
  void close() {
    const MutexLock lock(mutex_);
    is_closed_ = true;
  }
  void open() {
    const MutexLock lock(mutex_);
    is_closed_ = false;
    changed_.notify_all();
  }
  void pass() {
    const MutexLock lock(mutex_);
    is_reached_ = is_closed_;
    changed_.notify_all();
    while (is_closed_)
      changed_.wait(mutex_);
  }
  void wait_until_reached() {
    const MutexLock lock(mutex_);
    while (!is_reached_)
      changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_closed_ RKV_GUARDED_BY(mutex_) = false;
  bool is_reached_ RKV_GUARDED_BY(mutex_) = false;
};

TEST(BackupDisk, SeesThatTheDiskDoesNotAnswer) {
  const test::TempDir directory;
  const auto model =
      std::make_shared<test::DiskModel>(directory.path(), test::DiskModel::Honesty::kHonest);
  auto engine = StorageEngine::open(directory.path(), {.env = test::env_on(model)});
  ASSERT_TRUE(engine);
  Gate gate;
  model->set_fault([&](test::DiskCall call, const std::string&) {
    if (call == test::DiskCall::kSync) gate.pass();
    return rocksdb::IOStatus::OK();
  });
  ManualClock clock;
  clock.advance(kNanosPerSecond);
  ReplicaStorage storage(**engine, {});
  auto queue = CommitLog::create(8 << 20, CommitLog::Group::kReplicated);
  ASSERT_TRUE(queue);
  BackupDisk disk(storage, clock, std::move(*queue), {}, {}, [] {});
  ReplicaLog log;
  std::vector<std::byte> bytes;
  append_entry(bytes, {.kind = CommitLog::Kind::kPut,
                       .record = {.version = {at(8).version}, .key = as_bytes("a"), .value = {}}});
  log.append(at(8), std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
  gate.close();
  disk.feed(log, at(8).version);
  disk.want({.wal = at(8).version, .sync = at(8).version});
  gate.wait_until_reached();
  clock.advance(Applier::kHungAfter - 1);
  EXPECT_FALSE(disk.has_failed(clock.now()));
  clock.advance(1);
  EXPECT_TRUE(disk.has_failed(clock.now()));
  EXPECT_TRUE(disk.is_given_up(clock.now()));
  EXPECT_EQ(disk.state(), DiskState::kOk) << "no error was reported";
  gate.open();
  while (disk.through().sync != at(8).version)
    std::this_thread::yield();
  EXPECT_FALSE(disk.has_failed(clock.now()));
  EXPECT_TRUE(disk.stop());
}

TEST(BackupDisk, HasExactlyWhatIsReplicated) {
  const std::uint64_t seed = test::test_seed();
  for (std::uint64_t round = 0; round < 5; ++round) {
    const test::TempDir directory;
    Feed feed(seed + round);
    for (int starts = 0; starts < 4; ++starts) {
      feed.append_blocks(30);
      feed.run(directory);
      ASSERT_FALSE(HasFailure()) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace rkv::server
