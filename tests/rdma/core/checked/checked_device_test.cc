// Checked mode on real verbs: posted work stays in flight until this test polls, so each violation
// is certain. Its twin is the same step after the completion.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "rkv/rdma/checked.h"
#include "rkv/rdma/extended_completion.h"
#include "tests/rdma/support/pair.h"
#include "tests/rdma/support/windows.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

[[maybe_unused]] const bool switched_on = (checked::enable(), true);

void read(QueuePair& qp, const RegisteredSpan& to, const RemoteSpan& from, std::uint64_t wr_id,
          OpFlags flags = OpFlags::kSignaled) {
  Batch batch = qp.batch();
  batch.read(wr_id, flags, to, *from.first(to.size()));
  need(std::move(batch).submit());
}

class CheckedFlowsDeathTest : public ::testing::Test {
 protected:
  ~CheckedFlowsDeathTest() override {
    loop_.reset();
    EXPECT_EQ(checked::in_flight(), 0U) << "nothing survives its queue pair";
  }
  void read(const RegisteredSpan& to, std::uint64_t wr_id, OpFlags flags = OpFlags::kSignaled) {
    rkv::rdma::read(client(), to, loop_->server.memory.remote(), wr_id, flags);
  }
  QueuePair& client() { return *loop_->client.qp; }
  MemoryRegion region() { return need(MemoryRegion::allocate(loop_->pd, 4096, kEverything)); }
  std::optional<Loopback> loop_{with_windows()};
};

LoopbackOptions readable() {
  LoopbackOptions options = with_windows();
  options.server_region = kEverything;
  return options;
}

TEST_F(CheckedFlowsDeathTest, ARegionEndsBeforeTheCompletionIsPolled) {
  loop_.emplace(readable());
  auto extra = std::make_unique<MemoryRegion>(region());
  read(extra->local(0, 8), 7, OpFlags::kNone);
  read(loop_->client.memory.local(0, 8), 8);
  EXPECT_DEATH(extra.reset(), "ends while wr_id 7 .READ, queue pair 0x");
  EXPECT_DEATH(std::ignore = extra->deregister(), "ends while wr_id 7 .READ");
  EXPECT_TRUE(loop_->client.completion().ok());
  need(extra->deregister());
  extra.reset();
}

TEST_F(CheckedFlowsDeathTest, AWindowEndsWhileItIsBeingBound) {
  auto window = std::make_unique<Window>(need(Window::allocate(loop_->pd, WindowType::kTwo)));
  {
    Batch batch = loop_->server.qp->batch();
    batch.bind_window(3, OpFlags::kSignaled, *window,
                      {.region = &loop_->server.memory, .offset = 0, .length = 64});
    need(std::move(batch).submit());
  }
  EXPECT_DEATH(window.reset(), "the window with key 0x[0-9a-f]+ ends while wr_id 3 .bind");
  window->bind_ended(loop_->server.completion().ok());
  window.reset();
}

TEST_F(CheckedFlowsDeathTest, BytesAreWrittenTwice) {
  loop_.emplace(readable());
  read(loop_->client.memory.local(0, 64), 1);
  EXPECT_DEATH(read(loop_->client.memory.local(63, 8), 2), "writes bytes that wr_id 1 .READ");
  EXPECT_DEATH(post_receive(client(), loop_->client.memory.local(0, 8), 2), "writes bytes");
  EXPECT_TRUE(loop_->client.completion().ok());
  read(loop_->client.memory.local(63, 8), 2);
  EXPECT_TRUE(loop_->client.completion().ok());
}

TEST_F(CheckedFlowsDeathTest, AKeyOfAnotherDomain) {
  loop_.emplace(readable());
  const auto other = need(ProtectionDomain::allocate(loop_->device));
  const MemoryRegion foreign = need(MemoryRegion::allocate(other, 4096, kEverything));
  EXPECT_DEATH(read(foreign.local(0, 8), 1), "of a region in another protection domain");
  EXPECT_DEATH(read(RegisteredSpan::unchecked(foreign.bytes().first(8), client().raw()->qp_num), 1),
               "which no region of its device has|another protection domain|outside the region");
  EXPECT_DEATH(
      read(RegisteredSpan::unchecked(foreign.bytes().first(8), loop_->client.memory.lkey()), 1),
      "outside the region");
}

TEST_F(CheckedFlowsDeathTest, NobodySignals) {
  loop_.emplace(readable());
  const std::uint32_t length = client().send_length();
  const RegisteredSpan message = loop_->client.memory.local(0, 8);
  Batch batch = client().batch();
  for (std::uint32_t i = 0; i < length + 1; ++i)
    batch.write(i, OpFlags::kNone, message, *loop_->server.memory.remote().first(8));
  EXPECT_DEATH(std::ignore = std::move(batch).submit(), "no completion can free it");
}

