// Flushes and backups of what one-sided counters count: swept by a thread of its own, and answered
// when it has been (SERVE-5 of worker.h).
#include "server/background/counter_flusher.h"

#include <gmock/gmock.h>

#include "rdma/choose.h"
#include "server/store/cells.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

// How often a device was asked, and whether it answers.
struct Device {
  std::atomic<std::uint64_t> asked{0};
  std::atomic<std::uint64_t> failures{0};  // so many more calls fail
};

class CountedAtomics final : public rdma::Atomics {
 public:
  CountedAtomics(std::unique_ptr<rdma::Atomics> atomics, Device& device)
      : atomics_(std::move(atomics)), device_(device) {}
  Result<std::uint64_t> fetch_add(std::uint64_t* word, std::uint64_t addend) override {
    RKV_RETURN_IF_ERROR(count());
    return atomics_->fetch_add(word, addend);
  }
  Result<std::uint64_t> compare_swap(std::uint64_t* word, std::uint64_t expected,
                                     std::uint64_t desired) override {
    RKV_RETURN_IF_ERROR(count());
    return atomics_->compare_swap(word, expected, desired);
  }

 private:
  Status count() {
    ++device_.asked;
    if (device_.failures == 0) return {};
    --device_.failures;
    return fail(Code::kInternal, "no answer");
  }
  const std::unique_ptr<rdma::Atomics> atomics_;
  Device& device_;
};

class SweeperTest : public WorkerTest {
 public:
  ~SweeperTest() override { backups_.stop(); }

 protected:
  static constexpr std::uint32_t kCells = 64;
  SweeperTest() {
    network_ = store_->counter_cells().add_network(*cells_);
    worker_.reset();
    Worker::Parts parts = parts_of_worker();
    parts.network = network_;
    parts.counter_flusher = &counter_flusher_;
    parts.backups = &backups_;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
    all_buffers_ = queue().free_buffers();
  }

  void count(std::string_view key, std::uint64_t by = 1) {
    const auto opened = store_->counters().open(as_bytes(key), true, network_);
    ASSERT_TRUE(opened && opened->cell);
    auto* const words = reinterpret_cast<std::uint64_t*>(region_->bytes().data());
    std::atomic_ref(words[*opened->cell]).fetch_add(by);
  }
  void flush(FakeConnection& from) { ask(from, {.opcode = Opcode::kFlush, .sequence = 9}); }
  // The number that the log has for the key, and everything in it is synced.
  std::int64_t logged(std::string_view key) {
    std::int64_t number = -1;
    CommitLog::Entry entry;
    while (log_->consume(&entry)) {
      if (as_text(entry.record.key) == key)
        number = load_le<std::int64_t>(entry.record.value.data());
    }
    sync_all();
    return number;
  }

  std::unique_ptr<rdma::Transport> shm_ = *rdma::open_shm({.directory = ::testing::TempDir()});
  std::unique_ptr<rdma::Region> region_ =
      *shm_->allocate(std::size_t{kCells} * 8, rdma::Access::kRemoteReadAtomic);
  Device device_;
  std::unique_ptr<Cells> cells_ = *Cells::create(
      std::make_unique<CountedAtomics>(*shm_->create_atomics(*region_), device_), *region_, kCells);
  std::uint32_t network_ = 0;
  int called_back_ = 0;
  CounterFlusher counter_flusher_{*store_, clock_, [this] {
                                    ++called_back_;
                                    worker_->wake_for_answers();
                                  }};
  std::string backup_name_;
  test::TempDir scratch_;
  Backups backups_{scratch_.path(),
                   {.log = *log_,
                    .checkpoint = [](const std::string& target) -> Status {
                      std::filesystem::create_directory(target);
                      return {};
                    },
                    .stop_checkpoints = [] {},
                    .request_sync = [](std::uint64_t) {},
                    .finished = [this] { worker_->wake_for_answers(); }}};
};

TEST_F(SweeperTest, AFlushIsAnsweredWhenItsSweepIsOnDiskAndHoldsNobodyUp) {
  FakeConnection* const client = connect();
  FakeConnection* const other = connect();
  count("n", 41);
  const std::uint64_t asked = device_.asked;
  flush(*client);
  ping(*other);
  turn();
  EXPECT_EQ(device_.asked, asked) << "the worker asks the device for each counter";
  EXPECT_EQ(other->posted.size(), 1U);
  EXPECT_TRUE(client->posted.empty());
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
  sync_all();
  turn();
  EXPECT_TRUE(client->posted.empty()) << "before the sweep";
  counter_flusher_.sweep();
  EXPECT_EQ(called_back_, 1);
  turn();
  EXPECT_TRUE(client->posted.empty()) << "before what was swept is on disk";
  EXPECT_EQ(asked_, log_->last_begun()) << "nobody asks for a sync";
  EXPECT_EQ(asked_level_, Durability::kSync);
  const std::uint64_t through = log_->last_begun();
  EXPECT_EQ(logged("n"), 41);
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, 0);
  EXPECT_EQ(answer(*client, 0).sequence, 9U);
  EXPECT_EQ(answer(*client, 0).version.sequence(), through);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kFlushes), 1U);
}

