// CHAIN-2 and CHAIN-3 of log_chain.h against clients who store logs as values: whatever a lost
// machine leaves of what was not synced, the server starts; what was synced and is damaged is
// noticed as far as a sound stamp says so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/log.h"
#include "server/persistence/storage_engine.h"
#include "server/persistence/wal/log_files.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

namespace fs = std::filesystem;
using test::TempDir;

// The end of the newest log.
LogFilePosition end_of_logs(const std::string& directory) {
  LogFilePosition end;
  for (const auto& entry : fs::directory_iterator(directory + "/db")) {
    const std::uint64_t number = log_number(entry.path());
    if (number < end.log || number == 0) continue;
    std::error_code gone;  // an old one, deleted in the background
    const std::uint64_t bytes = entry.file_size(gone);
    if (!gone) end = {.log = number, .bytes = bytes};
  }
  return end;
}

fs::path log_of(const std::string& directory, std::uint64_t number) {
  return fmt::format("{}/db/{:06}.log", directory, number);
}

void put(StorageEngine& engine, std::uint64_t number, const std::string& value) {
  const std::string key = fmt::format("key{:06}", number);
  engine.add_put(
      {.version = Version::of(1, number + 1), .key = as_bytes(key), .value = as_bytes(value)});
  ASSERT_TRUE(engine.write_batch());
}

// The first records and no others: how many.
std::optional<std::size_t> prefix_in(StorageEngine& engine) {
  std::size_t records = 0;
  bool is_prefix = true;
  EXPECT_TRUE(engine.read_from({}, [&](const RecordFields& record) {
    is_prefix = is_prefix && as_text(record.key) == fmt::format("key{:06}", records);
    ++records;
    return true;
  }));
  return is_prefix ? std::optional(records) : std::nullopt;
}

// A database and what its logs have become.
class Attack {
 public:
  explicit Attack(std::uint64_t seed) : random_(seed) {
    auto engine = *StorageEngine::open(dir_.path(), {.memtable_bytes = 64 << 10});
    EXPECT_TRUE(engine->claim_boot());  // keeps the first log alive: nothing else is in its family
    sync(*engine);
    const std::uint64_t records = 3 + random_.below(40);
    for (std::uint64_t i = 0; i < records; ++i) {
      const LogFilePosition before = end_of_logs(dir_.path());
      put(*engine, i, value());
      const LogFilePosition after = end_of_logs(dir_.path());
      batches_.push_back(
          {.begin = after.log == before.log ? before : LogFilePosition{.log = after.log},
           .end = after,
           .synced = synced_});
      if (random_.below(3) == 0 && i + 2 < records) sync(*engine);
    }
    EXPECT_TRUE(engine->close());
  }

  // As a lost machine leaves it. What is wrong; empty: nothing.
  std::string lose_power() {
    const LogFilePosition end = batches_.back().end;
    std::string log = testing::read_file(log_of(dir_.path(), end.log));
    const std::uint64_t safe = synced_.log == end.log ? synced_.bytes : 0;
    if (random_.below(3) == 0) log.resize(safe + random_.below(log.size() - safe + 1));
    for (std::uint64_t i = random_.below(4); i > 0 && log.size() > safe; --i) {
      // Now and then just the header of a record, before a value that looks like many.
      std::uint64_t from = safe + random_.below(log.size() - safe);
      const Batch& batch = batches_[random_.below(batches_.size())];
      if (batch.begin.log == end.log && batch.begin.bytes >= safe && random_.below(2) == 0)
        from = batch.begin.bytes;
      if (from >= log.size()) continue;
      const std::uint64_t most = random_.below(2) == 0 ? 40 : 9000;
      const std::uint64_t length = std::min(1 + random_.below(most), log.size() - from);
      log.replace(from, length, length, '\0');
    }
    const auto records = start_with(end.log, log, {});
    if (!records) return fmt::format("no start: {}", to_string(records.error()));
    return *records < synced_batches_ ? fmt::format("{} records", *records) : std::string();
  }

  // Something in a log that was synced perhaps.
  std::string damage() {
    const Batch& batch = batches_[random_.below(batches_.size())];
    const std::uint64_t number = batch.begin.log;
    const std::string sound = testing::read_file(log_of(dir_.path(), number));
    const std::uint64_t at = batch.begin.bytes + random_.below(batch.end.bytes - batch.begin.bytes);
    std::string log = testing::flipped(sound, at, 1 << random_.below(8));
    std::uint64_t end = at + 1;
    if (random_.below(3) == 0) log.resize(end = at);
    if (random_.below(3) == 0 && at < log.size()) {
      end = std::min<std::uint64_t>(at + 1 + random_.below(5000), log.size());
      log.replace(at, end - at, end - at, '\0');
    }
    const auto says = [&](const Batch& other) {  // that what is gone was synced
      return std::max(other.synced, LogFilePosition{.log = other.begin.log}) > batch.begin;
    };
    const bool cut = log.size() < sound.size();
    const bool known = std::ranges::any_of(batches_, [&](const Batch& other) {
      const bool whole =
          other.begin.log != number || (!cut && other.begin.bytes >= end) || other.end.bytes <= at;
      return whole && says(other);
    });
    const auto records = start_with(number, log, {});
    const auto accepted = start_with(number, log, {.accept_damaged_log = true});
    if (!accepted) return "not accepted: " + to_string(accepted.error());
    const bool whole = *accepted == batches_.size();  // what was changed meant nothing
    if (known && records && !whole) return fmt::format("{} records left, not reported", *records);
    if (!records && std::ranges::none_of(batches_, says))
      return fmt::format("no start: {}", to_string(records.error()));
    told_ += records ? 0 : 1;
    return {};
  }
  int told() const { return told_; }

