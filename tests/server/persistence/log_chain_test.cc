// The logs: synced in their order, damage told from a torn end. Invariants W1-W3, N1, N2.
#include "server/persistence/log_chain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/log.h"
#include "server/persistence/engine.h"
#include "tests/server/persistence/disk_model.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

namespace fs = std::filesystem;
using rocksdb::WalFilter;
using test::DiskCall;
using test::DiskModel;
using test::TempDir;
using Option = WalFilter::WalProcessingOption;

constexpr int kBatches = 40;

void put(Engine& engine, int number) {
  const std::string key = fmt::format("key{}", number);
  engine.add_put({.version = Version::of(1, static_cast<std::uint64_t>(number) + 1),
                  .key = as_bytes(key),
                  .value = test::patterned(static_cast<std::uint64_t>(number), 900)});
}

std::size_t records_of(Engine& engine) {
  std::size_t records = 0;
  EXPECT_TRUE(engine.for_each([&](const RecordFields&) -> Status {
    ++records;
    return {};
  }));
  return records;
}

fs::path log_in(const std::string& directory) {
  for (const auto& entry : fs::directory_iterator(directory + "/db"))
    if (entry.path().extension() == ".log") return entry.path();
  ADD_FAILURE() << "no log";
  return {};
}

std::string slurp(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void spit(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class LogDamage : public testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kOff);
    const auto engine = *Engine::open(dir_.path());
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

  // Of a directory whose log has these bytes: how many records there are, or the error.
  static Result<std::size_t> start_with(const std::string& from, const std::string& log,
                                        const EngineOptions& options = {}) {
    const TempDir copy;
    fs::copy(from, copy.path(), fs::copy_options::recursive);
    spit(log_in(copy.path()), log);
    RKV_ASSIGN_OR_RETURN(const auto engine, Engine::open(copy.path(), options));
    return records_of(*engine);
  }

  const TempDir dir_;
};

// The first record is the claimed boot number.
TEST_F(LogDamage, OfWhatWasSyncedIsNeverTakenForTheEnd) {
  const std::string sound = slurp(log_in(dir_.path()));
  Random random(test::test_seed());
  const std::size_t batch = sound.size() / kBatches;
  for (int i = 0; i < 60; ++i) {
    const std::size_t at = i < 20 ? static_cast<std::size_t>(i) : random.below(sound.size());
    std::string bytes = sound;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
    const auto records = start_with(dir_.path(), bytes);
    if (at < batch * (kBatches - 7)) {
      ASSERT_FALSE(records) << *records << " records, byte " << at << " of " << sound.size();
      EXPECT_EQ(records.error().code, Code::kCorrupt);
    } else if (records) {
      EXPECT_GE(*records, kBatches - 7U) << at;
    }
  }
}

// What a lost machine leaves behind the last sync is an end, and no damage (N2).
TEST_F(LogDamage, BehindTheLastSyncIsAnEnd) {
  const std::string sound = slurp(log_in(dir_.path()));
  const std::size_t batch = sound.size() / kBatches;
  const std::size_t unsynced = sound.size() - 4 * batch;
  for (const std::size_t at : {unsynced, unsynced + batch, sound.size() - 10}) {
    std::string bytes = sound;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    const auto records = start_with(dir_.path(), bytes);
    ASSERT_TRUE(records) << to_string(records.error());
    EXPECT_GE(*records, kBatches - 5U);
    EXPECT_LT(*records, static_cast<std::size_t>(kBatches));
    const auto cut = start_with(dir_.path(), sound.substr(0, at));
    ASSERT_TRUE(cut) << to_string(cut.error());
    EXPECT_EQ(*cut, *records);
  }
}

TEST_F(LogDamage, IsAcceptedWhenAskedFor) {
  std::string bytes = slurp(log_in(dir_.path()));
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_FALSE(start_with(dir_.path(), bytes));
  const auto records = start_with(dir_.path(), bytes, {.accept_damaged_log = true});
  ASSERT_TRUE(records);
  EXPECT_GT(*records, kBatches / 3U);
  EXPECT_LT(*records, kBatches * 2 / 3U);
}

