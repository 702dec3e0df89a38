// Backups that clients ask for: BKUP-1 to BKUP-4 of backups.h, and the worker that does not wait
// for them.
#include "server/background/backups.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <latch>

#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A log that is written by hand, a checkpoint that makes a file.
class BackupsTest : public WorkerTest {
 protected:
  BackupsTest() {
    worker_.reset();
    Worker::Parts parts = parts_of_worker();
    parts.backups = &backups_;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
    backups_.start();
  }
  ~BackupsTest() override { backups_.stop(); }
  static void wait_for(const BackupTask& backup) {
    while (!backup.done())
      std::this_thread::yield();
  }
  std::shared_ptr<const BackupTask> made(std::string_view name) {
    auto backup = backups_.ask(name, 0);
    EXPECT_TRUE(backup);
    wait_for(**backup);
    return *backup;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(scratch_.path()))
      found.push_back(entry.path().filename());
    return found;
  }

  test::TempDir scratch_;
  std::atomic<std::uint64_t> requested_{0};
  std::atomic<int> checkpoints_{0};
  std::atomic<bool> fails_{false};
  std::atomic<bool> waits_for_stop_{false};  // as does a checkpoint that takes long
  std::atomic<bool> stopped_{false};
  std::latch* gate_ = nullptr;  // a checkpoint waits for it
  Backups backups_{scratch_.path(),
                   {.log = *log_,
                    .checkpoint = [this](const std::string& target) -> Status {
                      ++checkpoints_;
                      if (gate_ != nullptr) gate_->wait();
                      while (waits_for_stop_ && !stopped_)
                        std::this_thread::yield();
                      fs::create_directory(target);
                      std::ofstream(target + "/file") << "content";
                      if (fails_) return fail(Code::kIo, "no room");
                      return {};
                    },
                    .stop_checkpoints = [this] { stopped_ = true; },
                    .request_sync = [this](std::uint64_t through) { requested_ = through; },
                    .finished = [this] { worker_->wake_for_answers(); }}};
};

TEST_F(BackupsTest, AreBegunWhenEverythingAskedForIsSynced) {
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value"), {}));
  const std::uint64_t through = log_->last_begun();
  const auto backup = backups_.ask("b", through);
  ASSERT_TRUE(backup);
  while (requested_.load() != through)
    std::this_thread::yield();
  write_all();
  backups_.marks_changed();
  EXPECT_FALSE((*backup)->done());
  EXPECT_EQ(checkpoints_, 0) << "written, but not synced";
  const auto another = backups_.ask("c", 0);
  ASSERT_FALSE(another);
  EXPECT_EQ(another.error().code, Code::kBusy);
  sync_all();
  backups_.marks_changed();
  wait_for(**backup);
  EXPECT_FALSE((*backup)->failure());
  EXPECT_TRUE(fs::exists(scratch_.file("b/db/file")));
}

TEST_F(BackupsTest, NeverTouchWhatIsThere) {
  EXPECT_FALSE(made("b")->failure());
  std::ofstream(scratch_.file("b/db/file")) << "mine";
  std::ofstream(scratch_.file("file")) << "mine";
  fs::create_symlink("/nowhere", scratch_.file("link"));
  fs::create_directory(scratch_.file("empty"));
  for (const char* name : {"b", "file", "link", "empty"}) {
    const auto again = made(name);
    ASSERT_TRUE(again->failure()) << name;
    EXPECT_EQ(again->failure()->code, Code::kConflict);
  }
  EXPECT_EQ(checkpoints_, 1);
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("b", "file", "link", "empty"));
}

TEST_F(BackupsTest, ThatFailLeaveNothing) {
  fails_ = true;
  const auto backup = made("b");
  ASSERT_TRUE(backup->failure());
  EXPECT_EQ(backup->failure()->code, Code::kIo);
  EXPECT_THAT(names(), ::testing::IsEmpty());
  fails_ = false;
  fs::create_directories(scratch_.file(".partial-b/db"));  // as a crash leaves it
  std::ofstream(scratch_.file(".partial-b/db/file")) << "half";
  EXPECT_FALSE(made("b")->failure());
  EXPECT_THAT(names(), ::testing::ElementsAre("b"));
}

