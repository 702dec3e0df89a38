// The logs: synced in their order, damage distinguished from a torn end. Invariants LOGF-1 to
// LOGF-4, CHAIN-1 to CHAIN-3.
#include "server/persistence/wal/log_chain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "common/log.h"
#include "server/persistence/storage_engine.h"
#include "server/persistence/wal/log_files.h"
#include "tests/server/persistence/disk_model.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

namespace fs = std::filesystem;
using rocksdb::WalFilter;
using test::DiskCall;
using test::DiskModel;
using test::TempDir;
using Option = WalFilter::WalProcessingOption;

constexpr int kBatches = 40;

void put(StorageEngine& engine, int number, std::size_t length = 900) {
  const std::string key = fmt::format("key{}", number);
  engine.add_put({.version = Version::of(1, static_cast<std::uint64_t>(number) + 1),
                  .key = as_bytes(key),
                  .value = test::patterned(static_cast<std::uint64_t>(number), length)});
}

std::size_t records_of(StorageEngine& engine) {
  std::size_t records = 0;
  EXPECT_TRUE(engine.read_from({}, [&](const RecordFields&) {
    ++records;
    return true;
  }));
  return records;
}

fs::path log_in(const std::string& directory) {
  return rkv::testing::longest_file(directory + "/db", ".log");
}

std::uint64_t newest_log(const std::string& directory) {
  std::uint64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(directory + "/db"))
    newest = std::max(newest, log_number(entry.path()));
  return newest;
}

class LogDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    const auto engine = *StorageEngine::open(dir_.path());
    ASSERT_TRUE(engine->claim_boot());
    for (int i = 0; i < kBatches; ++i) {
      put(*engine, i);
      ASSERT_TRUE(engine->write_batch());
      if (i < kBatches - 5) {
        ASSERT_TRUE(engine->sync());
      }
    }
  }
  void TearDown() override { set_log_level(LogLevel::kInfo); }

  // Starts with a directory whose log has these bytes. Returns the number of records, or the error.
  static Result<std::size_t> start_with(const std::string& from, const std::string& log,
                                        const EngineOptions& options = {}) {
    const TempDir copy;
    fs::copy(from, copy.path(), fs::copy_options::recursive);
    testing::write_file(log_in(copy.path()), log);
    RKV_ASSIGN_OR_RETURN(const auto engine, StorageEngine::open(copy.path(), options));
    return records_of(*engine);
  }

  const TempDir dir_;
};

// The first record is the claimed boot number.
TEST_F(LogDamage, OfWhatWasSyncedIsNeverTakenForTheEnd) {
  const std::string sound = testing::read_file(log_in(dir_.path()));
  Random random(test::test_seed());
  const std::size_t batch = sound.size() / kBatches;
  for (int i = 0; i < 60; ++i) {
    const std::size_t at = i < 20 ? static_cast<std::size_t>(i) : random.below(sound.size());
    const auto records = start_with(dir_.path(), testing::flipped(sound, at, 1 << random.below(8)));
    if (at < batch * (kBatches - 6)) {
      ASSERT_FALSE(records) << *records << " records, byte " << at << " of " << sound.size();
      EXPECT_EQ(records.error().code, Code::kCorrupt);
    } else if (records) {
      EXPECT_GE(*records, kBatches - 7U) << at;
    }
  }
}

// Accepted, such damage takes the claim with it: the number is not given out once more.
TEST_F(LogDamage, AcceptedOfTheClaimGivesNoBootNumberOutTwice) {
  std::uint32_t lost = 0;
  {
    const auto engine = *StorageEngine::open(dir_.path());  // what was in the log is in a table
    lost = engine->boot();
    ASSERT_TRUE(engine->claim_boot());
    for (int i = 0; i < 5; ++i) {
      put(*engine, i);
      ASSERT_TRUE(engine->write_batch());
      ASSERT_TRUE(engine->sync());
    }
  }
  ASSERT_EQ(lost, 2U);
  const std::string log = log_in(dir_.path());
  testing::write_file(log, testing::flipped(testing::read_file(log), 10, 0x7e));
  ASSERT_FALSE(StorageEngine::open(dir_.path()));
  EXPECT_GT((*StorageEngine::open(dir_.path(), {.accept_damaged_log = true}))->boot(), lost);
  EXPECT_GT((*StorageEngine::open(dir_.path()))->boot(), lost) << "the first start has ended early";
}

