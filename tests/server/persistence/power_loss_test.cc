// The power goes at any instant, again and again over one directory: what the machine finds is a
// prefix of the commit order that holds all that was synced (DURABLE-1, DISK-1, DISK-2, CLOG-5);
// and a disk that lies about its syncs is found out.
//
// The disk is a model (disk_model.h): what was not synced is lost, in part or whole.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <thread>

#include "common/log.h"
#include "server/persistence/applier.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/disk_model.h"
#include "tests/server/persistence/support.h"

namespace rkv::server {
namespace {

using test::DiskCall;
using test::DiskModel;
using test::TempDir;

constexpr std::size_t kWriters = 3;
constexpr std::size_t kKeys = 24;
constexpr int kWritesMax = 400;  // of a writer, in one run

struct Stored {
  std::uint64_t version = 0;
  std::string value;
  bool operator==(const Stored&) const = default;
};
using Contents = std::map<std::string, Stored>;

struct Write {
  std::uint64_t sequence = 0;
  std::string key;
  std::optional<Stored> stored;  // nothing: removed
};

Result<Contents> read_all(StorageEngine& engine) {
  Contents found;
  RKV_RETURN_IF_ERROR(engine.read_from({}, [&](const RecordFields& record) {
    found[std::string(as_text(record.key))] = {record.version.bits,
                                               std::string(as_text(record.value))};
    return true;
  }));
  return found;
}

// Checks that `found` is `before` after some first writes, including those up to `least`. Otherwise
// returns what is wrong.
std::string not_a_prefix(Contents before, std::vector<Write> writes, std::uint64_t least,
                         const Contents& found) {
  std::ranges::sort(writes, {}, &Write::sequence);
  for (std::size_t i = 0;; ++i) {
    const bool enough = i == writes.size() || writes[i].sequence > least;
    if (enough && before == found) return {};
    if (i == writes.size()) break;
    if (writes[i].stored) {
      before[writes[i].key] = *writes[i].stored;
    } else {
      before.erase(writes[i].key);
    }
  }
  std::uint64_t newest = 0;
  for (const auto& [key, stored] : found)
    newest = std::max(newest, stored.version);
  return fmt::format(
      "{} records, the newest of sequence {}, are no prefix of {} writes up to {} "
      "that holds those up to {}",
      found.size(), Version{newest}.sequence(), writes.size(),
      writes.empty() ? 0 : writes.back().sequence, least);
}

// One life of a server's lower half: some writers, the commit log, the applier, the database.
class Life {
 public:
  Life(DiskModel& disk, StorageEngine& engine, Random& random)
      : disk_(disk), log_(*CommitLog::create(CommitLog::kMinCapacityBytes)), boot_(engine.boot()) {
    const ApplierOptions options{
        .batch_records = static_cast<std::uint32_t>(1 + random.below(64)),
        .linger_us = 200,
        .sync_interval_ms = static_cast<int>(1 + random.below(20)),
        .retry_ms_min = 1,
        .retry_ms_max = 5,
        .stop_timeout_ms = 0,  // as when killed
    };
    Applier applier(*log_, engine, clock_, options, [] {});
    applier.start();
    std::array<std::thread, kWriters> threads;
    for (std::size_t i = 0; i < kWriters; ++i) {
      threads[i] = std::thread(
          [this, &applier, i, seed = random()] { write_until_lost(applier, seed, writes_[i]); });
    }
    for (std::thread& thread : threads)
      thread.join();
    (void)applier.stop();
  }

  std::uint64_t wal_mark() const { return log_->wal_mark(); }
  std::uint64_t sync_mark() const { return std::max(log_->sync_mark(), promised_.load()); }
  std::vector<Write> writes() const {
    std::vector<Write> all;
    for (const auto& some : writes_)
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }

 private:
  void write_until_lost(Applier& applier, std::uint64_t seed, std::vector<Write>& done) {
    Random random(seed);
    for (int i = 0; i < kWritesMax && !disk_.is_lost(); ++i) {
      const std::size_t number = random.below(kKeys);
      const std::string key = fmt::format("key-{}", number);
      const std::string value =
          fmt::format("{} {}", random(), std::string(random.below(4000), 'v'));
      const auto room = log_->try_reserve(key.size(), value.size());
      if (!room) {
        std::this_thread::yield();
        continue;
      }
      const auto kind = random.below(5) == 0 ? CommitLog::Kind::kRemove : CommitLog::Kind::kPut;
      const std::uint64_t sequence = write(number, *room, kind, key, value, done);
      const std::uint64_t level = random.below(8);
      if (level < 2) await(applier, level == 0 ? Durability::kSync : Durability::kWal, sequence);
    }
  }

