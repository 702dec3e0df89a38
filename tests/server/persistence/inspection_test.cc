// Backups of a database that is written to, and looking whether a database is sound.
#include "server/persistence/inspection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <atomic>
#include <iostream>
#include <limits>
#include <map>
#include <thread>

#include "common/log.h"
#include "server/persistence/history_note.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

namespace fs = std::filesystem;
using rkv::testing::flipped;
using rkv::testing::longest_file;
using rkv::testing::read_file;
using rkv::testing::write_file;
using test::patterned;
using test::TempDir;
using ::testing::HasSubstr;

constexpr int kKeys = 300;

// Every file with its bytes and the time of its last change.
using Files = std::map<std::string, std::pair<std::string, fs::file_time_type>>;
Files files_of(const std::string& directory) {
  Files files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    files[entry.path()] = {entry.is_directory() ? "" : read_file(entry.path()),
                           fs::last_write_time(entry.path())};
  }
  return files;
}

void put(StorageEngine& engine, std::string_view key, Bytes value, std::uint64_t sequence) {
  engine.add_put({.version = Version::of(1, sequence), .key = as_bytes(key), .value = value});
}

class InspectionTest : public ::testing::Test {
 protected:
  // Keys in tables, keys in the log.
  void fill() {
    auto engine = *StorageEngine::open(dir_.path());
    ASSERT_TRUE(engine->claim_boot());
    for (std::uint64_t i = 0; i < kKeys; ++i)
      put(*engine, fmt::format("table{}", i), patterned(i, 500), i + 1);
    ASSERT_TRUE(engine->write_batch());
    ASSERT_TRUE(engine->close());
    engine = *StorageEngine::open(dir_.path());  // what is in the log goes to a table
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      put(*engine, fmt::format("log{}", i), patterned(i, 500), kKeys + i + 1);
      ASSERT_TRUE(engine->write_batch());
      if (i % 50 == 0) {
        ASSERT_TRUE(engine->sync());
      }
    }
    ASSERT_TRUE(engine->sync());
  }
  Inspection look() {
    lines_.clear();
    return inspect(dir_.path(), [&](const std::string& line) { lines_.push_back(line); });
  }
  fs::path file(const std::string& part) const { return longest_file(dir_.file("db"), part); }

  TempDir dir_;
  std::vector<std::string> lines_;
};

TEST_F(InspectionTest, ASoundDatabaseIsCountedAndLeftAsItIs) {
  fill();
  const Files before = files_of(dir_.path());
  const Inspection found = look();
  EXPECT_THAT(lines_, ::testing::IsEmpty());
  EXPECT_EQ(found.problems, 0U);
  EXPECT_EQ(found.records, 2U * kKeys);
  std::uint64_t bytes = 0;
  for (int i = 0; i < kKeys; ++i)
    bytes += fmt::format("table{}", i).size() + fmt::format("log{}", i).size() + 2 * 500;
  EXPECT_EQ(found.bytes, bytes);
  EXPECT_EQ(found.highest, Version::of(1, 2 * kKeys));
  EXPECT_EQ(found.boot, 1);
  EXPECT_EQ(files_of(dir_.path()), before) << "something was changed";
}

// At the beginning, where no block is read twice, and all over.
TEST_F(InspectionTest, AFlippedByteInATableIsFound) {
  fill();
  const fs::path table = file(".sst");
  const std::string sound = read_file(table);
  for (const std::size_t at :
       {std::size_t{0}, sound.size() / 3, sound.size() / 2, sound.size() * 9 / 10}) {
    write_file(table, flipped(sound, at));
    EXPECT_NE(look().problems, 0U) << at;
    EXPECT_THAT(lines_.front(), HasSubstr(table.filename().string()));
  }
  write_file(table, sound);
  EXPECT_EQ(look().problems, 0U);
}

// However often what cannot be read is asked for.
TEST_F(InspectionTest, AReadOfWhatIsDamagedIsCountedAndToldOnce) {
  fill();
  const fs::path table = file(".sst");
  write_file(table, flipped(read_file(table), 100));
  const auto engine = *StorageEngine::open(dir_.path());
  std::vector<std::string> told;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kError) told.emplace_back(line);
  });
  std::uint64_t corrupt = 0;
  const auto ignore = [](const RecordFields&) -> Status { return {}; };
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < kKeys; ++i) {
      const Status read = engine->read(as_bytes(fmt::format("table{}", i)), ignore);
      if (read) continue;
      EXPECT_EQ(read.error().code, Code::kCorrupt);
      ++corrupt;
    }
  }
  set_log_sink(
      [](LogLevel /*level*/, std::string_view line) { std::cerr << std::string(line) + "\n"; });
  EXPECT_GE(corrupt, 5U);
  EXPECT_LT(corrupt, 5U * kKeys);
  EXPECT_EQ(engine->damaged_reads(), corrupt);
  ASSERT_EQ(told.size(), 1U) << told.back();
  EXPECT_THAT(told.front(), HasSubstr("restore a backup"));
  EXPECT_THAT(told.front(), HasSubstr(table.filename().string()));
}

