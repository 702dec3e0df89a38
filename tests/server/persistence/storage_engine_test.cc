#include "server/persistence/storage_engine.h"

#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <tuple>

#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::patterned;
using test::TempDir;

std::unique_ptr<StorageEngine> open(const TempDir& dir) {
  auto engine = StorageEngine::open(dir.path());
  EXPECT_TRUE(engine) << to_string(engine.error());
  return engine ? std::move(*engine) : nullptr;
}

using Contents = std::map<std::string, std::tuple<std::uint64_t, std::uint64_t, std::string>>;

Contents contents_of(StorageEngine& engine) {
  Contents found;
  const auto read = engine.read_from({}, [&](const RecordFields& record) {
    found[std::string(as_text(record.key))] = {record.version.bits, record.expiry_ms,
                                               std::string(as_text(record.value))};
    return true;
  });
  EXPECT_TRUE(read) << to_string(read.error());
  return found;
}

void put(StorageEngine& engine, std::string_view key, std::string_view value,
         std::uint64_t version = 1) {
  engine.add_put(
      {.version = {version}, .expiry_ms = 0, .key = as_bytes(key), .value = as_bytes(value)});
}

TEST(StorageEngine, KeepsWhatWasWritten) {
  const TempDir dir;
  const std::string binary("\0\xFF\n key", 7);
  const auto largest_key = patterned(1, kMaxKeyBytes);
  const auto largest_value = patterned(2, kMaxValueBytes);
  {
    const auto engine = open(dir);
    put(*engine, binary, "", 7);
    engine->add_put({.version = {8}, .expiry_ms = 99, .key = largest_key, .value = largest_value});
    put(*engine, "gone", "soon");
    engine->add_remove(as_bytes("gone"));
    ASSERT_TRUE(engine->write_batch());
    ASSERT_TRUE(engine->sync());
    ASSERT_TRUE(engine->close());
  }
  const Contents want = {
      {binary, {7, 0, ""}},
      {std::string(as_text(largest_key)), {8, 99, std::string(as_text(largest_value))}}};
  const auto engine = open(dir);
  EXPECT_EQ(contents_of(*engine), want);
}

TEST(StorageEngine, ABatchThatWasNotWrittenIsNotThere) {
  const TempDir dir;
  const auto engine = open(dir);
  put(*engine, "a", "1");
  engine->clear_batch();
  put(*engine, "b", "2");
  ASSERT_TRUE(engine->write_batch());
  EXPECT_EQ(contents_of(*engine).size(), 1U);
}

TEST(StorageEngine, BootCounterRisesOnlyWhenClaimed) {
  const TempDir dir;
  EXPECT_EQ(open(dir)->boot(), 1U);
  EXPECT_EQ(open(dir)->boot(), 1U) << "a start that came to nothing uses no number";
  ASSERT_TRUE(open(dir)->claim_boot());
  {
    const auto engine = open(dir);
    EXPECT_EQ(engine->boot(), 2U);
    ASSERT_TRUE(engine->claim_boot());
    EXPECT_EQ(engine->boot(), 2U);
  }
  EXPECT_EQ(open(dir)->boot(), 3U);
}

