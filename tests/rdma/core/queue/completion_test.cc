// Completions on real verbs: fields read in place, resizing, and asynchronous events.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "rkv/rdma/accounting.h"
#include "rkv/rdma/extended_completion.h"
#include "rkv/rdma/extended_device.h"
#include "rkv/rdma/supervisor.h"
#include "tests/rdma/support/pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

bool soft_roce(const Device& device) {
  return need(device.attributes()).soft_roce;
}

using StandardQueue = ExtendedCompletionQueue<kStandardFields>;

// A pair whose first queue pair completes into an extended queue.
struct ExtendedLoop {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  CompletionChannel channel = need(CompletionChannel::create(device));
  StandardQueue queue;
  CompletionQueue peer_queue = need(CompletionQueue::create(device, {.channel = &channel}));
  MemoryRegion memory = need(MemoryRegion::allocate(pd, 1 << 16, kEverything));
  Pair pair;

  explicit ExtendedLoop(CompletionReading reading)
      : queue(need(StandardQueue::create(device, {.entries = 256, .channel = &channel}, reading))),
        pair(pd, queue, peer_queue) {}

  void read(std::uint64_t wr_id) {
    Batch batch = pair.a.batch();
    batch.read(wr_id, OpFlags::kSignaled, memory.local(0, 8), memory.remote());
    need(std::move(batch).submit());
  }
};

class ExtendedQueues : public ::testing::TestWithParam<CompletionReading> {};
INSTANTIATE_TEST_SUITE_P(Readings, ExtendedQueues,
                         ::testing::Values(CompletionReading::kBest, CompletionReading::kClassic),
                         [](const auto& of) {
                           return of.param == CompletionReading::kBest ? "Extended" : "Classic";
                         });

