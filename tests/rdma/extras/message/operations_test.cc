// Single operations as coroutines, on real verbs.
#include "rkv/rdma/message/operations.h"

#include <set>
#include <thread>

#include "rkv/rdma/message/task.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// Two queue pairs of one device; the sends of the first complete for coroutines.
struct Bench {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  std::unique_ptr<EpollExecutor> executor = need(EpollExecutor::create());
  Operations operations;
  Side here{pd, kEverything};
  Side there{pd, kEverything};

  explicit Bench(std::uint32_t outstanding = 8)
      : operations(need(Operations::create(device, *executor, {.outstanding = outstanding}))) {
    const std::uint8_t port = need(device.first_active_port());
    const GidEntry gid = need(device.routable_gid(port));
    auto a = need(QueuePair::create(pd, operations.queue(), here.queue,
                                    {.send_length = outstanding, .receive_length = 4}));
    auto b = need(QueuePair::create(pd, there.queue, there.queue, {}));
    const Endpoint of_a = need(a.endpoint(port, gid));
    const Endpoint of_b = need(b.endpoint(port, gid));
    here.qp = need(std::move(a).handshake(of_b));
    there.qp = need(std::move(b).handshake(of_a, {.remote_access = kEverything}));
  }
  QueuePair& qp() { return *here.qp; }
  RemoteSpan word(std::size_t offset) { return *there.memory.remote().subspan(offset, 8); }
  template <class... T>
  void run_all(T... tasks) {
    need(run(*executor, soon(), tasks...));
  }
};

TEST(Operations, EachDoesWhatItSays) {
  Bench bench;
  const std::array<ReceiveRequest, 1> receive = {
      {{.wr_id = 9, .buffer = bench.there.memory.local(4096, 64)}}};
  need(bench.there.qp->post_receives(receive));
  const auto talk = [&]() -> Task<> {
    store_le<std::uint64_t>(bench.here.at(0), 41);
    need(co_await bench.operations.write(bench.qp(), bench.here.memory.local(0, 8), bench.word(0)));
    EXPECT_EQ(bench.there.word(0), 41U);
    const RegisteredSpan old = bench.here.memory.local(64, 8);
    EXPECT_EQ(need(co_await bench.operations.fetch_add(bench.qp(), old, bench.word(0), 1)), 41U);
    EXPECT_EQ(need(co_await bench.operations.compare_swap(bench.qp(), old, bench.word(0), 42, 50)),
              42U);
    EXPECT_EQ(need(co_await bench.operations.compare_swap(bench.qp(), old, bench.word(0), 42, 60)),
              50U);
    need(
        co_await bench.operations.read(bench.qp(), bench.here.memory.local(128, 8), bench.word(0)));
    EXPECT_EQ(bench.here.word(128), 50U);
    need(co_await bench.operations.send(bench.qp(), bench.here.memory.local(128, 8)));
  };
  bench.run_all(talk());
  EXPECT_EQ(bench.there.completion().byte_length, 8U);
  EXPECT_EQ(bench.there.word(4096), 50U);
  EXPECT_EQ(bench.operations.outstanding(), 0U);
}

TEST(Operations, MoreCoroutinesThanSlotsTakeTurns) {
  Bench bench(4);
  constexpr std::size_t kTasks = 12;
  constexpr std::size_t kTimes = 10;
  std::set<std::uint64_t> seen;
  const auto count = [&](std::size_t which) -> Task<> {
    for (std::size_t i = 0; i < kTimes; ++i) {
      seen.insert(need(co_await bench.operations.fetch_add(
          bench.qp(), bench.here.memory.local(64 * which, 8), bench.word(0), 1)));
      EXPECT_LE(bench.operations.outstanding(), 4U);
    }
  };
  std::vector<Task<>> tasks;
  for (std::size_t i = 0; i < kTasks; ++i)
    tasks.push_back(count(i));
  for (Task<>& task : tasks)
    task.start();
  for (Task<>& task : tasks)
    need(run(*bench.executor, soon(), task));
  EXPECT_EQ(seen.size(), kTasks * kTimes);  // every addition returned a different old value
  EXPECT_EQ(bench.there.word(0), kTasks * kTimes);
}

// The peer has no receives, so nothing completes before the queue pair enters the error state.
TEST(Operations, NoMoreAreOutstandingThanThereAreSlots) {
  Bench bench(4);
  const auto send = [&]() -> Task<> {
    EXPECT_FALSE(co_await bench.operations.send(bench.qp(), bench.here.memory.local(0, 8)));
  };
  std::vector<Task<>> tasks;
  for (int i = 0; i < 6; ++i) {
    tasks.push_back(send());
    tasks.back().start();
  }
  EXPECT_EQ(bench.operations.outstanding(), 4U);
  EXPECT_EQ(bench.executor->waiters(), 6U);
  need(bench.qp().to_error());
  for (Task<>& task : tasks)
    need(run(*bench.executor, soon(), task));
  EXPECT_EQ(bench.operations.outstanding(), 0U);
}

TEST(Operations, AFailureNamesTheOperationAndFlushesTheOthers) {
  Bench bench;
  RemoteSpan wrong = bench.word(0);
  wrong.rkey ^= 0x5500;
  const auto bad = [&]() -> Task<> {
    const auto done =
        co_await bench.operations.read(bench.qp(), bench.here.memory.local(0, 8), wrong);
    EXPECT_FALSE(done);
    if (!done) {
      EXPECT_STREQ(done.error().call, "RDMA READ");
    }
  };
  const auto later = [&]() -> Task<> {
    EXPECT_FALSE(
        co_await bench.operations.read(bench.qp(), bench.here.memory.local(64, 8), bench.word(0)));
  };
  bench.run_all(bad(), later());
  EXPECT_EQ(bench.operations.outstanding(), 0U);
}