// The wall clock's number, unless the database knows a higher one.
TEST(StorageEngine, ABootNumberIsNotBelowTheClocksNorTheClaims) {
  const TempDir dir;
  {
    auto engine = *StorageEngine::open(dir.path(), {.least_boot = 70'000});
    EXPECT_EQ(engine->boot(), 70'000U);
    ASSERT_TRUE(engine->claim_boot());
  }
  EXPECT_EQ((*StorageEngine::open(dir.path(), {.least_boot = 60'000}))->boot(), 70'001U);
  EXPECT_EQ((*StorageEngine::open(dir.path(), {.least_boot = 80'000}))->boot(), 80'000U);
}

TEST(StorageEngine, AStartFindsTheTimeThatTheOneBeforeItNoted) {
  const TempDir dir;
  {
    auto engine = *StorageEngine::open(dir.path(), {.unix_ms = 1'795'000'000'000});
    EXPECT_EQ(engine->earlier_unix_ms(), 0U);
    ASSERT_TRUE(engine->claim_boot());
  }
  // Not that of a start that came to nothing.
  ASSERT_TRUE(StorageEngine::open(dir.path(), {.unix_ms = 1'799'000'000'000}));
  EXPECT_EQ((*StorageEngine::open(dir.path()))->earlier_unix_ms(), 1'795'000'000'000U);
}

// A sequence that counts on into the next boot number takes that one from later starts.
TEST(StorageEngine, ALongSequenceClaimsTheNumbersThatItCountsInto) {
  const TempDir dir;
  {
    const auto engine = open(dir);
    ASSERT_TRUE(engine->claim_boot());
    ASSERT_TRUE(engine->claim_through(0xFFFFFFFF));
  }
  Version highest;
  {
    const auto engine = open(dir);
    EXPECT_EQ(engine->boot(), 2U) << "it has claimed no more than its own";
    ASSERT_TRUE(engine->claim_boot());
    constexpr std::uint64_t kThrough = std::uint64_t{5} << 32;
    ASSERT_TRUE(engine->claim_through(kThrough));
    highest = Version::of(engine->boot(), kThrough);
  }
  EXPECT_GT(Version::of(open(dir)->boot(), 0), highest);
}

TEST(StorageEngine, AVisitorEndsTheIteration) {
  const TempDir dir;
  const auto engine = open(dir);
  for (const char* key : {"a", "b", "c"})
    put(*engine, key, "x");
  ASSERT_TRUE(engine->write_batch());
  int seen = 0;
  const auto read = engine->read_from({}, [&](const RecordFields&) { return ++seen < 2; });
  EXPECT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(seen, 2);
}

TEST(StorageEngine, ASecondOneOnTheSameDirectoryIsRefused) {
  const TempDir dir;
  const auto engine = open(dir);
  const auto second = StorageEngine::open(dir.path());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict) << to_string(second.error());
}

// Makes a database as another program would.
void make_foreign(const std::string& path, bool own_family, const std::string& key) {
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* raw = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, path, &raw).ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  if (own_family) {
    rocksdb::ColumnFamilyHandle* family = nullptr;
    ASSERT_TRUE(db->CreateColumnFamily({}, "theirs", &family).ok());
    ASSERT_TRUE(db->DestroyColumnFamilyHandle(family).ok());
  }
  ASSERT_TRUE(db->Put({}, key, "value").ok());
}

TEST(StorageEngine, LeavesTheDatabaseOfAnotherProgramAlone) {
  for (const bool own_family : {false, true}) {
    const TempDir dir;
    make_foreign(dir.file("db"), own_family, "key");
    const auto engine = StorageEngine::open(dir.path());
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code, Code::kConflict) << to_string(engine.error());
  }
}

TEST(StorageEngine, RefusesAnotherFormat) {
  const TempDir dir;
  ASSERT_NE(open(dir), nullptr);
  {
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(
        rocksdb::DB::Open({}, dir.file("db"), {{"default", {}}, {"rkv", {}}}, &handles, &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    ASSERT_TRUE(db->Put({}, handles[1], "format", std::string("\x63\0\0\0", 4)).ok());
    for (auto* handle : handles)
      ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  }
  const auto engine = StorageEngine::open(dir.path());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kVersionMismatch);
}

TEST(StorageEngine, ARecordThatIsNotOursIsCorruption) {
  const TempDir dir;
  ASSERT_NE(open(dir), nullptr);
  {
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DB* raw = nullptr;
    ASSERT_TRUE(
        rocksdb::DB::Open({}, dir.file("db"), {{"default", {}}, {"rkv", {}}}, &handles, &raw).ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    ASSERT_TRUE(db->Put({}, handles[0], "key", "short").ok());
    for (auto* handle : handles)
      ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  }
  const auto engine = open(dir);
  const auto read = engine->read_from({}, [](const RecordFields&) { return true; });
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kCorrupt);
}

TEST(StorageEngine, DamageIsReportedWithWhatToDo) {
  const TempDir dir;
  {
    const auto engine = open(dir);
    put(*engine, "key", "value");
    ASSERT_TRUE(engine->write_batch());
  }
  for (const auto& file : std::filesystem::directory_iterator(dir.file("db"))) {
    if (!file.path().filename().string().starts_with("MANIFEST")) continue;
    std::ofstream(file.path(), std::ios::binary | std::ios::trunc) << "not a manifest at all";
  }
  const auto engine = StorageEngine::open(dir.path());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kCorrupt) << to_string(engine.error());
}

TEST(StorageEngine, ADirectoryThatCannotBeMadeIsAnError) {
  const TempDir dir;
  std::ofstream(dir.file("db")) << "a file where the database belongs";
  const auto engine = StorageEngine::open(dir.path());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Code::kIo) << to_string(engine.error());
}

}  // namespace
}  // namespace rkv::server