TEST_P(ExtendedQueues, ReadTheFieldsOfAMessage) {
  ExtendedLoop loop(GetParam());
  EXPECT_EQ(loop.queue.queue().extended(), GetParam() == CompletionReading::kBest);
  post_receive(loop.pair.a, loop.memory.local(0, 128), 42);
  {
    Batch batch = loop.pair.b.batch();
    batch.op(1).signaled().immediate(0xABCD'1234).send(loop.memory.local(4096, 100));
    need(std::move(batch).submit());
  }
  int seen = 0;
  const auto take = [&](const StandardQueue::Cursor& c) {
    ++seen;
    ASSERT_TRUE(c.ok());
    EXPECT_EQ(c.wr_id(), 42U);
    EXPECT_EQ(c.kind(), WorkKind::kReceive);
    EXPECT_EQ(c.byte_length(), 100U);
    ASSERT_TRUE(c.has_immediate());
    EXPECT_EQ(c.immediate(), 0xABCD'1234U);
    EXPECT_EQ(c.queue_pair(), loop.pair.a.number());
  };
  EXPECT_EQ(need(loop.queue.wait_each(take, soon())), 1U);
  EXPECT_EQ(seen, 1);
}

// Polling for more than the available completions and for fewer; leaving the loop early.
TEST_P(ExtendedQueues, GiveEachCompletionOnceInOrder) {
  ExtendedLoop loop(GetParam());
  std::uint64_t expected = 0;
  std::uint64_t posted = 0;
  for (int round = 0; round < 300; ++round) {
    const int burst = 1 + round % 7;
    for (int i = 0; i < burst; ++i)
      loop.read(posted++);
    const Deadline end = soon();
    while (expected < posted && !end.passed()) {
      for (auto& c : loop.queue.poll(1 + round % 3)) {
        ASSERT_EQ(c.wr_id(), expected);
        ASSERT_TRUE(c.ok());
        ++expected;
        if (round % 5 == 0) break;
      }
      for (auto& c : loop.queue.poll())
        ASSERT_EQ(c.wr_id(), expected++);
    }
    ASSERT_EQ(expected, posted) << "completions were lost in round " << round;
    for (auto& c : loop.queue.poll())
      FAIL() << "completion " << c.wr_id() << " came twice";
  }
}

TEST_P(ExtendedQueues, AFailedRequestHasStatusAndNumber) {
  ExtendedLoop loop(GetParam());
  need(loop.pair.a.to_error());
  send(loop.pair.a, loop.memory.local(0, 8), 9);
  const auto take = [&](const StandardQueue::Cursor& c) {
    EXPECT_FALSE(c.ok());
    EXPECT_EQ(c.status(), IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(c.wr_id(), 9U);
    EXPECT_EQ(c.queue_pair(), loop.pair.a.number());
    if (soft_roce(loop.device)) {
      EXPECT_EQ(c.vendor_error(), 0U);
    }
  };
  EXPECT_EQ(need(loop.queue.wait_each(take, soon())), 1U);
}

// A queue without some fields of WorkCompletion is still a CompletionQueue.
TEST(CompletionFields, AQueueOfOneFieldCanBePolledAsAnyOther) {
  Loopback loop;
  using Small = ExtendedCompletionQueue<WcField::kByteLength>;
  auto small = need(Small::create(loop.device, {.entries = 16}));
  Pair pair(loop.pd, small, loop.server.queue);
  post_receive(pair.a, loop.client.memory.local(0, 64), 5);
  send(pair.b, loop.server.memory.local(0, 33), 6);
  EXPECT_TRUE(loop.server.completion().ok());
  std::array<WorkCompletion, 4> some;
  std::size_t count = 0;
  const Deadline end = soon();
  while (count == 0 && !end.passed())
    count = need(small.queue().poll(some));
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(some[0].wr_id, 5U);
  EXPECT_EQ(some[0].byte_length, 33U);
  EXPECT_EQ(some[0].qp_num, pair.a.number());
  EXPECT_EQ(small.queue().fields(), WcField::kByteLength);
}

// READs twice, and the fields of both completions.
template <WcField fields>
void expect_readable(Loopback& loop, ExtendedCompletionQueue<fields>& queue) {
  Pair pair(loop.pd, queue, loop.server.queue);
  std::uint64_t last = 0;
  const auto take = [&](const typename ExtendedCompletionQueue<fields>::Cursor& c) {
    ASSERT_TRUE(c.ok());
    if constexpr (has(fields, WcField::kTimestamp)) {
      EXPECT_NE(std::exchange(last, c.timestamp()), c.timestamp());
    } else if constexpr (has(fields, WcField::kWallclock)) {
      EXPECT_GE(c.wallclock_ns(), std::exchange(last, c.wallclock_ns()));
      EXPECT_NE(last, 0U);
    }
  };
  for (int i = 0; i < 2; ++i) {
    Batch batch = pair.a.batch();
    batch.read(1, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
    need(std::move(batch).submit());
    EXPECT_EQ(need(queue.wait_each(take, soon())), 1U);
  }
}

template <WcField field>
void expect_named_or_there(Loopback& loop, const char* name) {
  const Device& device = loop.device;
  auto queue = ExtendedCompletionQueue < kStandardFields | field > ::create(device, {.entries = 8});
  if (!soft_roce(device) && queue) return expect_readable(loop, *queue);
  ASSERT_FALSE(queue);
  EXPECT_EQ(queue.error().code, Code::kUnsupported) << to_string(queue.error());
  EXPECT_STREQ(queue.error().call, "ibv_create_cq_ex");
  EXPECT_NE(std::string(queue.error().text).find(name), std::string::npos) << queue.error().text;
}

TEST(CompletionFields, AFieldThatTheDeviceLacksIsNamed) {
  Loopback loop;
  expect_named_or_there<WcField::kTimestamp>(loop, "kTimestamp");
  expect_named_or_there<WcField::kWallclock>(loop, "kWallclock");
  // If two fields are missing, one is named; if one of several is missing, that one.
  expect_named_or_there<WcField::kTimestamp | WcField::kWallclock>(loop, "kTimestamp");
  const auto classic = ExtendedCompletionQueue<WcField::kTimestamp>::create(
      loop.device, {.entries = 8}, CompletionReading::kClassic);
  EXPECT_EQ(classic.error().code, Code::kInvalidArgument);
}

TEST(CompletionQueueOptionsOfADevice, OutOfRangeAreRefusedByName) {
  const Device device = need(Device::open_first_active());
  const auto expect_refused = [&](const CompletionQueueOptions& options, const char* name) {
    const auto queue = CompletionQueue::create(device, options);
    ASSERT_FALSE(queue);
    EXPECT_EQ(queue.error().code, Code::kInvalidArgument);
    EXPECT_NE(std::string(queue.error().text).find(name), std::string::npos) << queue.error().text;
  };
  const std::uint32_t most = need(device.attributes()).max_completions;
  expect_refused({.entries = 0}, "::entries is not from 1 to the device's max_completions");
  expect_refused({.entries = most + 1}, "::entries is not from 1 to the device's max_completions");
  expect_refused({.entries = 8, .vector = 100'000}, "::vector is not below");
}

TEST(Resizing, KeepsWhatIsInTheQueueAndRefusesLessThanThat) {
  constexpr std::size_t kInside = 40;
  Loopback loop;
  auto queue = need(CompletionQueue::create(loop.device, {.entries = 64}));
  Pair pair(loop.pd, queue, loop.server.queue);
  post_receive(pair.b, loop.server.memory.local(0, 8), 1);
  Batch batch = pair.a.batch();
  for (std::uint64_t i = 0; i < kInside; ++i)
    batch.read(i, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
  // Starts when all READs are done: when it arrives, their completions are in the queue.
  batch.send(99, OpFlags::kFenced, loop.client.memory.local(0, 8));
  need(std::move(batch).submit());
  ASSERT_TRUE(loop.server.completion().ok());

  const Status small = queue.resize(4);
  ASSERT_FALSE(small);
  EXPECT_EQ(small.error().code, Code::kInvalidArgument) << to_string(small.error());
  EXPECT_STREQ(small.error().call, "ibv_resize_cq");
  need(queue.resize(1000));
  EXPECT_GE(queue.entries(), 1000U);
  std::array<WorkCompletion, kInside + 1> all;
  ASSERT_EQ(need(queue.poll(all)), kInside);
  for (std::uint64_t i = 0; i < kInside; ++i) {
    EXPECT_EQ(all[i].wr_id, i);
    EXPECT_TRUE(all[i].ok());
  }
  EXPECT_EQ(queue.resize(0).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(queue.resize(2'000'000'000));
}

void read_words(Loopback& loop, QueuePair& qp, std::uint64_t count) {
  Batch batch = qp.batch();
  for (std::uint64_t i = 0; i < count; ++i)
    batch.read(i, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
  need(std::move(batch).submit());
}

TEST(WaitingForOne, ReturnsTheCompletionOrSaysThatNoneCame) {
  Loopback loop;
  const auto none = loop.client.queue.wait_one(soon(0), "RDMA READ");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kTimeout);
  EXPECT_STREQ(none.error().call, "RDMA READ");
  read_words(loop, *loop.client.qp, 2);
  for (const std::uint64_t wr_id : {0U, 1U}) {
    const WorkCompletion one = need(loop.client.queue.wait_one(soon()));
    EXPECT_EQ(one.wr_id, wr_id);
    EXPECT_EQ(one.kind, WorkKind::kRead);
    EXPECT_EQ(one.byte_length, 8U);
  }
  EXPECT_EQ(loop.client.queue.wait_one(soon(0)).error().code, Code::kTimeout);
}

TEST(WaitingForOne, MakesAFailedRequestAnErrorThatSaysWhy) {
  Loopback loop;
  need(loop.client.qp->to_error());
  send(*loop.client.qp, loop.client.memory.local(0, 8), 9);
  const auto failed = loop.client.queue.wait_one(soon(), "SEND of a test");
  ASSERT_FALSE(failed);
  const WcExplanation& why = explain(IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(failed.error().code, why.code);
  EXPECT_STREQ(failed.error().call, "SEND of a test");
  EXPECT_STREQ(failed.error().text, why.text);
}

TEST(WaitingForAll, FillsTheSpanOrSaysHowManyCame) {
  Loopback loop;
  std::array<WorkCompletion, 40> all;
  read_words(loop, *loop.client.qp, 40);
  ASSERT_EQ(need(loop.client.queue.wait_all(all, soon())), 40U);
  for (std::uint64_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(all[i].wr_id, i);
  // Never more than there is space for.
  read_words(loop, *loop.client.qp, 3);
  ASSERT_EQ(need(loop.client.queue.wait_all(std::span(all).first(2), soon())), 2U);
  // One is left; the second does not come.
  EXPECT_EQ(need(loop.client.queue.wait_all(std::span(all).first(2), soon(20))), 1U);
  EXPECT_EQ(all[0].wr_id, 2U);
  EXPECT_EQ(need(loop.client.queue.wait_all({}, soon())), 0U);
}

TEST(WaitingWithoutAChannel, PollsUntilTheDeadline) {
  Loopback loop;
  CompletionQueue queue = need(CompletionQueue::create(loop.device, {.entries = 64}));
  Pair pair(loop.pd, queue, loop.server.queue);
  std::array<WorkCompletion, 4> some;
  EXPECT_EQ(need(queue.wait(some, soon(20))), 0U);
  EXPECT_EQ(need(queue.wait(some, soon(0))), 0U);
  EXPECT_EQ(queue.wait_one(soon(0)).error().code, Code::kTimeout);
  read_words(loop, pair.a, 5);
  EXPECT_EQ(need(queue.wait_one(soon())).wr_id, 0U);
  ASSERT_EQ(need(queue.wait_all(some, soon())), 4U);
  EXPECT_EQ(some[3].wr_id, 4U);
}

// Selective signaling with accounting: a send queue is kept full for long, and neither it nor its
// completion queue overruns.
TEST(SlotsOnADevice, KeepAFullQueueRunning) {
  Loopback loop;
  CompletionBudget budget(loop.client.queue.entries());
  const std::uint32_t length = loop.client.qp->send_length();
  const auto reserved = need(budget.reserve(length));
  SendSlots slots({.slots = length, .signal_every = 16});
  std::uint32_t completions = 0;
  while (slots.posted() < 5000 || slots.outstanding() != 0) {
    Batch batch = loop.client.qp->batch();
    while (slots.free() != 0 && slots.posted() < 5000) {
      const auto slot = slots.take(slots.posted() == 4999);
      batch.read(slot.number, slot.signaled ? OpFlags::kSignaled : OpFlags::kNone,
                 loop.client.memory.local(0, 8), loop.server.memory.remote());
    }
    need(std::move(batch).submit());
    std::array<WorkCompletion, 16> some;
    const std::size_t count = need(loop.client.queue.wait(some, soon()));
    ASSERT_NE(count, 0U) << "nothing came back";
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(some[i].ok());
      ASSERT_NE(slots.complete(static_cast<std::uint32_t>(some[i].wr_id)), 0U);
      ++completions;
    }
  }
  EXPECT_LE(completions, 5000U / 16 + 2);
  EXPECT_FALSE(need(loop.device.next_async_event())) << "an overrun would have been reported";
}

// Without the accounting: a completion queue that overruns reports it and is broken.
TEST(SupervisorsOnADevice, TellOfAnOverrunQueue) {
  Loopback loop;
  auto small = need(CompletionQueue::create(loop.device, {.entries = 1}));
  Pair pair(loop.pd, small, loop.server.queue);
  Supervisor supervisor(loop.device);
  int told = 0;
  const Watch watch = supervisor.watch(small.raw(), [&](const AsyncEvent& event) {
    EXPECT_EQ(event.type, IBV_EVENT_CQ_ERR);
    EXPECT_TRUE(is_loss(event.type));
    ++told;
  });
  for (std::uint32_t i = 0; i < small.entries() + 2; ++i)
    post_receive(pair.a, loop.client.memory.local(0, 8), i);
  need(pair.a.to_error());
  const Deadline end = soon();
  while (told == 0 && !end.passed()) {
    need(wait_readable(supervisor.fd(), soon(100)));
    need(supervisor.run());
  }
  EXPECT_GE(told, 1);
}

}  // namespace
}  // namespace rkv::rdma
