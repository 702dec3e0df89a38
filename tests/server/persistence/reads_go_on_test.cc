// Records on disk can be read while the disk cannot be written to (DISK-4), while a backup is
// copied (DISK-5), and while the directory is missing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "common/log.h"
#include "server/log/disk_state.h"
#include "server/persistence/storage_engine.h"
#include "tests/server/persistence/disk_model.h"
#include "tests/server/persistence/support.h"
#include "tests/support/files.h"

namespace rkv::server {
namespace {

namespace fs = std::filesystem;
using rocksdb::IOStatus;
using test::DiskCall;
using test::DiskModel;

class ReadsGoOn : public ::testing::Test {
 protected:
  static constexpr int kRecords = 50;

  void SetUp() override {
    set_log_level(LogLevel::kOff);
    engine_ = *StorageEngine::open(dir_.path(), {.env = test::env_on(disk_)});
    ASSERT_TRUE(engine_->claim_boot());
    for (int i = 0; i < kRecords; ++i)
      ASSERT_TRUE(put(i));
    ASSERT_TRUE(engine_->sync());
  }
  void TearDown() override {
    disk_->set_fault({});
    engine_.reset();
    set_log_level(LogLevel::kInfo);
  }

  static std::string key(int number) { return fmt::format("key{}", number); }
  Status put(int number) {
    const std::string name = key(number);
    const std::vector<std::byte> value = test::patterned(static_cast<std::uint64_t>(number), 3000);
    engine_->add_put({.version = Version::of(1, static_cast<std::uint64_t>(number) + 1),
                      .key = as_bytes(name),
                      .value = value});
    return engine_->write_batch();
  }
  void expect_readable(int records = kRecords) {
    for (int i = 0; i < records; ++i) {
      const std::string name = key(i);
      const std::vector<std::byte> value = test::patterned(static_cast<std::uint64_t>(i), 3000);
      const Status read = engine_->read(as_bytes(name), [&](const RecordFields& record) -> Status {
        EXPECT_TRUE(test::equal(record.value, value)) << name;
        return {};
      });
      ASSERT_TRUE(read) << name << ": " << to_string(read.error());
    }
    int seen = 0;
    ASSERT_TRUE(engine_->read_from({}, [&](const RecordFields& /*record*/) {
      ++seen;
      return true;
    }));
    EXPECT_GE(seen, records);
  }
  // All that would change the disk fails with it.
  void fail_changes(const IOStatus& error) {
    disk_->set_fault([error](DiskCall, const std::string&) { return error; });
  }
  // From a failure on, as the applier does it: tries that fail, then one that succeeds.
  void expect_recovery(DiskState state) {
    engine_->clear_batch();
    for (int i = 0; i < 3; ++i) {
      const Status failed = engine_->recover();
      ASSERT_FALSE(failed);
      EXPECT_EQ(disk_state_of(failed.error()), state) << to_string(failed.error());
      expect_readable();
    }
    disk_->set_fault({});
    const Status well = engine_->recover();
    ASSERT_TRUE(well) << to_string(well.error());
    expect_readable();
    ASSERT_TRUE(put(kRecords));
    ASSERT_TRUE(engine_->sync());
    expect_readable(kRecords + 1);
  }
  fs::path log() const { return testing::longest_file(dir_.path() + "/db", ".log"); }