  std::uint64_t write(std::size_t number, CommitLog::Reservation room, CommitLog::Kind kind,
                      const std::string& key, const std::string& value, std::vector<Write>& done) {
    const std::scoped_lock lock(keys_[number]);  // CLOG-4
    const auto ticket = log_->begin(room);
    const Version version = Version::of(boot_, ticket.sequence);
    const bool put = kind == CommitLog::Kind::kPut;
    log_->finish(
        ticket, kind,
        {.version = version, .key = as_bytes(key), .value = put ? as_bytes(value) : Bytes{}});
    done.push_back(
        {ticket.sequence, key, put ? std::optional(Stored{version.bits, value}) : std::nullopt});
    return ticket.sequence;
  }

  // As a worker does: the answer is held back until the mark is there (DURABLE-1).
  void await(Applier& applier, Durability level, std::uint64_t sequence) {
    applier.request(level, sequence);
    const auto mark = [&] {
      return level == Durability::kSync ? log_->sync_mark() : log_->wal_mark();
    };
    while (mark() < sequence) {
      if (disk_.is_lost()) return;
      std::this_thread::yield();
    }
    if (level != Durability::kSync) return;
    std::uint64_t before = promised_.load();
    while (before < sequence && !promised_.compare_exchange_weak(before, sequence)) {
    }
  }

  DiskModel& disk_;
  const SteadyClock clock_;
  const std::unique_ptr<CommitLog> log_;
  const std::uint32_t boot_;
  std::array<std::mutex, kKeys> keys_;
  std::array<std::vector<Write>, kWriters> writes_;
  std::atomic<std::uint64_t> promised_{0};  // reported to a writer of `sync`
};

// Every now and then some calls fail, one after the other, on any thread.
DiskModel::Fault trouble(std::uint64_t seed) {
  struct State {
    Random random;
    std::uint64_t until = 50;  // calls until it begins or ends
    bool failing = false;
    int error = 0;
    std::optional<DiskCall> only;
  };
  const auto state = std::make_shared<State>(State{.random = Random(seed), .only = {}});
  return [state](DiskCall call, const std::string& path) {
    State& now = *state;
    if (now.until-- == 0) {
      now.failing = !now.failing;
      now.until = now.random.below(now.failing ? 40 : 400);
      now.error = static_cast<int>(now.random.below(3));
      now.only.reset();
      if (now.random.below(2) == 0) now.only = static_cast<DiskCall>(now.random.below(9));
    }
    if (!now.failing || (now.only && *now.only != call)) return rocksdb::IOStatus::OK();
    if (now.error == 0) return rocksdb::IOStatus::NoSpace("No space left on device", path);
    return rocksdb::IOStatus::IOError(
        now.error == 1 ? "Input/output error" : "Read-only file system", path);
  };
}

// Rounds over one disk; each ends with the power.
class Machine {
 public:
  Machine(std::uint64_t seed, DiskModel::Honesty honesty, bool troubled = false)
      : random_(seed), honesty_(honesty), troubled_(troubled) {}

  // Returns what is wrong; empty: nothing.
  std::string round() {
    auto directory = std::make_unique<TempDir>();
    const auto disk = std::make_shared<DiskModel>(directory_->path(), honesty_);
    // Often within the start, a start being some hundred changes.
    disk->lose_power_after(1 + random_.below(random_.below(4) == 0 ? 200 : 3000));
    forget();
    std::string wrong;
    for (int life = 0; life < 2 && wrong.empty() && !disk->is_lost(); ++life)
      wrong = live(disk);
    disk->lose_power_after(0);
    if (!wrong.empty()) return wrong;
    disk->leave(random_, directory->path());
    directory_ = std::move(directory);
    return look();
  }
  std::size_t writes() const { return writes_.size(); }

