// The end of a queue pair with outstanding work: all of it comes back, and no other work is lost.
#include "rkv/rdma/drain.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/rdma/support/pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kSlots = 32;

// Two queue pairs that complete into one queue, and peers that never post a receive: sends stay
// outstanding until the queue pair ends.
struct Stuck {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  CompletionQueue shared = need(CompletionQueue::create(device, {.entries = 256}));
  CompletionQueue peers = need(CompletionQueue::create(device, {.entries = 256}));
  MemoryRegion memory = need(MemoryRegion::allocate(pd, 4096, kEverything));
  Pair mine{pd, shared, peers, {.send_length = kSlots, .receive_length = kSlots}};
  Pair theirs{pd, shared, peers, {.send_length = kSlots, .receive_length = kSlots}};
  QueuePairWork my_work{{.generation = 7, .send_slots = kSlots, .receive_slots = kSlots}};
  QueuePairWork their_work{{.generation = 8, .send_slots = kSlots, .receive_slots = kSlots}};

  void send(Pair& pair, QueuePairWork& work, std::size_t count) {
    Batch batch = pair.a.batch();
    for (std::size_t i = 0; i < count; ++i) {
      const auto ticket = work.take_send();
      batch.send(ticket.wr_id, ticket.flags(), memory.local(0, 8));
    }
    need(std::move(batch).submit());
  }
  void receive(Pair& pair, QueuePairWork& work, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      post_receive(pair.a, memory.local(64, 64), work.take_receive());
  }
  Result<DrainReport> drain_mine(std::vector<WorkCompletion>& own,
                                 std::vector<WorkCompletion>& others, int ms = kPatienceMs) {
    return drain(
        mine.a, my_work, shared, shared, soon(ms),
        [&](const WorkCompletion& one) { own.push_back(one); },
        [&](const WorkCompletion& one) { others.push_back(one); });
  }
};

TEST(Draining, BringsBackWhatIsOutstandingAndLosesNothingOfOthers) {
  Stuck stuck;
  stuck.send(stuck.mine, stuck.my_work, 5);
  stuck.receive(stuck.mine, stuck.my_work, kSlots);
  stuck.send(stuck.theirs, stuck.their_work, 3);
  stuck.receive(stuck.theirs, stuck.their_work, 4);
  need(stuck.theirs.a.to_error());  // these complete at the same time, into the same queue
  std::vector<WorkCompletion> own;
  std::vector<WorkCompletion> others;
  const DrainReport report = need(stuck.drain_mine(own, others));
  EXPECT_TRUE(stuck.my_work.idle());
  EXPECT_EQ(report.own, 5 + kSlots);
  EXPECT_EQ(own.size(), 5 + kSlots);
  EXPECT_GE(report.flushed, 4 + kSlots) << "the first send may have failed by itself";
  EXPECT_EQ(report.others, others.size());
  for (const WorkCompletion& one : own)
    EXPECT_EQ(one.qp_num, stuck.mine.a.number());
  // Completions that had not arrived yet reach their owner in the usual way.
  const Deadline end = soon();
  while (others.size() < 7 && !end.passed()) {
    std::array<WorkCompletion, 8> some;
    const std::size_t count = need(stuck.shared.poll(some));
    others.insert(others.end(), some.begin(), some.begin() + count);
  }
  for (const WorkCompletion& one : others) {
    EXPECT_EQ(one.qp_num, stuck.theirs.a.number());
    EXPECT_TRUE(stuck.their_work.complete(one));
  }
  EXPECT_TRUE(stuck.their_work.idle());
}

// Unsignaled requests that succeeded give no completion. The marker after them does.
TEST(Draining, KnowsTheEndOfRequestsThatDoNotTell) {
  Loopback loop;
  for (const std::uint32_t requests : {1U, 3U, 9U, 255U}) {
    Pair pair(loop.pd, loop.client.queue, loop.server.queue, {.send_length = 256});
    QueuePairWork work({.send_slots = 256, .signal_every = 256});
    Batch batch = pair.a.batch();
    for (std::uint32_t i = 0; i < requests; ++i) {
      const auto ticket = work.take_send();
      batch.read(ticket.wr_id, ticket.flags(), loop.client.memory.local(0, 8),
                 loop.server.memory.remote());
    }
    EXPECT_TRUE(work.has_silent_end());
    need(std::move(batch).submit());
    std::uint32_t own = 0;
    const auto report = need(drain(
        pair.a, work, loop.client.queue, loop.client.queue, soon(),
        [&](const WorkCompletion&) { ++own; },
        [](const WorkCompletion&) { FAIL() << "of nobody else"; }));
    EXPECT_TRUE(work.idle());
    EXPECT_EQ(report.own, own);
    EXPECT_GE(own, 1U);
    EXPECT_LE(own, requests + 1);
  }
}