// RocksDB reads nothing of a block behind a damaged record: all of this log.
TEST(LogDamageInABlock, OfWhatWasSyncedIsNeverTakenForTheEnd) {
  set_log_level(LogLevel::kOff);
  constexpr int kFew = 9;
  const TempDir dir;
  {
    const auto engine = *StorageEngine::open(dir.path());
    ASSERT_TRUE(engine->claim_boot());
    for (int i = 0; i < kFew; ++i) {
      put(*engine, i, 3000);
      ASSERT_TRUE(engine->write_batch());
      ASSERT_TRUE(engine->sync());
    }
  }
  const std::string sound = testing::read_file(log_in(dir.path()));
  ASSERT_LT(sound.size(), 32U << 10);
  const auto expect_damage = [&](std::size_t at, int mask) {
    const TempDir copy;
    fs::copy(dir.path(), copy.path(), fs::copy_options::recursive);
    testing::write_file(log_in(copy.path()), testing::flipped(sound, at, mask));
    const auto engine = StorageEngine::open(copy.path());
    ASSERT_FALSE(engine) << "byte " << at << " of " << sound.size();
    EXPECT_EQ(engine.error().code, Code::kCorrupt);
  };
  Random random(test::test_seed());
  for (std::size_t i = 0; i < 60; ++i)
    expect_damage(i < 30 ? i : random.below(sound.size() - 3100), 1 << random.below(8));
  // A bit of the record's type: it may look recycled, which keeps RocksDB's reader in an endless
  // loop when it is to skip damage.
  for (int bit = 0; bit < 8; ++bit)
    expect_damage(6, 1 << bit);
  set_log_level(LogLevel::kInfo);
}

// Fails to open a log once, the first time or a later one, as a system without descriptors does.
class ClosedLogs final : public rocksdb::FileSystemWrapper {
 public:
  ClosedLogs(const std::shared_ptr<rocksdb::FileSystem>& files, int before)
      : FileSystemWrapper(files), left_(before) {}
  const char* Name() const override { return "ClosedLogs"; }
  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* context) override {
    if (log_number(name) != 0 && left_-- == 0)
      return rocksdb::IOStatus::IOError("Too many open files", name);
    return target()->NewSequentialFile(name, options, file, context);
  }

 private:
  int left_;
};

// A passing failure while the logs are checked must not let damage through.
TEST_F(LogDamage, IsNotOverlookedWhenTheLogsCannotBeRead) {
  const fs::path log = log_in(dir_.path());
  const std::string sound = testing::read_file(log);
  testing::write_file(log, testing::flipped(sound, sound.size() / 2));
  for (int before = 0; before < 3; ++before) {
    const std::shared_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(
        std::make_shared<ClosedLogs>(rocksdb::FileSystem::Default(), before));
    const auto engine = StorageEngine::open(dir_.path(), {.env = env});
    ASSERT_FALSE(engine) << before;
    EXPECT_EQ(engine.error().code, Code::kIo) << before;
  }
  EXPECT_EQ(StorageEngine::open(dir_.path()).error().code, Code::kCorrupt) << "nothing was changed";
}

// The remains of a lost machine behind the last sync count as an end, not as damage (CHAIN-2).
TEST_F(LogDamage, BehindTheLastSyncIsAnEnd) {
  const std::string sound = testing::read_file(log_in(dir_.path()));
  const std::size_t batch = sound.size() / kBatches;
  const std::size_t unsynced = sound.size() - 4 * batch;
  for (const std::size_t at : {unsynced, unsynced + batch, sound.size() - 10}) {
    const auto records = start_with(dir_.path(), testing::flipped(sound, at));
    ASSERT_TRUE(records) << to_string(records.error());
    EXPECT_GE(*records, kBatches - 5U);
    EXPECT_LT(*records, static_cast<std::size_t>(kBatches));
    const auto cut = start_with(dir_.path(), sound.substr(0, at));
    ASSERT_TRUE(cut) << to_string(cut.error());
    EXPECT_EQ(*cut, *records);
  }
}