TEST_F(CheckedFlowsDeathTest, ReceivesOutnumberTheCompletionQueue) {
  auto small = need(CompletionQueue::create(loop_->device, {.entries = 4}));
  Pair pair(loop_->pd, small, loop_->server.queue);
  const auto receive = [&](std::uint64_t i) {
    post_receive(pair.a, loop_->client.memory.local(i * 64, 64), i);
  };
  for (std::uint64_t i = 0; i < small.entries(); ++i)
    receive(i);
  EXPECT_DEATH(receive(small.entries()), "would exceed the completions");
  EXPECT_EQ(checked::in_flight(), small.entries());
}

TEST_F(CheckedFlowsDeathTest, TwoBatchesOfOneQueuePairAreOpen) {
  loop_.emplace(readable());
  {
    const Batch open = client().batch();
    EXPECT_DEATH(std::ignore = client().batch(),
                 "a batch is opened while a batch of its queue pair is open");
    EXPECT_DEATH(std::ignore = client().op(1).send(loop_->client.memory.local(0, 8)),
                 "a batch is opened while a batch of its queue pair is open");
  }
  const Batch next = client().batch();
}

TEST_F(CheckedFlowsDeathTest, ANumberIsUsedAgain) {
  loop_.emplace(readable());
  checked::forbid_wr_id_reuse(*client().raw());
  read(loop_->client.memory.local(0, 8), 1);
  EXPECT_DEATH(read(loop_->client.memory.local(8, 8), 1), "has the wr_id of wr_id 1 .READ");
  EXPECT_TRUE(loop_->client.completion().ok());
  read(loop_->client.memory.local(8, 8), 1);
  EXPECT_TRUE(loop_->client.completion().ok());
}

// Queues with each way to poll, one of them without the field for the queue pair's number.
TEST_F(CheckedFlowsDeathTest, EveryWayToPollEndsWhatIsPolled) {
  using Bare = ExtendedCompletionQueue<WcField::kByteLength>;
  loop_.emplace(readable());
  for (const CompletionReading reading : {CompletionReading::kBest, CompletionReading::kClassic}) {
    auto queue = need(
        Bare::create(loop_->device, {.entries = 16, .channel = &loop_->client.channel}, reading));
    Pair pair(loop_->pd, queue, loop_->server.queue);
    for (std::uint64_t i = 0; i < 6; ++i) {
      rkv::rdma::read(pair.a, loop_->client.memory.local(i * 8, 8), loop_->server.memory.remote(),
                      i, i == 5 ? OpFlags::kSignaled : OpFlags::kNone);
    }
    EXPECT_EQ(checked::in_flight(), 6U);
    EXPECT_EQ(
        need(queue.wait_each([](const Bare::Cursor& one) { EXPECT_EQ(one.wr_id(), 5U); }, soon())),
        1U);
    EXPECT_EQ(checked::in_flight(), 0U);
  }
}

TEST_F(CheckedFlowsDeathTest, WhatFailsOrIsFlushedIsOver) {
  loop_.emplace(readable());
  for (std::uint64_t i = 0; i < 4; ++i)
    post_receive(client(), loop_->client.memory.local(1024 + i * 64, 64), 100 + i);
  RemoteSpan wrong = loop_->server.memory.remote();
  wrong.rkey ^= 0xFF;
  rkv::rdma::read(client(), loop_->client.memory.local(0, 8), wrong, 1);
  read(loop_->client.memory.local(8, 8), 2, OpFlags::kNone);
  read(loop_->client.memory.local(16, 8), 3);
  EXPECT_EQ(checked::in_flight(), 7U);
  EXPECT_EQ(loop_->client.completions(7).size(), 7U);
  EXPECT_EQ(checked::in_flight(), 0U);
}

TEST_F(CheckedFlowsDeathTest, AResetDropsWhatWasPosted) {
  auto prepared = need(QueuePair::create(loop_->pd, loop_->client.queue, loop_->client.queue, {}));
  need(prepared.open(need(loop_->device.first_active_port())));
  auto extra = std::make_unique<MemoryRegion>(region());
  post_receive(prepared, extra->local(0, 64), 1);
  EXPECT_DEATH(extra.reset(), "ends while wr_id 1 .receive");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  need(prepared.modify(attributes, IBV_QP_STATE));
  extra.reset();
}

}  // namespace
}  // namespace rkv::rdma
