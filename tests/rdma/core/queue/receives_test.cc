// Receives on real verbs: of several pieces, and a shared receive queue that refills itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "rkv/rdma/srq_refill.h"
#include "rkv/rdma/supervisor.h"
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

TEST(SharedReceiveRefill, KeepsTheQueueFilledByEventAlone) {
  SharedReceives loop;
  SrqRefill keeper(loop.srq, {.low = 8, .full = 24});
  std::uint64_t supplied = 0;
  const auto supply = [&](std::span<ReceiveRequest> requests) {
    for (ReceiveRequest& request : requests)
      request = {supplied++, loop.server.memory.local(0, 64)};
    return requests.size();
  };
  EXPECT_EQ(need(keeper.refill(supply)), 24U);
  EXPECT_TRUE(keeper.armed());
  Supervisor supervisor(loop.device);
  int warnings = 0;
  const Watch watch = supervisor.watch(loop.srq.raw(), [&](const AsyncEvent& event) {
    ASSERT_TRUE(keeper.is_mine(event));
    ++warnings;
    EXPECT_GT(need(keeper.refill(supply)), 0U);
  });
  for (int i = 0; i < 100; ++i) {
    send(loop.pair->a, loop.client.memory.local(0, 8), 1);
    ASSERT_TRUE(loop.client.completion().ok());
    ASSERT_TRUE(loop.server.completion().ok());
    keeper.consumed(1);
    // The event arrives when the count falls below the limit; until then the test does not wait.
    if (keeper.is_low()) {
      ASSERT_TRUE(need(wait_readable(supervisor.fd(), soon())));
    }
    need(supervisor.run());
  }
  EXPECT_GE(warnings, 4);
  EXPECT_EQ(keeper.posted(), supplied - 100);
}

TEST(SharedReceiveRefill, DoesNotArmWhileBuffersAreShort) {
  SharedReceives loop;
  SrqRefill keeper(loop.srq, {.low = 8, .full = 24});
  std::size_t buffers = 5;
  const auto supply = [&](std::span<ReceiveRequest> requests) {
    const std::size_t count = std::min(buffers, requests.size());
    for (std::size_t i = 0; i < count; ++i)
      requests[i] = {i, loop.server.memory.local(0, 64)};
    buffers -= count;
    return count;
  };
  EXPECT_EQ(need(keeper.refill(supply)), 5U);
  EXPECT_TRUE(keeper.is_low());
  EXPECT_FALSE(keeper.armed());
  EXPECT_EQ(need(loop.srq.query()).limit, 0U);
  buffers = 3;
  EXPECT_EQ(need(keeper.refill(supply)), 3U);
  EXPECT_TRUE(keeper.armed());
  EXPECT_EQ(need(loop.srq.query()).limit, 8U);
}

// Other receives fill the queue, so that a part of a refill is refused.
TEST(SharedReceiveRefill, KeepsWhatTheDeviceRefusedAndPostsItOnce) {
  SharedReceives loop;
  constexpr std::uint64_t kOthers = 1000;
  std::uint32_t others = 0;
  const auto post_another = [&] {
    const ReceiveRequest one = {kOthers + others, loop.server.memory.local(0, 64)};
    return loop.srq.post({&one, 1}).has_value();
  };
  while (post_another())  // only the device knows its real length
    ++others;
  std::vector<std::uint64_t> arrived;
  const auto take = [&](std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      send(loop.pair->a, loop.client.memory.local(0, 8), 1);
      ASSERT_TRUE(loop.client.completion().ok());
      const WorkCompletion one = loop.server.completion();
      ASSERT_TRUE(one.ok());
      if (one.wr_id < kOthers) arrived.push_back(one.wr_id);
    }
  };
  take(12);
  SrqRefill keeper(loop.srq, {.low = 8, .full = 30});
  std::uint64_t supplied = 0;
  const auto supply = [&](std::span<ReceiveRequest> requests) {
    for (ReceiveRequest& request : requests)
      request = {supplied++, loop.server.memory.local(0, 64)};
    return requests.size();
  };
  const auto refused = keeper.refill(supply);
  ASSERT_FALSE(refused);
  EXPECT_STREQ(refused.error().call, "ibv_post_srq_recv");
  EXPECT_EQ(supplied, 30U);
  EXPECT_EQ(keeper.posted(), 12U);
  ASSERT_EQ(keeper.held().size(), 18U);
  EXPECT_EQ(keeper.held().front().wr_id, 12U);
  EXPECT_FALSE(keeper.refill(supply));  // still full: no new buffers are requested
  EXPECT_EQ(supplied, 30U);
  EXPECT_EQ(keeper.posted(), 12U);
  take(others - 12);
  EXPECT_EQ(need(keeper.refill(supply)), 18U);
  EXPECT_EQ(supplied, 30U);
  EXPECT_TRUE(keeper.held().empty());
  take(30);
  std::vector<std::uint64_t> each(30);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(arrived, each);
}

}  // namespace
}  // namespace rkv::rdma