// A sweep that was under way may have passed the counter already.
TEST_F(SweeperTest, OnlyASweepThatBeginsAfterAFlushCounts) {
  FakeConnection* const client = connect();
  count("n");
  counter_flusher_.sweep();
  EXPECT_EQ(called_back_, 0) << "nobody has asked";
  EXPECT_EQ(logged("n"), 1);
  count("n");
  flush(*client);
  turn();
  EXPECT_TRUE(client->posted.empty());
  counter_flusher_.sweep();
  turn();
  EXPECT_EQ(logged("n"), 2);
  turn();
  EXPECT_EQ(client->posted.size(), 1U);
}

TEST_F(SweeperTest, ALogThatIsFullDelaysAFlush) {
  FakeConnection* const client = connect();
  count("n");
  std::vector<CommitLog::Reservation> taken;
  while (const auto room = log_->try_reserve(1, kCounterBytes))
    taken.push_back(*room);
  flush(*client);
  turn();
  EXPECT_LE(counter_flusher_.sweep() - clock_.now(), kNanosPerMs) << "tried again soon";
  turn();
  EXPECT_TRUE(client->posted.empty());
  for (const auto& room : taken)
    log_->unreserve(room);
  counter_flusher_.sweep();
  turn();
  EXPECT_EQ(logged("n"), 1);
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, 0);
}

TEST_F(SweeperTest, ADeviceThatFailsIsToldOf) {
  FakeConnection* const client = connect();
  count("n");
  device_.failures = 1;
  flush(*client);
  turn();
  counter_flusher_.sweep();
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kInternal));
  EXPECT_THAT(std::string(as_text(answer(*client, 0).value)), ::testing::HasSubstr("no answer"));
}

TEST_F(SweeperTest, AFailedDiskIsToldOf) {
  FakeConnection* const client = connect();
  count("n");
  log_->set_disk_state(DiskState::kFailing);
  flush(*client);
  turn();
  counter_flusher_.sweep();
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kIo));
}

TEST_F(SweeperTest, AFlushGoesWithItsClient) {
  FakeConnection* const client = connect();
  count("n");
  flush(*client);
  turn();
  queue().end(*client);
  turn();
  counter_flusher_.sweep();
  turn();
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kFlushes), 0U);
}

TEST_F(SweeperTest, ABackupBeginsWithASweepToo) {
  FakeConnection* const client = connect();
  count("n", 3);
  ask(*client, {.opcode = Opcode::kBackup, .sequence = 4, .value = as_bytes("monday")});
  ping(*client);  // its message takes the place of the first
  turn();
  EXPECT_EQ(client->posted.size(), 1U);
  counter_flusher_.sweep();
  turn();
  EXPECT_EQ(logged("n"), 3);
  backups_.start();
  while (client->posted.size() < 2)
    turn();
  const std::uint8_t code = answer(*client, 1).code;
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(std::filesystem::exists(scratch_.path() + "/monday"));
}

TEST_F(SweeperTest, TheEndTriesAgainAndSaysWhatIsLeft) {
  const SteadyClock clock;
  CounterFlusher counter_flusher(*store_, clock, [] {});
  count("a", 1);
  count("b", 2);
  device_.failures = 3;
  const CounterCells::Swept tried = counter_flusher.end(10'000);
  EXPECT_TRUE(tried.status);
  EXPECT_EQ(tried.left, 0U);
  EXPECT_EQ(logged("b"), 2);
  count("c");
  count("d");
  device_.failures = 1'000'000;
  const CounterCells::Swept given_up = counter_flusher.end(0);
  EXPECT_EQ(given_up.status.error().code, Code::kInternal);
  EXPECT_EQ(given_up.left, 2U);
  device_.failures = 0;
  std::vector<CommitLog::Reservation> taken;
  while (const auto room = log_->try_reserve(1, kCounterBytes))
    taken.push_back(*room);
  const CounterCells::Swept full = counter_flusher.end(5);
  EXPECT_EQ(full.status.error().code, Code::kBusy) << "it never stops waiting";
  EXPECT_EQ(full.left, 2U);
  for (const auto& room : taken)
    log_->unreserve(room);
}

// With its thread: no wake-up is missed on either side.
TEST_F(SweeperTest, NoFlushIsForgottenWhileItSweeps) {
  count("n");
  const SteadyClock clock;
  CounterFlusher counter_flusher(*store_, clock, [this] { worker_->wake_for_answers(); });
  Worker::Parts parts = parts_of_worker();
  parts.network = network_;
  parts.counter_flusher = &counter_flusher;
  worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
  FakeConnection* const asking = connect();
  counter_flusher.start();
  std::atomic<bool> over{false};
  std::thread disk([&] {
    while (!over.load())
      sync_all();
  });
  for (std::size_t i = 0; i < 300; ++i) {
    count("n");
    flush(*asking);
    worker_->poll_once();
    for (int seen = -1; asking->posted.size() <= i;) {
      const int wakes = queue().wakes;
      if (wakes == seen) continue;
      seen = wakes;
      worker_->poll_once();
    }
    queue().complete_sends(*asking);
    worker_->poll_once();
    EXPECT_EQ(answer(*asking, i).code, 0);
  }
  over.store(true);
  disk.join();
  counter_flusher.stop();
}

}  // namespace
}  // namespace rkv::server