  const test::TempDir dir_;
  const std::shared_ptr<DiskModel> disk_ =
      std::make_shared<DiskModel>(dir_.path(), DiskModel::Honesty::kHonest);
  std::unique_ptr<StorageEngine> engine_;
};

TEST_F(ReadsGoOn, OnAFullDisk) {
  fail_changes(IOStatus::NoSpace("No space left on device"));
  ASSERT_FALSE(put(kRecords));
  expect_readable();
  expect_recovery(DiskState::kFull);
}

TEST_F(ReadsGoOn, OnAReadOnlyDisk) {
  fail_changes(IOStatus::IOError("Read-only file system"));
  ASSERT_FALSE(put(kRecords));
  expect_recovery(DiskState::kReadOnly);
}

TEST_F(ReadsGoOn, WithoutAFileDescriptor) {
  fail_changes(IOStatus::IOError("Too many open files"));
  ASSERT_FALSE(put(kRecords));
  expect_recovery(DiskState::kNoFiles);
}

TEST_F(ReadsGoOn, AfterAFailedSync) {
  fail_changes(IOStatus::IOError("Input/output error"));
  ASSERT_FALSE(engine_->sync());
  expect_recovery(DiskState::kFailing);
}

// It is seen to be writable, and then does not open after all: for reading it does.
TEST_F(ReadsGoOn, WhenTheDatabaseDoesNotOpen) {
  disk_->set_fault([](DiskCall call, const std::string&) {
    return call == DiskCall::kSync ? IOStatus::IOError("Input/output error") : IOStatus::OK();
  });
  ASSERT_FALSE(engine_->sync());
  disk_->set_fault([](DiskCall, const std::string& path) {
    return path.find("MANIFEST") != std::string::npos || path.ends_with(".sst")
               ? IOStatus::NoSpace("No space left on device")
               : IOStatus::OK();
  });
  const std::uint64_t before = engine_->reopened();
  expect_recovery(DiskState::kFull);
  EXPECT_GT(engine_->reopened(), before) << "this is about one that was closed";
}

// A log that has lost synced writes: what was in memory of them is there still.
TEST_F(ReadsGoOn, WhenTheLogIsDamaged) {
  disk_->set_fault([](DiskCall call, const std::string&) {
    return call == DiskCall::kSync ? IOStatus::IOError("Input/output error") : IOStatus::OK();
  });
  ASSERT_FALSE(engine_->sync());
  disk_->set_fault({});
  const std::string bytes = testing::read_file(log());
  testing::write_file(log(), testing::flipped(bytes, bytes.size() / 3, 0x40));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine_->recover().error().code, Code::kCorrupt);
    expect_readable();
  }
  testing::write_file(log(), bytes);
  EXPECT_TRUE(engine_->recover());
  expect_readable();
}

// A replica notes the configurations of its group by a thread of its own, also while the applier
// closes and opens the database.
TEST_F(ReadsGoOn, WhileAnotherThreadWritesNotes) {
  std::atomic<bool> stop{false};
  std::atomic<int> written{0};
  std::atomic<int> refused{0};
  std::thread noting([&] {
    for (std::uint64_t number = 0; !stop.load();) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(&++number);
      (engine_->write_note("number", Bytes(bytes, sizeof number)) ? written : refused) += 1;
    }
  });
  const auto more = [](const std::atomic<int>& count) {
    for (const int before = count.load(); count.load() <= before;)
      std::this_thread::yield();
  };
  for (int round = 0; round < 20; ++round) {
    more(written);
    fail_changes(IOStatus::NoSpace());
    more(refused);
    engine_->clear_batch();
    for (int i = 0; i < 3; ++i)
      EXPECT_FALSE(engine_->recover());
    disk_->set_fault({});
    ASSERT_TRUE(engine_->recover());
  }
  more(written);
  stop.store(true);
  noting.join();
  expect_readable();
  EXPECT_TRUE(*engine_->note("number"));
}

// Under a running server: what it goes on to write would be found by nobody.
TEST_F(ReadsGoOn, WhenTheDirectoryIsMovedAway) {
  const std::string away = dir_.path() + "/away";
  fs::rename(dir_.path() + "/db", away);
  ASSERT_TRUE(put(kRecords)) << "which the operating system takes";
  const Status lost = engine_->sync();
  ASSERT_FALSE(lost) << "synced, where no start looks";
  EXPECT_EQ(disk_state_of(lost.error()), DiskState::kMissing);
  EXPECT_FALSE(engine_->recover());
  expect_readable();
  fs::create_directory(dir_.path() + "/db");  // another one of that name
  EXPECT_FALSE(engine_->recover());
  expect_readable();
  fs::remove(dir_.path() + "/db");
  fs::rename(away, dir_.path() + "/db");
  ASSERT_TRUE(engine_->recover());
  ASSERT_TRUE(put(kRecords));
  ASSERT_TRUE(engine_->sync());
  expect_readable(kRecords + 1);
}

TEST_F(ReadsGoOn, WhenTheFilesAreRemoved) {
  for (const auto& file : fs::directory_iterator(dir_.path() + "/db"))
    fs::remove(file);
  (void)put(kRecords);
  const Status lost = engine_->sync();
  ASSERT_FALSE(lost);
  EXPECT_EQ(disk_state_of(lost.error()), DiskState::kMissing);
  engine_->clear_batch();
  EXPECT_FALSE(engine_->recover());
  EXPECT_TRUE(fs::is_empty(dir_.path() + "/db")) << "an empty database is not a recovery";
  expect_readable();
}

