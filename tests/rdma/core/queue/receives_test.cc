// Receives on real verbs: of several pieces, and of a shared receive queue.
#include <gtest/gtest.h>

#include <vector>

#include "rkv/rdma/checked.h"
#include "tests/client/count_allocations.h"
#include "tests/rdma/support/pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct SharedReceives {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  SharedReceiveQueue srq = need(SharedReceiveQueue::create(pd, {.length = 32}));
  Side client{pd, kEverything};
  Side server{pd, kEverything};
  std::optional<Pair> pair;

  SharedReceives() {
    pair.emplace(pd, client.queue, server.queue, QueuePairOptions{.shared = &srq});
  }
};

// A header separate from its payload, by a plain receive queue and by a shared one.
TEST(Receives, AreScatteredOverTheirPieces) {
  Loopback loop;
  const auto expect_scattered = [&](Pair& pair, auto post) {
    std::memset(loop.server.at(0), 0, 16384);
    std::memcpy(loop.client.at(0), "header, then the rest", 21);
    const std::array<RegisteredSpan, 3> pieces = {loop.server.memory.local(4096, 6),
                                                  loop.server.memory.local(0, 2),
                                                  loop.server.memory.local(8192, 64)};
    need(post(pieces));
    send(pair.a, loop.client.memory.local(0, 21), 1);
    EXPECT_TRUE(loop.client.completion().ok());
    const WorkCompletion got = loop.server.completion();
    EXPECT_EQ(got.wr_id, 7U);
    EXPECT_EQ(got.byte_length, 21U);
    EXPECT_EQ(std::memcmp(loop.server.at(4096), "header\0", 7), 0);
    EXPECT_EQ(std::memcmp(loop.server.at(0), ", \0", 3), 0);
    EXPECT_EQ(std::memcmp(loop.server.at(8192), "then the rest", 14), 0);
    const std::vector<RegisteredSpan> too_many(32, loop.server.memory.local(0, 8));
    const Status refused = post(too_many);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << to_string(refused.error());
  };
  Pair own(loop.pd, loop.client.queue, loop.server.queue, {.receive_sge = 3});
  expect_scattered(own,
                   [&](std::span<const RegisteredSpan> to) { return own.b.post_receive(7, to); });
  auto srq = need(SharedReceiveQueue::create(loop.pd, {.length = 8, .sge = 3}));
  Pair shared(loop.pd, loop.client.queue, loop.server.queue, {.shared = &srq});
  expect_scattered(shared, [&](std::span<const RegisteredSpan> to) { return srq.post(7, to); });
}

// Receives of three pieces and of one, in chains longer than one doorbell takes.
TEST(Receives, OfSeveralPiecesArePostedManyAtOnce) {
  constexpr std::size_t kMessages = 40;
  Loopback loop;
  const auto expect_all = [&](Pair& pair, auto post) {
    std::memset(loop.server.at(0), 0, kMessages * 64);
    std::vector<std::array<RegisteredSpan, 3>> pieces(kMessages);
    std::vector<ReceiveRequest> requests;
    for (std::size_t i = 0; i < kMessages; ++i) {
      const RegisteredSpan whole = loop.server.memory.local(i * 64, 64);
      pieces[i] = {whole.subspan(32, 4), whole.subspan(8, 2), whole.subspan(0, 8)};
      if (i % 3 == 0) {
        requests.push_back({.wr_id = i, .buffer = whole});
      } else {
        requests.push_back({.wr_id = i, .buffer = pieces[i]});
      }
    }
    need(post(requests));
    std::memcpy(loop.client.at(0), "0123456789", 10);
    for (std::size_t i = 0; i < kMessages; ++i) {
      send(pair.a, loop.client.memory.local(0, 10), i);
      EXPECT_TRUE(loop.client.completion().ok());
      const WorkCompletion got = loop.server.completion();
      EXPECT_EQ(got.wr_id, i);
      EXPECT_EQ(got.byte_length, 10U);
      const std::byte* const at = loop.server.at(i * 64);
      if (i % 3 == 0) {
        EXPECT_EQ(std::memcmp(at, "0123456789", 10), 0);
      } else {
        EXPECT_EQ(std::memcmp(at + 32, "0123", 4), 0);
        EXPECT_EQ(std::memcmp(at + 8, "45", 2), 0);
        EXPECT_EQ(std::memcmp(at, "6789\0", 5), 0);
      }
    }
  };
  Pair own(loop.pd, loop.client.queue, loop.server.queue, {.receive_sge = 3});
  expect_all(own, [&](std::span<const ReceiveRequest> all) { return own.b.post_receives(all); });
  auto srq = need(SharedReceiveQueue::create(loop.pd, {.length = 64, .sge = 3}));
  Pair shared(loop.pd, loop.client.queue, loop.server.queue, {.shared = &srq});
  expect_all(shared, [&](std::span<const ReceiveRequest> all) {
    std::size_t posted = 0;
    const Status status = srq.post(all, &posted);
    EXPECT_EQ(posted, all.size());
    return status;
  });
}