TEST_F(BackupsTest, FailWithTheDiskAndWithTheServersEnd) {
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value"), {}));
  const auto failing = backups_.ask("b", log_->last_begun());
  ASSERT_TRUE(failing);
  log_->set_disk_state(DiskState::kFull);
  backups_.marks_changed();
  wait_for(**failing);
  EXPECT_EQ((*failing)->failure()->code, Code::kIo);
  EXPECT_STREQ((*failing)->failure()->text, refusal_of(Refused::kBackup, DiskState::kFull).text);
  log_->set_disk_state(DiskState::kOk);
  const auto stopped = backups_.ask("b", log_->last_begun());
  ASSERT_TRUE(stopped);
  backups_.stop();
  ASSERT_TRUE((*stopped)->done()) << "(BKUP-4)";
  EXPECT_EQ((*stopped)->failure()->code, Code::kIo);
  EXPECT_EQ(checkpoints_, 0);
  EXPECT_EQ(backups_.ask("c", 0).error().code, Code::kBusy);
}

TEST_F(BackupsTest, AreGivenUpWhenTheServerEnds) {
  waits_for_stop_ = true;
  const auto backup = backups_.ask("b", 0);
  ASSERT_TRUE(backup);
  while (checkpoints_ == 0)
    std::this_thread::yield();
  backups_.stop();
  ASSERT_TRUE((*backup)->done());
  ASSERT_TRUE((*backup)->failure()) << "its checkpoint was made in time";
  EXPECT_EQ((*backup)->failure()->code, Code::kIo);
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

// A half-made copy is not removed under the server that makes it.
TEST_F(BackupsTest, OfTwoServersInOneDirectoryAreMadeOneAtATime) {
  fs::create_directories(scratch_.file(".partial-b/db"));
  const int other = open(scratch_.path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  const auto refused = made("b");
  ASSERT_TRUE(refused->failure());
  EXPECT_EQ(refused->failure()->code, Code::kBusy);
  EXPECT_TRUE(fs::exists(scratch_.file(".partial-b/db")));
  close(other);
  EXPECT_FALSE(made("b")->failure());
  EXPECT_THAT(names(), ::testing::ElementsAre("b"));
}

TEST_F(BackupsTest, HoldNobodyUp) {
  std::latch gate(1);
  gate_ = &gate;
  FakeConnection* const asker = connect();
  FakeConnection* const other = connect();
  ask(*asker, {.opcode = Opcode::kBackup, .sequence = 7, .value = as_bytes("b")});
  turn();
  while (checkpoints_ == 0)
    std::this_thread::yield();
  ping(*other, 3);
  put(*other, as_bytes("key"), as_bytes("value"));
  ask(*other, {.opcode = Opcode::kBackup, .sequence = 8, .value = as_bytes("c")});
  turn();
  EXPECT_TRUE(asker->posted.empty());
  ASSERT_EQ(other->posted.size(), 3U);
  EXPECT_EQ(answer(*other, 2).code, static_cast<std::uint8_t>(Code::kBusy));
  gate.count_down();
  while (asker->posted.empty())
    turn();
  EXPECT_EQ(answer(*asker, 0).opcode, Opcode::kBackup);
  EXPECT_EQ(answer(*asker, 0).code, 0);
  EXPECT_EQ(answer(*asker, 0).sequence, 7U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kBackups), 1U);

  sync_all();  // the put
  ask(*asker, {.opcode = Opcode::kBackup, .sequence = 9, .value = as_bytes("b")});
  while (asker->posted.size() < 2)
    turn();
  EXPECT_EQ(answer(*asker, 1).code, static_cast<std::uint8_t>(Code::kConflict));
  EXPECT_THAT(std::string(as_text(answer(*asker, 1).value)), HasSubstr("choose another name"));
}

// Nobody is left to be answered; the backup is made all the same.
TEST_F(BackupsTest, OutliveTheirAsker) {
  std::latch gate(1);
  gate_ = &gate;
  FakeConnection* const asker = connect();
  ask(*asker, {.opcode = Opcode::kBackup, .value = as_bytes("b")});
  turn();
  queue().end(*asker);
  turn();
  gate.count_down();
  while (!fs::exists(scratch_.file("b")))
    std::this_thread::yield();
  turn();
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kBackups), 0U);
}

TEST_F(WorkerTest, WithoutADirectoryThereAreNoBackups) {
  FakeConnection* const client = connect();
  ask(*client, {.opcode = Opcode::kBackup, .value = as_bytes("b")});
  turn();
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kUnsupported));
  EXPECT_THAT(std::string(as_text(answer(*client, 0).value)), HasSubstr("--backup-dir"));
}

}  // namespace
}  // namespace rkv::server