// Files outside of a directory are on another file system, and a write to them takes as long as it
// likes.
class SlowCopies final : public rocksdb::FileSystemWrapper {
 public:
  SlowCopies(const std::shared_ptr<rocksdb::FileSystem>& files, std::string fast)
      : FileSystemWrapper(files), fast_(std::move(fast)) {}
  const char* Name() const override { return "SlowCopies"; }
  IOStatus LinkFile(const std::string& from, const std::string& to,
                    const rocksdb::IOOptions& options, rocksdb::IODebugContext* context) override {
    if (!to.starts_with(fast_)) return IOStatus::NotSupported("another file system");
    return target()->LinkFile(from, to, options, context);
  }
  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file,
                           rocksdb::IODebugContext* context) override {
    IOStatus made = target()->NewWritableFile(name, options, file, context);
    if (made.ok() && !name.starts_with(fast_))
      *file = std::make_unique<SlowFile>(std::move(*file), *this);
    return made;
  }
  void await_begin() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return begun_; });
  }
  void release() {
    const std::scoped_lock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  class SlowFile final : public rocksdb::FSWritableFileOwnerWrapper {
   public:
    SlowFile(std::unique_ptr<rocksdb::FSWritableFile> file, SlowCopies& copies)
        : FSWritableFileOwnerWrapper(std::move(file)), copies_(copies) {}
    using FSWritableFileOwnerWrapper::Append;
    IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                    rocksdb::IODebugContext* context) override {
      copies_.await_release();
      return FSWritableFileOwnerWrapper::Append(data, options, context);
    }

   private:
    SlowCopies& copies_;
  };

  void await_release() {
    std::unique_lock lock(mutex_);
    begun_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  bool released_ = false;
  const std::string fast_;
};

TEST_F(ReadsGoOn, BesideABackupThatIsCopiedWhenASyncFails) {
  const test::TempDir out;
  const auto copy = std::make_shared<SlowCopies>(disk_, dir_.path());
  ASSERT_TRUE(engine_->close());
  const std::shared_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(copy);
  engine_ = *StorageEngine::open(dir_.path(), {.env = env});
  Status made;
  std::thread backup([&] { made = engine_->checkpoint(out.path() + "/b"); });
  copy->await_begin();
  expect_readable();
  ASSERT_TRUE(put(kRecords));
  disk_->set_fault([](DiskCall call, const std::string&) {
    return call == DiskCall::kSync ? IOStatus::IOError("Input/output error") : IOStatus::OK();
  });
  ASSERT_FALSE(engine_->sync());
  disk_->set_fault({});
  // The copy does not move at all: recovery waits for it no longer than a moment, reads not at all.
  EXPECT_FALSE(engine_->recover());
  expect_readable(kRecords + 1);
  EXPECT_FALSE(engine_->checkpoint(out.path() + "/c")) << "none begins";
  copy->release();
  backup.join();
  ASSERT_FALSE(made) << "it was ended";
  EXPECT_EQ(made.error().code, Code::kIo);
  EXPECT_NE(std::string(made.error().text).find("backups are refused"), std::string::npos);
  ASSERT_TRUE(engine_->recover());
  expect_readable();
  EXPECT_TRUE(engine_->checkpoint(out.path() + "/d")) << "and the next one is made";
}

// A recovery that has waited for a copy, and the next one, which need not close the database.
TEST_F(ReadsGoOn, BesideABackupThatIsCopiedWhenThereIsNoRoomForATable) {
  const test::TempDir out;
  const auto copy = std::make_shared<SlowCopies>(disk_, dir_.path());
  ASSERT_TRUE(engine_->close());
  const std::shared_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(copy);
  engine_ = *StorageEngine::open(dir_.path(), {.env = env, .memtable_bytes = 64 << 10});
  std::thread backup([&] { (void)engine_->checkpoint(out.path() + "/b"); });
  copy->await_begin();
  disk_->set_fault([](DiskCall, const std::string& path) {
    return path.ends_with(".sst") ? IOStatus::NoSpace("No space left on device") : IOStatus::OK();
  });
  for (int i = 0; put(i % kRecords); ++i) {
  }
  engine_->clear_batch();
  ASSERT_FALSE(engine_->recover()) << "the copy does not move";
  disk_->set_fault({});
  while (!engine_->recover()) {
  }
  expect_readable();
  copy->release();
  backup.join();
  EXPECT_TRUE(engine_->checkpoint(out.path() + "/c")) << "the disk is well";
}

}  // namespace
}  // namespace rkv::server
