// A worker whose requests wait for records on disk.
#include "tests/server/background/disk_fetcher_fixture.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

class WorkerLoadsTest : public WorkerTest {
 protected:
  WorkerLoadsTest() {
    Worker::Parts parts = parts_of_worker();
    parts.disk_fetcher = &disk_fetcher_;
    worker_ = std::move(*Worker::create(parts, {.clients = 10}));
    store_->disk().begin_loading();
    disk_fetcher_.start();
  }
  ~WorkerLoadsTest() override {
    disk_fetcher_.stop();
    worker_.reset();
  }
  void on_disk(const std::string& key, const std::string& value) {
    disk_.preload(key, {.version = Version::of(3, 1), .expiry_ms = 0, .value = value});
  }
  void get(FakeConnection& from, std::string_view key) {
    ask(from, {.opcode = Opcode::kGet, .sequence = 1, .key = as_bytes(key)});
  }
  void await_loads(int loads) {
    for (int seen = finished_; seen < loads; seen = finished_)
      finished_.wait(seen);
  }

  MapDisk disk_;
  std::atomic<int> finished_{0};
  DiskFetcher disk_fetcher_{{.store = *store_,
                             .disk = disk_.reads(*log_),
                             .request_write = [](std::uint64_t) {},
                             .finished =
                                 [this] {
                                   ++finished_;
                                   finished_.notify_all();
                                 },
                             .threads = 1}};
};

// The only request that waits, and not among those that have not begun: when there is room for its
// answer it gets it, and so do others afterwards.
TEST_F(WorkerLoadsTest, ALargeValueThatWasLoadedIsAnsweredWhenThereIsRoom) {
  const std::string value(kMaxInlineBytes, 'v');
  on_disk("known", value);
  on_disk("asked for", value);
  FakeConnection* const passing = connect();
  FakeConnection* const patient = connect();
  // All 16 large buffers are on their way to clients whose devices are slow to say so, as many to
  // each as one may have (SERVE-8); which the next who asks shows.
  FakeConnection* slow = nullptr;
  for (const std::size_t share : {4U, 4U, 4U, 2U, 1U, 1U}) {
    FakeConnection* const one = connect();
    if (slow == nullptr) slow = one;
    while (one->posted.size() < share) {
      const std::size_t answered = one->posted.size();
      get(*one, "known");
      turn();
      if (finished_ == 0) {
        await_loads(1);
        turn();
      }
      ASSERT_EQ(one->posted.size(), answered + 1);
    }
  }
  get(*passing, "known");
  turn();
  ASSERT_TRUE(passing->posted.empty());
  queue().end(*passing);
  turn();

  get(*patient, "asked for");
  turn();
  await_loads(2);
  turn();
  EXPECT_TRUE(patient->posted.empty());
  queue().complete_sends(*slow);
  turn();
  ASSERT_EQ(patient->posted.size(), 1U);
  EXPECT_EQ(answer(*patient, 0).value.size(), value.size());
  get(*slow, "known");
  turn();
  EXPECT_EQ(slow->posted.size(), 5U);
}

}  // namespace
}  // namespace rkv::server