// Checked mode keeps a record of each receive: the count can rise.
TEST(Receives, ArePostedWithoutAllocation) {
  Loopback loop;
  const std::array<RegisteredSpan, 2> pieces = {loop.server.memory.local(0, 8),
                                                loop.server.memory.local(64, 8)};
  const std::vector<ReceiveRequest> requests(40, {.wr_id = 1, .buffer = pieces});
  Pair own(loop.pd, loop.client.queue, loop.server.queue, {.receive_sge = 2});
  auto srq = need(SharedReceiveQueue::create(loop.pd, {.length = 64, .sge = 2}));
  const std::size_t before = rkv::testing::allocation_count();
  const Status to_own = own.b.post_receives(requests);
  const Status to_shared = srq.post(requests);
  const std::size_t after = rkv::testing::allocation_count();
  need(to_own);
  need(to_shared);
  EXPECT_EQ(after == before, !checked::on()) << after - before;
}

TEST(SharedReceiveQueuesOfADevice, GrowAndKeepTheReceivesInside) {
  SharedReceives loop;
  const auto post = [&](std::uint64_t number) {
    const ReceiveRequest one = {number, loop.server.memory.local(64 * number, 64)};
    return loop.srq.post({&one, 1});
  };
  for (std::uint64_t number = 0; number < 20; ++number)
    need(post(number));
  const SharedReceiveQueueAttributes before = need(loop.srq.query());
  EXPECT_GE(before.length, 32U);
  EXPECT_EQ(before.sge, 1U);
  EXPECT_EQ(before.limit, 0U);

  need(loop.srq.resize(500));
  EXPECT_GE(loop.srq.length(), 500U);
  EXPECT_EQ(need(loop.srq.query()).length, loop.srq.length());
  std::uint64_t number = 20;
  for (; number < 500; ++number)
    need(post(number));
  need(loop.srq.arm_limit(400));
  EXPECT_EQ(need(loop.srq.query()).limit, 400U);

  for (std::uint64_t i = 0; i < 500; ++i) {
    std::memcpy(loop.client.at(0), &i, sizeof i);
    send(loop.pair->a, loop.client.memory.local(0, 8), i);
    ASSERT_TRUE(loop.client.completion().ok());
    const WorkCompletion got = loop.server.completion();
    ASSERT_EQ(got.wr_id, i) << "receives are used in the order of posting";
    ASSERT_EQ(loop.server.word(64 * i), i);
  }
}

TEST(SharedReceiveQueuesOfADevice, AreNotShortenedBelowTheReceivesInside) {
  SharedReceives loop;
  for (std::uint64_t number = 0; number < 20; ++number) {
    const ReceiveRequest one = {number, loop.server.memory.local(64 * number, 64)};
    need(loop.srq.post({&one, 1}));
  }
  const Status resized = loop.srq.resize(4);
  ASSERT_FALSE(resized);
  EXPECT_EQ(resized.error().code, Code::kInvalidArgument) << to_string(resized.error());
  for (std::uint64_t i = 0; i < 20; ++i) {
    send(loop.pair->a, loop.client.memory.local(0, 8), i);
    ASSERT_TRUE(loop.client.completion().ok());
    ASSERT_EQ(loop.server.completion().wr_id, i);
  }
}

TEST(SharedReceiveQueuesOfADevice, RefuseLengthsThatCannotBe) {
  SharedReceives loop;
  for (const std::uint32_t length : {0U, 2'000'000'000U}) {
    const Status resized = loop.srq.resize(length);
    ASSERT_FALSE(resized) << length;
    EXPECT_EQ(resized.error().code, Code::kInvalidArgument) << to_string(resized.error());
    EXPECT_STREQ(resized.error().call, "ibv_modify_srq");
  }
  need(loop.srq.arm_limit(16));
  EXPECT_EQ(loop.srq.resize(8).error().code, Code::kInvalidArgument) << "below the armed limit";
}

TEST(ResizedReceives, AreUnsupportedWhereTheDeviceCannot) {
  SharedReceives loop;
  const Status resized = loop.srq.resize(200);
  if (!need(loop.device.attributes()).iwarp) {
    need(resized);
    EXPECT_GE(loop.srq.length(), 200U);
    return;
  }
  ASSERT_FALSE(resized);
  EXPECT_EQ(resized.error().code, Code::kUnsupported) << to_string(resized.error());
  EXPECT_STREQ(resized.error().call, "ibv_modify_srq");
}

}  // namespace
}  // namespace rkv::rdma
