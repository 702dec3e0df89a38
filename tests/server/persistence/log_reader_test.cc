// Logs as RocksDB writes them, damaged: LOGR-1 and LOGR-2 of log_reader.h.
#include "server/persistence/wal/log_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

using rkv::testing::flipped;
using rkv::testing::longest_file;
using rkv::testing::read_file;
using rkv::testing::write_file;
using test::TempDir;

struct Read {
  std::vector<std::string> records;
  std::vector<std::uint64_t> ends;  // in the file
};

// Fails at a place of the file.
class SickFile final : public rocksdb::SequentialFileWrapper {
 public:
  SickFile(std::unique_ptr<rocksdb::SequentialFile> file, int reads)
      : SequentialFileWrapper(file.get()), file_(std::move(file)), reads_(reads) {}
  rocksdb::Status Read(size_t bytes, rocksdb::Slice* result, char* scratch) override {
    if (reads_-- == 0) return rocksdb::Status::IOError("Input/output error");
    return file_->Read(bytes, result, scratch);
  }

 private:
  const std::unique_ptr<rocksdb::SequentialFile> file_;
  int reads_;
};

class LogReaderTest : public ::testing::Test {
 protected:
  // Records of a few bytes, of about a block, of several.
  void SetUp() override {
    const auto engine = *StorageEngine::open(dir_.path());
    Random random(test::test_seed());
    for (std::uint64_t i = 1; i <= 60; ++i) {
      const std::size_t lengths[] = {random.below(100), random.below(5000), random.below(40'000),
                                     random.below(100'000)};
      const auto value = test::patterned(i, lengths[random.below(4)]);
      const std::string key = fmt::format("key{}", i);
      engine->add_put({.version = Version::of(1, i), .key = as_bytes(key), .value = value});
      ASSERT_TRUE(engine->write_batch());
    }
    sound_ = read_file(longest_file(dir_.file("db"), ".log"));
  }
  std::unique_ptr<rocksdb::SequentialFile> open(const std::string& bytes) const {
    const std::string path = dir_.file("copy");
    write_file(path, bytes);
    std::unique_ptr<rocksdb::SequentialFile> file;
    EXPECT_TRUE(rocksdb::Env::Default()->NewSequentialFile(path, &file, {}).ok());
    return file;
  }
  Read read(const std::string& bytes) const {
    LogReader reader(open(bytes));
    Read found;
    while (reader.next()) {
      found.records.push_back(reader.record());
      found.ends.push_back(reader.sound_bytes());
    }
    EXPECT_TRUE(reader.failure().ok());
    EXPECT_EQ(reader.sound_bytes(), found.ends.empty() ? 0 : found.ends.back());
    return found;
  }
  // The records that end at or before this byte: those and no others.
  static void expect_up_to(const Read& all, std::uint64_t end, const Read& found) {
    const auto whole =
        static_cast<std::size_t>(std::ranges::upper_bound(all.ends, end) - all.ends.begin());
    ASSERT_EQ(found.records.size(), whole) << "up to byte " << end;
    EXPECT_TRUE(std::ranges::equal(found.records, std::span(all.records).first(whole)));
  }

  const TempDir dir_;
  std::string sound_;
};

TEST_F(LogReaderTest, FindsEverythingInASoundLog) {
  EXPECT_EQ(crc32c(as_bytes("123456789")), 0xE3069283U) << "the check value of CRC-32C";
  const Read all = read(sound_);
  EXPECT_GE(all.records.size(), 60U);
  EXPECT_EQ(all.ends.back(), sound_.size());
  EXPECT_TRUE(read("").records.empty());
}

// Bytes that mean nothing, between the last record of a block and the block's end, are no damage.
TEST_F(LogReaderTest, EndsBeforeTheFirstDamagedRecord) {
  const Read all = read(sound_);
  Random random(test::test_seed());
  for (int i = 0; i < 120; ++i) {
    const std::size_t at = i < 50 ? static_cast<std::size_t>(i) : random.below(sound_.size());
    const Read found = read(flipped(sound_, at, 1 << random.below(8)));
    if (found.records.size() != all.records.size()) expect_up_to(all, at, found);
  }
}

// Pages that a lost machine has not written, and an end anywhere.
TEST_F(LogReaderTest, EndsBeforeAPageOfZeroesAndWithTheFile) {
  const Read all = read(sound_);
  Random random(test::test_seed());
  for (int i = 0; i < 40; ++i) {
    std::string bytes = sound_;
    const std::size_t at = random.below(bytes.size() / 4096) * 4096;
    bytes.replace(at, 4096, 4096, '\0');
    expect_up_to(all, at, read(bytes));
    const std::size_t end = random.below(sound_.size());
    expect_up_to(all, end, read(sound_.substr(0, end)));
  }
}

TEST_F(LogReaderTest, SaysThatAFileCannotBeRead) {
  LogReader reader(std::make_unique<SickFile>(open(sound_), 2));
  std::size_t records = 0;
  while (reader.next())
    ++records;
  EXPECT_FALSE(reader.failure().ok());
  EXPECT_LT(records, 60U);
  EXPECT_LE(reader.sound_bytes(), 2 * LogReader::kBlockBytes);
}

}  // namespace
}  // namespace rkv::server