 private:
  struct Batch {
    LogFilePosition begin;
    LogFilePosition end;
    LogFilePosition synced;  // when it was written
  };

  void sync(StorageEngine& engine) {
    EXPECT_TRUE(engine.sync());
    synced_ = end_of_logs(dir_.path());
    synced_batches_ = batches_.size();
  }

  std::string value() {
    switch (random_.below(5)) {
      case 0:
        return std::string(random_.below(30'000), 'v');
      case 1:
        return foreign_log();
      case 2:  // its own
        return testing::read_file(log_of(dir_.path(), end_of_logs(dir_.path()).log));
      default:
        return std::string(random_.below(500), 'v');
    }
  }
  // Returns the log of another server, which has had more or fewer starts and writes.
  std::string foreign_log() {
    const TempDir other;
    auto engine = *StorageEngine::open(other.path(), {.memtable_bytes = 64 << 10});
    for (std::uint64_t i = random_.below(12); i > 0; --i) {
      EXPECT_TRUE(engine->close());
      engine = *StorageEngine::open(other.path(), {.memtable_bytes = 64 << 10});
    }
    const std::uint64_t records = 1 + random_.below(60);
    for (std::uint64_t i = 0; i < records; ++i) {
      put(*engine, i, std::string(random_.below(300), 'f'));
      EXPECT_TRUE(engine->sync());
    }
    return testing::read_file(log_of(other.path(), end_of_logs(other.path()).log));
  }

  Result<std::size_t> start_with(std::uint64_t number, const std::string& log,
                                 const EngineOptions& options) const {
    const TempDir copy;
    fs::copy(dir_.path(), copy.path(), fs::copy_options::recursive);
    testing::write_file(log_of(copy.path(), number), log);
    RKV_ASSIGN_OR_RETURN(const auto engine, StorageEngine::open(copy.path(), options));
    const auto records = prefix_in(*engine);
    if (!records) return fail(Code::kInternal, "no prefix is left");
    return *records;
  }

  Random random_;
  const TempDir dir_;
  std::vector<Batch> batches_;
  LogFilePosition synced_;
  std::size_t synced_batches_ = 0;
  int told_ = 0;
};

TEST(LogAttack, LeavesHonestCrashesAloneAndHidesNoDamage) {
  set_log_level(LogLevel::kOff);
  const std::uint64_t seed = test::test_seed();
  int told = 0;
  const char* const given = std::getenv("RKV_POWER_ROUNDS");
  const std::uint64_t rounds = given != nullptr ? std::strtoull(given, nullptr, 0) / 3 : 5;
  for (std::uint64_t round = 0; round < rounds || (told == 0 && round < 50); ++round) {
    Attack attack(seed + round);
    for (int i = 0; i < 8; ++i) {
      ASSERT_EQ(attack.lose_power(), "") << "round " << round;
      ASSERT_EQ(attack.damage(), "") << "round " << round;
    }
    told += attack.told();
  }
  EXPECT_GT(told, 0);
  set_log_level(LogLevel::kInfo);
}

// A log of one server in another that was made of its backup, and goes on with the same numbers.
TEST(LogAttack, ARestoredDatabaseDoesNotBelieveTheLogsOfTheOther) {
  set_log_level(LogLevel::kOff);
  const TempDir dir;
  const TempDir restored;
  const auto live = [](const std::string& directory) {
    auto engine = *StorageEngine::open(directory);
    EXPECT_TRUE(engine->claim_boot());
    return engine;
  };
  ASSERT_TRUE(live(dir.path())->close());
  fs::copy(dir.path(), restored.path(), fs::copy_options::recursive);
  std::string stored;
  {
    ASSERT_TRUE(live(dir.path())->close());
    ASSERT_TRUE(live(dir.path())->close());
    const auto engine = live(dir.path());
    for (std::uint64_t i = 0; i < 100; ++i) {
      put(*engine, i, "value");
      ASSERT_TRUE(engine->sync());
    }
    stored = testing::read_file(log_of(dir.path(), end_of_logs(dir.path()).log));
  }
  {
    auto engine = *StorageEngine::open(restored.path());
    ASSERT_TRUE(engine->skip_boots());
    ASSERT_TRUE(engine->close());
  }
  LogFilePosition before;
  {
    auto engine = live(restored.path());
    ASSERT_TRUE(engine->sync());
    before = end_of_logs(restored.path());
    ASSERT_LE(before.log, end_of_logs(dir.path()).log);
    put(*engine, 0, stored);
    ASSERT_TRUE(engine->close());
  }
  std::string log = testing::read_file(log_of(restored.path(), before.log));
  log.replace(before.bytes, 16, 16, '\0');
  testing::write_file(log_of(restored.path(), before.log), log);
  const auto engine = StorageEngine::open(restored.path());
  EXPECT_TRUE(engine) << to_string(engine.error());
  set_log_level(LogLevel::kInfo);
}

}  // namespace
}  // namespace rkv::server