TEST_F(LogDamage, IsAcceptedWhenAskedFor) {
  const std::string sound = testing::read_file(log_in(dir_.path()));
  const std::string damaged = testing::flipped(sound, sound.size() / 2);
  ASSERT_FALSE(start_with(dir_.path(), damaged));
  const auto records = start_with(dir_.path(), damaged, {.accept_damaged_log = true});
  ASSERT_TRUE(records);
  EXPECT_GT(*records, kBatches / 3U);
  EXPECT_LT(*records, kBatches * 2 / 3U);
}

// RocksDB has noted how long a log was that it synced and closed. No stamp tells of one that is cut
// where a record ends, since nothing was synced by the engine. The disk takes no table, since a
// record in a table needs no log.
TEST(LogOfNotedLength, ThatIsShorterIsAcceptedWhenAskedFor) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  constexpr int kKept = 5;  // the first records of the first log
  int records = 0;
  std::uint64_t bytes = 0;  // of that log when it had no more
  std::uint64_t first = 0;
  {
    auto engine =
        *StorageEngine::open(dir.path(), {.env = test::env_on(disk), .memtable_bytes = 64 << 10});
    ASSERT_TRUE(engine->claim_boot());  // keeps the first log alive
    disk->set_fault([](DiskCall call, const std::string& path) {
      return call == DiskCall::kCreate && path.ends_with(".sst")
                 ? rocksdb::IOStatus::IOError("no table is taken", path)
                 : rocksdb::IOStatus::OK();
    });
    first = newest_log(dir.path());
    const fs::path log = fmt::format("{}/db/{:06}.log", dir.path(), first);
    while (newest_log(dir.path()) == first || records < kKept + 3) {
      if (records == kKept) bytes = fs::file_size(log);
      put(*engine, records++);
      ASSERT_TRUE(engine->write_batch());
    }
    (void)engine->close();  // may report the table that was refused
    ASSERT_GT(fs::file_size(log), bytes);
    fs::resize_file(log, bytes);
  }
  const auto refused = StorageEngine::open(dir.path());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
  for (const bool accept : {true, false}) {  // once is enough
    const auto engine = StorageEngine::open(dir.path(), {.accept_damaged_log = accept});
    ASSERT_TRUE(engine) << to_string(engine.error());
    EXPECT_EQ(records_of(**engine), static_cast<std::size_t>(kKept));
  }
  set_log_level(LogLevel::kInfo);
}

// One of the logs that are no longer needed came back with the crash, and a later one did not.
TEST(LogChain, BeginsWithTheFirstLogThatIsNeeded) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  int records = 0;
  fs::path first;
  std::string removed;
  {
    auto engine = *StorageEngine::open(dir.path(), {.memtable_bytes = 64 << 10});
    std::set<std::uint64_t> begun;
    while (begun.size() < 4 || fs::exists(first)) {
      put(*engine, records++);
      ASSERT_TRUE(engine->write_batch());
      ASSERT_TRUE(engine->sync());
      const std::uint64_t newest = newest_log(dir.path());
      begun.insert(newest);
      if (begun.size() == 1) {
        first = dir.file(fmt::format("db/{:06}.log", newest));
        removed = testing::read_file(first);
      }
    }
    ASSERT_TRUE(engine->close());
  }
  testing::write_file(first, removed);
  const auto engine = StorageEngine::open(dir.path());
  ASSERT_TRUE(engine) << to_string(engine.error());
  EXPECT_EQ(records_of(**engine), static_cast<std::size_t>(records));
  set_log_level(LogLevel::kInfo);
}

// A batch as it is in a log: sequence 8, count 4, then its parts.
rocksdb::WriteBatch batch_of(std::uint64_t sequence, int count) {
  rocksdb::WriteBatch batch;
  for (int i = 0; i < count; ++i)
    EXPECT_TRUE(batch.Put("k", "v").ok());
  std::string bytes = batch.Data();
  store_le(reinterpret_cast<std::byte*>(bytes.data()), sequence);
  return rocksdb::WriteBatch(bytes);
}