 private:
  // One start, some writes, an end without a word. What the last one had handed to the operating
  // system is there, and safe from now on.
  std::string live(const std::shared_ptr<DiskModel>& disk) {
    auto engine = StorageEngine::open(directory_->path(),
                                      {.env = test::env_on(disk), .memtable_bytes = 64 << 10});
    if (!engine) return disk->is_lost() ? "" : "no start: " + to_string(engine.error());
    if ((*engine)->boot() <= boot_) return fmt::format("boot {} once more", boot_);
    const auto found = read_all(**engine);
    if (!found) return disk->is_lost() ? "" : "no records: " + to_string(found.error());
    if (auto wrong = not_a_prefix(contents_, writes_, logged_, *found); !wrong.empty())
      return "after a kill: " + wrong;
    contents_ = *found;
    forget();
    if (!(*engine)->claim_boot()) return disk->is_lost() ? "" : "the boot counter is stuck";
    boot_ = (*engine)->boot();
    if (troubled_) disk->set_fault(trouble(random_()));
    const Life life(*disk, **engine, random_);
    writes_ = life.writes();
    (void)(*engine)->close();
    disk->set_fault({});
    logged_ = life.wal_mark();
    synced_ = life.sync_mark();
    return {};
  }

  void forget() {
    writes_.clear();
    logged_ = synced_ = 0;
  }

  // A copy, so that the next start finds what is left and not what this look has made of it.
  std::string look() {
    const TempDir copy;
    std::filesystem::copy(directory_->path(), copy.path(),
                          std::filesystem::copy_options::recursive);
    auto engine = StorageEngine::open(copy.path());
    if (!engine) return "no start: " + to_string(engine.error());
    if ((*engine)->boot() <= boot_) return fmt::format("boot {} once more", boot_);
    const auto found = read_all(**engine);
    if (!found) return "no records: " + to_string(found.error());
    if (auto wrong = not_a_prefix(contents_, writes_, synced_, *found); !wrong.empty())
      return wrong;
    contents_ = *found;
    return {};
  }

  Random random_;
  const DiskModel::Honesty honesty_;
  const bool troubled_;
  std::unique_ptr<TempDir> directory_ = std::make_unique<TempDir>();
  Contents contents_;          // at the last start
  std::vector<Write> writes_;  // since then
  std::uint64_t logged_ = 0;   // the marks of that life
  std::uint64_t synced_ = 0;
  std::uint32_t boot_ = 0;  // the last that was claimed
};

int rounds() {
  const char* const given = std::getenv("RKV_POWER_ROUNDS");
  return given != nullptr ? std::atoi(given) : 40;
}

class PowerLoss : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kOff); }
  void TearDown() override { set_log_level(LogLevel::kInfo); }
};

TEST_F(PowerLoss, WhatWasSyncedIsThereAndTheRestIsAPrefix) {
  Machine machine(test::test_seed(), DiskModel::Honesty::kHonest);
  // Where the power goes early again and again, some more rounds: few writes say nothing.
  std::size_t writes = 0;
  for (int i = 0; i < rounds() || (writes <= 1000 && i < 20 * rounds()); ++i) {
    ASSERT_EQ(machine.round(), "") << "in round " << i;
    writes += machine.writes();
  }
  EXPECT_GT(writes, 1000U) << "the power went too early to say anything";
}

// The same, on a disk that fails for a while again and again before the power goes.
TEST_F(PowerLoss, AFailingDiskLeavesAPrefixToo) {
  Machine machine(test::test_seed(), DiskModel::Honesty::kHonest, true);
  for (int i = 0; i < rounds(); ++i)
    ASSERT_EQ(machine.round(), "") << "in round " << i;
}

// The test would notice.
class LyingDisk : public PowerLoss, public testing::WithParamInterface<DiskModel::Honesty> {};

TEST_P(LyingDisk, IsFoundOut) {
  Machine machine(test::test_seed(), GetParam());
  std::string wrong;
  for (int i = 0; i < 20 && wrong.empty(); ++i)
    wrong = machine.round();
  EXPECT_NE(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(FilesAndDirectories, LyingDisk,
                         testing::Values(DiskModel::Honesty::kLyingAboutFiles,
                                         DiskModel::Honesty::kLyingAboutDirectories));

}  // namespace
}  // namespace rkv::server