// A batch as it is in a log: sequence 8, count 4, then its parts.
rocksdb::WriteBatch batch_of(std::uint64_t sequence, int count, std::uint64_t synced) {
  rocksdb::WriteBatch batch;
  for (int i = 0; i < count; ++i)
    EXPECT_TRUE(batch.Put("k", "v").ok());
  EXPECT_TRUE(LogChain::stamp(batch, synced).ok());
  std::string bytes = batch.Data();
  store_le(reinterpret_cast<std::byte*>(bytes.data()), sequence);
  return rocksdb::WriteBatch(bytes);
}

class Chain {
 public:
  Chain(const std::string& file, bool look) : chain_(look), file_(file) {
    std::string head(7, 'h');
    head.resize(15);
    store_le(reinterpret_cast<std::byte*>(head.data()) + 7, std::uint64_t{10});
    spit(file_, head);
  }
  Option found(std::uint64_t sequence, int count, std::uint64_t synced = 0) {
    return chain_.LogRecordFound(3, file_, batch_of(sequence, count, synced), nullptr, nullptr);
  }
  const LogChain& operator*() const { return chain_; }

 private:
  LogChain chain_;
  const std::string file_;
};

TEST(LogChain, StopsAtAGap) {
  const TempDir dir;
  Chain chain(dir.file("log"), false);
  EXPECT_EQ(chain.found(10, 3), Option::kContinueProcessing);
  EXPECT_EQ(chain.found(13, 1), Option::kContinueProcessing);
  EXPECT_FALSE((*chain).has_gap());
  EXPECT_EQ(chain.found(15, 1), Option::kStopReplay) << "14 is missing";
  EXPECT_EQ(chain.found(16, 1), Option::kStopReplay);
  Chain headless(dir.file("log"), false);
  EXPECT_EQ(headless.found(11, 1), Option::kStopReplay) << "the file begins with 10";
}

TEST(LogChain, AGapIsDamageWhenALaterRecordKnowsThatItWasSynced) {
  const TempDir dir;
  for (const std::uint64_t synced : {13U, 14U, 15U}) {
    Chain chain(dir.file("log"), true);
    chain.found(10, 4);
    chain.found(15, 1, 13);
    EXPECT_FALSE((*chain).is_damaged());
    chain.found(16, 1, synced);
    EXPECT_EQ((*chain).is_damaged(), synced >= 14);
  }
  Chain headless(dir.file("log"), true);
  headless.found(12, 1, 10);
  EXPECT_FALSE((*headless).is_damaged());
  headless.found(13, 1, 11);
  EXPECT_TRUE((*headless).is_damaged());
}

// W1: what is seen from below.
TEST(LogFiles, AreSyncedBeforeTheNextIsBegun) {
  const TempDir dir;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine = *Engine::open(dir.path(), {.env = test::env_on(disk), .memtable_bytes = 64 << 10});
  std::map<std::string, bool> unsynced;
  int begun = 0;
  int early = 0;
  disk->set_fault([&](DiskCall call, const std::string& path) {
    if (!path.ends_with(".log")) return rocksdb::IOStatus::OK();
    if (call == DiskCall::kAppend) unsynced[path] = true;
    if (call == DiskCall::kSync) unsynced[path] = false;
    if (call == DiskCall::kCreate) {
      ++begun;
      for (const auto& [log, is] : unsynced)
        early += is ? 1 : 0;
    }
    return rocksdb::IOStatus::OK();
  });
  for (int i = 0; i < 400; ++i) {
    put(*engine, i);
    ASSERT_TRUE(engine->write_batch());
  }
  ASSERT_TRUE(engine->close());
  disk->set_fault({});
  EXPECT_GT(begun, 2);
  EXPECT_EQ(early, 0);
}

// W2, W3: a sync that fails is told, and none succeeds until the database is opened anew.
TEST(LogFiles, AFailedSyncStaysFailed) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const auto disk = std::make_shared<DiskModel>(dir.path(), DiskModel::Honesty::kHonest);
  auto engine = *Engine::open(dir.path(), {.env = test::env_on(disk), .memtable_bytes = 64 << 10});
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

}  // namespace
}  // namespace rkv::server