// No receive is posted, so the SEND stays with the device until the queue pair enters the error
// state.
TEST(Operations, WhatIsStoppedOrDestroyedStaysWithTheDeviceUntilItCompletes) {
  Bench bench;
  std::stop_source source;
  const auto stopped = [&]() -> Task<> {
    const auto done = co_await bench.operations.send(bench.qp(), bench.here.memory.local(0, 8),
                                                     source.get_token());
    EXPECT_FALSE(done);
    if (!done) {
      EXPECT_TRUE(is_stopped(done.error()));
      EXPECT_EQ(done.error().write, WriteOutcome::kMayHaveHappened);
    }
  };
  const auto destroyed = [&]() -> Task<> {
    need(co_await bench.operations.send(bench.qp(), bench.here.memory.local(64, 8)));
  };
  {
    auto task = destroyed();
    task.start();
    auto stopping = stopped();
    stopping.start();
    const std::jthread stopper([&] { source.request_stop(); });
    need(run(*bench.executor, soon(), stopping));
  }
  EXPECT_EQ(bench.executor->waiters(), 0U);
  EXPECT_EQ(bench.operations.outstanding(), 2U);
  need(bench.qp().to_error());
  const auto drain = [&]() -> Task<> { need(co_await bench.operations.drained()); };
  bench.run_all(drain());
  EXPECT_EQ(bench.operations.outstanding(), 0U);
}

// Another coroutine's poll takes the completion: no further event announces it.
TEST(Operations, WhatAnothersPollingFindsIsNotSleptOver) {
  Bench bench;
  const auto write = [&]() -> Task<> {
    need(co_await bench.operations.write(bench.qp(), bench.here.memory.local(0, 8), bench.word(0)));
  };
  const auto drain = [&]() -> Task<> { need(co_await bench.operations.drained()); };
  auto writing = write();
  auto draining = drain();
  writing.start();
  draining.start();
  const Deadline deadline = soon();
  while (need(bench.executor->arm()))
    ASSERT_TRUE(need(wait_readable(bench.executor->fd(), deadline)));
  EXPECT_EQ(bench.operations.outstanding(), 0U);  // arm() has polled
  EXPECT_FALSE(need(bench.executor->arm()));      // and returns false until the coroutines have
                                                  // continued
  EXPECT_GE(bench.executor->poll(), 1U);          // a fast one may not have had to wait
  EXPECT_TRUE(writing.done() && draining.done());
}

// The earlier waiter in the list finds no slot; the later one frees a slot.
TEST(Operations, AFreeSlotIsNotSleptOver) {
  Bench bench(1);
  const auto write = [&](std::size_t at) -> Task<> {
    need(
        co_await bench.operations.write(bench.qp(), bench.here.memory.local(at, 8), bench.word(0)));
  };
  auto second = write(64);
  {
    auto first = write(0);
    first.start();
    second.start();
  }  // the device still owns its slot
  const Deadline deadline = soon();
  while (need(bench.executor->arm()))
    ASSERT_TRUE(need(wait_readable(bench.executor->fd(), deadline)));
  EXPECT_EQ(bench.operations.outstanding(), 0U);
  EXPECT_FALSE(need(bench.executor->arm()));
  need(run(*bench.executor, soon(), second));
}

// For each kind of wait: a completion, a slot, or drained().
TEST(OperationsDeathTest, TheyOutliveWhoWaitsForThem) {
  Bench bench(1);
  std::optional<Operations> operations(std::move(bench.operations));
  const auto send = [&]() -> Task<> {
    std::ignore = co_await operations->send(bench.qp(), bench.here.memory.local(0, 8));
  };
  const auto drain = [&]() -> Task<> { std::ignore = co_await operations->drained(); };
  const char* const says = "while a coroutine waits";
  std::optional posted(send());  // no receive is posted
  posted->start();
  EXPECT_DEATH(operations.reset(), says);
  std::optional queued(send());
  queued->start();
  posted.reset();
  EXPECT_DEATH(operations.reset(), says);
  queued.reset();
  std::optional draining(drain());
  draining->start();
  EXPECT_DEATH(operations.reset(), says);
  draining.reset();
  EXPECT_EQ(operations->outstanding(), 1U);
  operations.reset();  // a request may still be outstanding: it ends with the queue pair
  EXPECT_EQ(bench.executor->waiters(), 0U);
}

TEST(OperationsDeathTest, WhatWasMovedFromSaysSo) {
  Bench bench;
  const Operations taken = std::move(bench.operations);
  const char* const says = "moved from";
  EXPECT_DEATH(std::ignore = bench.operations.outstanding(), says);
  EXPECT_DEATH(std::ignore = bench.operations.queue(), says);
  EXPECT_DEATH(std::ignore = bench.operations.drained(), says);
  EXPECT_DEATH(std::ignore = bench.operations.send(bench.qp(), bench.here.memory.local(0, 8)),
               says);
}

TEST(Operations, OptionsOutOfRangeAreNamed) {
  const Device device = need(Device::open_first_active());
  InlineExecutor executor;
  const auto made = Operations::create(device, executor, {.outstanding = 0});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
  EXPECT_NE(to_string(made.error()).find("outstanding"), std::string::npos)
      << to_string(made.error());
}

}  // namespace
}  // namespace rkv::rdma
