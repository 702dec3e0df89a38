// Refusals of a queue pair: queues of another device, operations that it was created without, use
// after a move, and a handshake from the wrong state.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "rkv/rdma/queue_pair.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// The same queue number means another queue on each opened device, even on one device opened twice.
TEST(QueuePairs, AreOfOneOpenedDevice) {
  const Device device = need(Device::open_first_active());
  const Device again = need(Device::open_first_active());
  const auto pd = need(ProtectionDomain::allocate(device));
  const auto foreign_pd = need(ProtectionDomain::allocate(again));
  const auto own = need(CompletionQueue::create(device, {.entries = 16}));
  const auto foreign = need(CompletionQueue::create(again, {.entries = 16}));
  const auto receives = need(SharedReceiveQueue::create(foreign_pd, {.length = 16}));
  const auto text = [&](const CompletionQueue& sends, const CompletionQueue& answers,
                        const SharedReceiveQueue* shared) {
    const auto qp = QueuePair::create(pd, sends, answers, {.shared = shared});
    return std::string(qp || qp.error().text == nullptr ? "" : qp.error().text);
  };
  const std::string refused =
      "domain, completion queues and shared receive queue must belong to one opened device";
  EXPECT_EQ(text(foreign, own, nullptr), refused);
  EXPECT_EQ(text(own, foreign, nullptr), refused);
  EXPECT_EQ(text(own, own, &receives), refused);
  EXPECT_TRUE(QueuePair::create(pd, own, own, {}));
}

TEST(QueuePairs, MadeWithoutAnOperationDoNotPostIt) {
  LoopbackOptions options;
  options.qp.operations = SendOps::kSend;
  Loopback loop(options);
  QueuePair& qp = *loop.client.qp;
  const RegisteredSpan local = loop.client.memory.local(0, 8);
  const RemoteSpan remote = *loop.server.memory.remote().first(8);
  const auto post = [&qp](auto fill) {
    Batch batch = qp.batch();
    fill(batch);
    need(std::move(batch).submit());
  };
  constexpr OpFlags kFlags = OpFlags::kSignaled;
  constexpr const char* kWhy = "made without";
  EXPECT_DEATH(post([&](Batch& b) { b.read(1, kFlags, local, remote); }), kWhy);
  EXPECT_DEATH(post([&](Batch& b) { b.write(1, kFlags, local, remote); }), kWhy);
  EXPECT_DEATH(post([&](Batch& b) { b.write(1, kFlags, inlined(as_bytes("x")), remote); }), kWhy);
  EXPECT_DEATH(post([&](Batch& b) { b.op(1).with(kFlags).immediate(1).write(local, remote); }),
               kWhy);
  EXPECT_DEATH(post([&](Batch& b) { b.compare_swap(1, kFlags, local, remote, 0, 1); }), kWhy);
  EXPECT_DEATH(post([&](Batch& b) { b.fetch_add(1, kFlags, local, remote, 1); }), kWhy);
  EXPECT_DEATH(post([&](Batch& b) { b.op(1).with(kFlags).immediate(1).send(local); }), kWhy);
  const ReceiveRequest receive{.wr_id = 9, .buffer = loop.server.memory.local(0, 64)};
  need(loop.server.qp->post_receives({&receive, 1}));
  post([&](Batch& b) { b.send(1, kFlags, local); });
  EXPECT_TRUE(loop.client.completion().ok());
}

TEST(QueuePairs, ThatWereMovedAwayPostNothing) {
  Loopback loop;
  QueuePair& old = *loop.client.qp;
  QueuePair now = std::move(old);
  // NOLINTNEXTLINE(bugprone-use-after-move): what this is about
  EXPECT_DEATH(std::ignore = old.batch().count(), "moved away");
  old = std::move(now);
  Batch batch = old.batch();
  batch.read(1, OpFlags::kSignaled, loop.client.memory.local(0, 8),
             *loop.server.memory.remote().first(8));
  need(std::move(batch).submit());
  EXPECT_TRUE(loop.client.completion().ok());
}

// The kernel reports EINVAL for this as for a GID without a route.
TEST(QueuePairs, InAnotherStateAreNotSaidToLackARoute) {
  Loopback loop;
  auto prepared =
      need(QueuePair::create(loop.pd, loop.client.queue, loop.client.queue, {.send_length = 16}));
  const std::uint8_t port = need(loop.device.first_active_port());
  const Endpoint self = need(prepared.endpoint(port, need(loop.device.routable_gid(port))));
  need(prepared.to_error());
  const auto qp = std::move(prepared).handshake(self);
  ASSERT_FALSE(qp);
  EXPECT_EQ(qp.error().code, Code::kInvalidArgument);
  EXPECT_NE(std::string(qp.error().text).find("state transition does not exist"), std::string::npos)
      << qp.error().text;
}

}  // namespace
}  // namespace rkv::rdma