class Chain {
 public:
  explicit Chain(const std::string& file, rocksdb::Env& env = *rocksdb::Env::Default())
      : chain_(env), file_(file) {
    std::string head(7, 'h');
    head.resize(15);
    store_le(reinterpret_cast<std::byte*>(head.data()) + 7, std::uint64_t{10});
    EXPECT_TRUE(rocksdb::WriteStringToFile(&env, head, file_).ok());
  }
  Option found(std::uint64_t sequence, int count) {
    return chain_.LogRecordFound(3, file_, batch_of(sequence, count), nullptr, nullptr);
  }

 private:
  LogChain chain_;
  const std::string file_;
};

TEST(LogChain, StopsAtAGap) {
  const TempDir dir;
  Chain chain(dir.file("log"));
  EXPECT_EQ(chain.found(10, 3), Option::kContinueProcessing);
  EXPECT_EQ(chain.found(13, 1), Option::kContinueProcessing);
  EXPECT_EQ(chain.found(15, 1), Option::kStopReplay) << "14 is missing";
  EXPECT_EQ(chain.found(16, 1), Option::kStopReplay);
  Chain headless(dir.file("log"));
  EXPECT_EQ(headless.found(11, 1), Option::kStopReplay) << "the file begins with 10";
}

// A log that is nowhere but on a made-up disk.
TEST(LogChain, ReadsLogsThroughItsEnvironment) {
  const std::unique_ptr<rocksdb::Env> made_up(rocksdb::NewMemEnv(rocksdb::Env::Default()));
  Chain chain("/nowhere.log", *made_up);
  EXPECT_EQ(chain.found(10, 3), Option::kContinueProcessing);
  Chain headless("/nowhere.log", *made_up);
  EXPECT_EQ(headless.found(11, 1), Option::kStopReplay) << "the file begins with 10";
}

// LOGF-1: what is seen from below.
TEST(LogFiles, AreSyncedBeforeTheNextIsBegun) {
  const TempDir dir;
  const TempDir backups;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine =
      *StorageEngine::open(dir.path(), {.env = test::env_on(disk), .memtable_bytes = 64 << 10});
  std::map<std::string, bool> unsynced;
  int begun = 0;
  int early = 0;
  disk->set_fault([&](DiskCall call, const std::string& path) {
    if (!path.ends_with(".log") || !path.starts_with(dir.path())) return rocksdb::IOStatus::OK();
    if (call == DiskCall::kAppend) unsynced[path] = true;
    if (call == DiskCall::kSync) unsynced[path] = false;
    if (call == DiskCall::kCreate) {
      ++begun;
      for (const auto& [log, is] : unsynced)
        early += is ? 1 : 0;
    }
    return rocksdb::IOStatus::OK();
  });
  // LOGF-4: in each backup is a copy of the log, which ends when it is made.
  std::atomic<bool> backed_up{false};
  std::thread maker([&] {
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(engine->checkpoint(backups.file(fmt::format("b{}", i))));
    backed_up = true;
  });
  for (int i = 0; i < 400 || !backed_up; ++i) {
    put(*engine, i % 1000);
    ASSERT_TRUE(engine->write_batch());
  }
  maker.join();
  ASSERT_TRUE(engine->close());
  disk->set_fault({});
  EXPECT_GT(begun, 2);
  EXPECT_EQ(early, 0);
}

// LOGF-4
TEST(LogFiles, CopiesEndWhenTheyAreStopped) {
  const TempDir dir;
  const TempDir backups;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine = *StorageEngine::open(dir.path(), {.env = test::env_on(disk)});
  put(*engine, 1);
  ASSERT_TRUE(engine->write_batch());
  disk->set_fault([&](DiskCall call, const std::string& path) {
    if (call == DiskCall::kCreate && path.starts_with(backups.path())) engine->stop_checkpoints();
    return rocksdb::IOStatus::OK();
  });
  const Status made = engine->checkpoint(backups.file("b"));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kIo);
  EXPECT_TRUE(std::string_view(made.error().text).find("is stopping") != std::string::npos);
  EXPECT_FALSE(fs::exists(backups.file("b")));
  put(*engine, 2);
  ASSERT_TRUE(engine->write_batch());
  ASSERT_TRUE(engine->sync());
  EXPECT_EQ(records_of(*engine), 2U);
  ASSERT_TRUE(engine->close());
  disk->set_fault({});
}