TEST_F(InspectionTest, ShortAndMissingFilesAreFound) {
  fill();
  for (const char* part : {".sst", "MANIFEST", "CURRENT"}) {
    const fs::path path = file(part);
    const std::string sound = read_file(path);
    for (const std::size_t length : {sound.size() - 1, sound.size() / 2, std::size_t{0}}) {
      write_file(path, sound.substr(0, length));
      // A list of files that ends between two of its records is a shorter list: RocksDB ends there.
      if (std::string_view(part) == "MANIFEST" && length != 0) continue;
      EXPECT_NE(look().problems, 0U) << path << " of " << length;
    }
    fs::remove(path);
    EXPECT_NE(look().problems, 0U) << path << " missing";
    write_file(path, sound);
  }
  EXPECT_EQ(look().problems, 0U);
}

// As at a start: a crash may leave a log that is torn in its unsynced end, and nowhere else.
TEST_F(InspectionTest, TheLogMayBeTornBehindTheLastSyncAndNotBefore) {
  fill();
  const fs::path log = file(".log");
  const std::string sound = read_file(log);
  for (const std::size_t at : {sound.size() - 10, sound.size() - 30 * 550}) {
    write_file(log, flipped(sound, at));
    const Inspection torn = look();
    EXPECT_EQ(torn.problems, 0U);
    EXPECT_GT(torn.torn_bytes, 500U);
    EXPECT_LT(torn.records, 2U * kKeys);
  }
  write_file(log, flipped(sound, sound.size() / 2));
  const Inspection found = look();
  EXPECT_EQ(found.problems, 1U);
  EXPECT_LT(found.records, 2U * kKeys);
  EXPECT_GE(found.records, static_cast<std::uint64_t>(kKeys));
  EXPECT_THAT(lines_.front(), HasSubstr("log is damaged"));
}

TEST_F(InspectionTest, RecordsThatWereNeverOursAreNamedAndTheLinesBounded) {
  fill();
  {
    rocksdb::DB* raw = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    ASSERT_TRUE(rocksdb::DB::Open({}, dir_.file("db"),
                                  {{rocksdb::kDefaultColumnFamilyName, {}}, {"rkv", {}}}, &handles,
                                  &raw)
                    .ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    std::string value(24, '\0');
    store_le(reinterpret_cast<std::byte*>(value.data()), Version::of(2, 9).bits);
    ASSERT_TRUE(db->Put({}, handles[0], "future", value).ok());
    ASSERT_TRUE(db->Put({}, handles[0], std::string("short\n\xff"), "v").ok());
    for (int i = 0; i < 50; ++i)
      ASSERT_TRUE(db->Put({}, handles[0], fmt::format("x{}", i), "").ok());
    for (auto* handle : handles)
      ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  }
  const Inspection found = look();
  EXPECT_EQ(found.problems, 52U);
  EXPECT_EQ(found.records, 2U * kKeys + 52);
  EXPECT_EQ(lines_.size(), kMostProblemLines + 1);
  EXPECT_THAT(lines_, ::testing::Contains(HasSubstr("key future: version")));
  EXPECT_THAT(lines_, ::testing::Contains(HasSubstr("key short\\x0a\\xff: 1 bytes")));
  EXPECT_EQ(lines_.back(), "and 32 more");
}

// Its versions were given out by the primaries of its group.
TEST_F(InspectionTest, ABackupsRecordsAreNotTakenForDamage) {
  const TempDir directory;
  const std::uint64_t last = Version::of(900, 16).bits;
  {
    auto engine = StorageEngine::open(directory.path());
    ASSERT_TRUE(engine);
    std::vector<std::byte> history(kHistoryTermBytes);
    store_le(history.data(), std::uint32_t{900});
    store_le(history.data() + 4, last);
    ASSERT_TRUE((*engine)->write_note(kHistoryNote, history));
    (*engine)->add_put({.version = {last}, .key = as_bytes("a"), .value = as_bytes("v")});
    ASSERT_TRUE((*engine)->write_batch());
  }
  const auto problems = [&] {
    return inspect(directory.path(), [&](const std::string& line) { lines_.push_back(line); })
        .problems;
  };
  EXPECT_EQ(problems(), 0U) << lines_.size();
  {
    auto engine = StorageEngine::open(directory.path());
    ASSERT_TRUE(engine);
    (*engine)->add_put({.version = {last + 1}, .key = as_bytes("b"), .value = as_bytes("v")});
    ASSERT_TRUE((*engine)->write_batch());
  }
  EXPECT_EQ(problems(), 1U);
  EXPECT_THAT(lines_, ::testing::Contains(HasSubstr("key b: version")));
}

TEST_F(InspectionTest, WhatIsNoDatabaseIsAProblem) {
  EXPECT_EQ(look().problems, 1U);
  EXPECT_FALSE(fs::exists(dir_.file("db"))) << "nothing is made";
}

// Each batch raises both keys to one number: what a backup holds is between two batches, not older
// than what was written before it was asked for; and its bytes are what they were, by RocksDB
// alone.
TEST_F(InspectionTest, ACheckpointBesideWritesIsAPrefix) {
  auto engine = *StorageEngine::open(dir_.path());
  ASSERT_TRUE(engine->claim_boot());
  std::atomic<std::uint64_t> written{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop.load(); ++i) {
      std::array<std::byte, 8> number{};
      store_le(number.data(), i);
      put(*engine, "a", number, 2 * i);
      put(*engine, "b", number, 2 * i + 1);
      put(*engine, fmt::format("fill{}", i % 1000), patterned(i, 2000), 2 * i);
      ASSERT_TRUE(engine->write_batch());
      if (i % 16 == 0) {
        ASSERT_TRUE(engine->sync());
      }
      if (i % 64 == 0) {
        ASSERT_TRUE(engine->recover());
      }
      written.store(i);
    }
  });
  for (int round = 0; round < 20; ++round) {
    while (written.load() < static_cast<std::uint64_t>(round))
      std::this_thread::yield();
    const TempDir backup;
    const std::uint64_t before = written.load();
    ASSERT_TRUE(engine->checkpoint(backup.file("db")));
    const Inspection found =
        inspect(backup.path(), [](const std::string& line) { ADD_FAILURE() << line; });
    EXPECT_EQ(found.problems, 0U);
    EXPECT_EQ(found.boot, 1);
    rocksdb::DB* raw = nullptr;
    std::vector<rocksdb::ColumnFamilyHandle*> handles;
    rocksdb::DBOptions options;
    options.track_and_verify_wals_in_manifest = true;  // else it wants to write to the MANIFEST
    ASSERT_TRUE(rocksdb::DB::OpenForReadOnly(options, backup.file("db"),
                                             {{rocksdb::kDefaultColumnFamilyName, {}}, {"rkv", {}}},
                                             &handles, &raw)
                    .ok());
    const std::unique_ptr<rocksdb::DB> db(raw);
    std::string a, b;
    const bool has_a = db->Get({}, handles[0], "a", &a).ok();
    EXPECT_EQ(has_a, db->Get({}, handles[0], "b", &b).ok());
    EXPECT_TRUE(has_a || before == 0);
    if (has_a) {
      const auto number = load_le<std::uint64_t>(as_bytes(a).data() + 16);
      EXPECT_EQ(number, load_le<std::uint64_t>(as_bytes(b).data() + 16));
      EXPECT_GE(number, before);
      EXPECT_EQ(load_le<std::uint64_t>(as_bytes(b).data()), Version::of(1, 2 * number + 1).bits);
    }
    for (auto* handle : handles)
      ASSERT_TRUE(db->DestroyColumnFamilyHandle(handle).ok());
  }
  stop.store(true);
  writer.join();
}