// A datagram needs an address, so there is no marker; the queue pair stays as it was.
TEST(Draining, OfDatagramsNeedsASignaledEnd) {
  Loopback loop;
  const std::uint8_t port = need(loop.device.first_active_port());
  const GidEntry gid = need(loop.device.routable_gid(port));
  CompletionQueue& queue = loop.client.queue;
  auto prepared = need(BasicQueuePair<Ud>::create(loop.pd, queue, queue, {.send_length = 8}));
  const Endpoint self = need(prepared.endpoint(port, gid));
  auto qp = need(std::move(prepared).activate(self.qkey));
  const AddressHandle to =
      need(AddressHandle::create(loop.pd, need(choose_route(port, gid, self, self)).address));
  QueuePairWork work({.send_slots = 8, .signal_every = 8});
  const auto send = [&](bool signal) {
    const auto ticket = work.take_send(signal);
    BasicBatch<Ud> batch = qp.batch();
    batch.op(ticket.wr_id)
        .with(ticket.flags())
        .to(to, self.qp_num, self.qkey)
        .send(loop.client.memory.local(0, 8));
    need(std::move(batch).submit());
  };
  const auto drain_now = [&] {
    return drain(
        qp, work, queue, queue, soon(), [](const WorkCompletion&) {}, [](const WorkCompletion&) {});
  };
  send(false);
  const auto refused = drain_now();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_STREQ(refused.error().call, "ibv_post_send");
  EXPECT_EQ(need(qp.state()), IBV_QPS_RTS);
  send(true);
  need(drain_now());
  EXPECT_TRUE(work.idle());
  EXPECT_EQ(need(qp.state()), IBV_QPS_ERR);
}

TEST(Draining, OfAQueuePairThatIsBrokenAlready) {
  Stuck stuck;
  stuck.send(stuck.mine, stuck.my_work, 4);
  need(stuck.mine.a.to_error());
  // SoftRoCE flushes receives posted after the error only when the error state is set again.
  stuck.receive(stuck.mine, stuck.my_work, 3);
  std::vector<WorkCompletion> own;
  std::vector<WorkCompletion> others;
  need(stuck.drain_mine(own, others));
  EXPECT_EQ(own.size(), 7U);
  EXPECT_EQ(need(stuck.mine.a.state()), IBV_QPS_ERR);
  // Again, with nothing outstanding: no effect.
  EXPECT_EQ(need(stuck.drain_mine(own, others)).own, 0U);
}

TEST(Draining, OfAQueuePairThatWasNeverConnected) {
  Stuck stuck;
  auto qp = need(QueuePair::create(stuck.pd, stuck.shared, stuck.shared, {}));
  need(qp.open(need(stuck.device.first_active_port())));
  QueuePairWork work({.receive_slots = 8});
  for (int i = 0; i < 8; ++i)
    post_receive(qp, stuck.memory.local(0, 64), work.take_receive());
  const auto report = need(drain(
      qp, work, stuck.shared, stuck.shared, soon(), [](const WorkCompletion&) {},
      [](const WorkCompletion&) {}));
  EXPECT_EQ(report.flushed, 8U);
}

TEST(Draining, EndsWithItsDeadlineWhenWorkIsMissing) {
  Stuck stuck;
  stuck.send(stuck.mine, stuck.my_work, 2);
  (void)stuck.my_work.take_receive();  // counted, never posted
  std::vector<WorkCompletion> own;
  std::vector<WorkCompletion> others;
  const Deadline patience = soon();
  do {  // the number depends on how soon the device flushes
    const auto report = stuck.drain_mine(own, others, 100);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, Code::kTimeout);
  } while (own.size() < 2 && !patience.passed());
  EXPECT_EQ(own.size(), 2U);
  EXPECT_EQ(stuck.my_work.sends().outstanding(), 0U);
  EXPECT_EQ(stuck.my_work.receives().outstanding(), 1U);
}

// A predecessor with the same number left completions: they are not counted for this queue pair.
TEST(Draining, DoesNotTakeAPredecessorsCompletionsForItsOwn) {
  Stuck stuck;
  const std::uint64_t stale = WorkId{.generation = 6, .receive = true, .number = 0}.wr_id();
  post_receive(stuck.mine.a, stuck.memory.local(64, 64), stale);
  stuck.receive(stuck.mine, stuck.my_work, 1);
  std::vector<WorkCompletion> own;
  std::vector<WorkCompletion> others;
  need(stuck.drain_mine(own, others));
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(WorkId::from(own[0].wr_id).generation, 7);
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].wr_id, stale);
}

TEST(Draining, HappensInADestructorToo) {
  Stuck stuck;
  std::uint32_t others = 0;
  stuck.send(stuck.mine, stuck.my_work, 6);
  {
    const DrainOnExit guard(stuck.mine.a, stuck.my_work, stuck.shared, stuck.shared,
                            std::chrono::milliseconds(kPatienceMs),
                            [&](const WorkCompletion&) { ++others; });
  }
  EXPECT_TRUE(stuck.my_work.idle());
  EXPECT_EQ(others, 0U);

  // Completions that a destructor cannot return go to the handler.
  static std::atomic<int> reported;
  reported = 0;
  const auto before = set_teardown_handler([](const Error& error) noexcept {
    if (error.code == Code::kTimeout) ++reported;
  });
  (void)stuck.their_work.take_send();  // never posted
  {
    const DrainOnExit guard(stuck.theirs.a, stuck.their_work, stuck.shared, stuck.shared,
                            std::chrono::milliseconds(50),
                            [&](const WorkCompletion&) { ++others; });
  }
  set_teardown_handler(before);
  EXPECT_EQ(reported, 1);
}

}  // namespace
}  // namespace rkv::rdma