// LOGF-2, LOGF-3: a failed sync is reported, and none succeeds until the database is reopened.
TEST(LogFiles, AFailedSyncStaysFailed) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine =
      *StorageEngine::open(dir.path(), {.env = test::env_on(disk), .memtable_bytes = 64 << 10});
  int tried = 0;
  disk->set_fault([&](DiskCall call, const std::string& path) {
    if (call != DiskCall::kSync || !path.ends_with(".log")) return rocksdb::IOStatus::OK();
    return ++tried == 1 ? rocksdb::IOStatus::IOError("Input/output error", path)
                        : rocksdb::IOStatus::OK();
  });
  put(*engine, 1);
  ASSERT_TRUE(engine->write_batch());
  EXPECT_EQ(engine->sync().error().code, Code::kIo);
  EXPECT_EQ(engine->sync().error().code, Code::kIo);
  EXPECT_EQ(tried, 1) << "it might have succeeded";
  ASSERT_TRUE(engine->recover());
  put(*engine, 1);
  ASSERT_TRUE(engine->write_batch());
  ASSERT_TRUE(engine->sync());
  EXPECT_EQ(records_of(*engine), 1U);
  ASSERT_TRUE(engine->close());
  disk->set_fault({});
  set_log_level(LogLevel::kInfo);
}

// LOGF-2, DISK-2
TEST(LogFiles, ABootNumberThatCouldNotBeSyncedIsNotClaimed) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine = *StorageEngine::open(dir.path(), {.env = test::env_on(disk)});
  disk->set_fault([&](DiskCall call, const std::string& path) {
    return call == DiskCall::kSync && path.ends_with(".log")
               ? rocksdb::IOStatus::IOError("Input/output error", path)
               : rocksdb::IOStatus::OK();
  });
  const Status claimed = engine->claim_boot();
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().code, Code::kIo);
  ASSERT_TRUE(engine->close());
  disk->set_fault({});
  set_log_level(LogLevel::kInfo);
}

// CHAIN-3 while a server runs: the failing disk has damaged what it had synced. The log is left as
// it is, and tried again.
TEST(LogFiles, ADamagedLogIsNotOpenedAnew) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine = *StorageEngine::open(dir.path(), {.env = test::env_on(disk)});
  for (int i = 0; i < kBatches; ++i) {
    put(*engine, i);
    ASSERT_TRUE(engine->write_batch());
    ASSERT_TRUE(engine->sync());
  }
  bool fails = true;
  disk->set_fault([&](DiskCall call, const std::string& path) {
    const bool now =
        call == DiskCall::kSync && path.ends_with(".log") && std::exchange(fails, false);
    return now ? rocksdb::IOStatus::IOError("Input/output error", path) : rocksdb::IOStatus::OK();
  });
  put(*engine, kBatches);
  ASSERT_TRUE(engine->write_batch());
  ASSERT_EQ(engine->sync().error().code, Code::kIo);
  const fs::path log = log_in(dir.path());
  const std::string sound = testing::read_file(log);
  testing::write_file(log, testing::flipped(sound, sound.size() / 3));
  for (int i = 0; i < 3; ++i) {
    const Status recovered = engine->recover();
    ASSERT_FALSE(recovered) << records_of(*engine) << " records are left";
    EXPECT_EQ(recovered.error().code, Code::kCorrupt);
    EXPECT_EQ(StorageEngine::open(dir.path()).error().code, Code::kCorrupt)
        << "the next start knows";
  }
  testing::write_file(log, sound);
  ASSERT_TRUE(engine->recover());
  EXPECT_GE(records_of(*engine), static_cast<std::size_t>(kBatches));
  ASSERT_TRUE(engine->close());
  disk->set_fault({});
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace rkv::server