TEST_F(InspectionTest, ACheckpointThatCannotBeMadeSaysSo) {
  auto engine = *StorageEngine::open(dir_.path());
  const auto there = engine->checkpoint(dir_.path());
  ASSERT_FALSE(there);
  EXPECT_EQ(there.error().code, Code::kIo);
  EXPECT_FALSE(engine->checkpoint("/nowhere/at/all"));
  put(*engine, "still", as_bytes("writes"), 1);
  EXPECT_TRUE(engine->write_batch());
}

TEST_F(InspectionTest, SkippedBootNumbersAreNotGivenOut) {
  {
    auto engine = *StorageEngine::open(dir_.path());
    ASSERT_TRUE(engine->claim_boot());
  }
  {
    auto engine = *StorageEngine::open(dir_.path());
    ASSERT_TRUE(engine->skip_boots());
    EXPECT_EQ(engine->boot(), 2 + kSkippedBoots);
  }
  EXPECT_EQ((*StorageEngine::open(dir_.path()))->boot(), 2 + kSkippedBoots);
}

// Far more than 65,535 starts; at the end of all numbers it says so, and gives none out twice.
TEST_F(InspectionTest, TheLastBootNumberIsNotGivenOutTwice) {
  constexpr std::uint32_t kLast = std::numeric_limits<std::uint32_t>::max();
  {
    auto engine = *StorageEngine::open(dir_.path(), {.least_boot = kLast - 1});
    EXPECT_EQ(engine->boot(), kLast - 1);
    ASSERT_TRUE(engine->claim_boot());
  }
  {
    auto engine = *StorageEngine::open(dir_.path());
    EXPECT_EQ(engine->boot(), kLast);
    const Status refused = engine->skip_boots();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_EQ(engine->boot(), kLast) << "fewer skipped is a number given out twice";
    ASSERT_TRUE(engine->claim_boot());
    EXPECT_TRUE(engine->claim_through(0xFFFFFFFF));
    EXPECT_EQ(engine->claim_through(0x100000000).error().code, Code::kUnsupported);
  }
  const auto none = StorageEngine::open(dir_.path());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace rkv::server
