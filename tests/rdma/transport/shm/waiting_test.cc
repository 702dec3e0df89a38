// Sleeping and waking: every sleep below is ended by the other side and by nothing else.
#include <algorithm>

#include "tests/rdma/transport/shm/harness.h"

namespace rkv::rdma::shm {
namespace {

using contract::Link;
using contract::LinkOptions;
using contract::need;
using Kind = Completion::Kind;

// Shorter than the patience of a wait: one lost wake-up is too long.
constexpr Nanos kNoSleepThrough = contract::kPatienceMs * kNanosPerMs * 3 / 4;

class ShmWaiting : public ::testing::TestWithParam<PollMode> {
 protected:
  ShmHarness harness_;
  SteadyClock clock_;
};

TEST_P(ShmWaiting, EveryMessageWakesItsReceiver) {
  constexpr std::size_t kRounds = 1000;
  LinkOptions options;
  options.queue.poll = GetParam();
  Link link(harness_, options);
  // The bound is for a round, not for all: two threads that spin on one processor take turns of
  // milliseconds.
  Nanos longest = 0;
  // Neither goes on before it has heard from the other.
  harness_.run_both(
      [&] {
        const Operation reply = Operation::send(link.server.piece(0, 8), 0, 1);
        for (std::size_t i = 1; i <= kRounds; ++i) {
          ASSERT_TRUE(link.server.until([&] { return link.server.count(Kind::kReceive) == 1; }));
          link.server.seen.clear();
          EXPECT_EQ(need(link.passive->post(std::span(&reply, 1))), 1U);
        }
      },
      [&] {
        for (std::size_t i = 1; i <= kRounds; ++i) {
          const Nanos start = clock_.now();
          link.post(link.send(0, 8, i));
          ASSERT_TRUE(link.client.until([&] { return link.client.count(Kind::kReceive) == 1; }));
          link.client.seen.clear();
          longest = std::max(longest, clock_.now() - start);
        }
      });
  EXPECT_LT(longest, kNoSleepThrough);
}

// A sender whose ring is full sleeps until the receiver has made room.
TEST_P(ShmWaiting, RoomWakesTheSender) {
  constexpr std::size_t kMessages = 2000;
  LinkOptions options;
  options.queue = {.receive_buffers = 4, .poll = GetParam()};
  options.client.sends_in_flight = 4;
  Link link(harness_, options);
  const Nanos start = clock_.now();
  harness_.run_both(
      [&] {
        EXPECT_TRUE(
            link.server.until([&] { return link.server.count(Kind::kReceive) >= kMessages; }));
      },
      [&] {
        std::size_t sent = 0;
        Operation send = link.send(0, 4096, 1);
        send.signaled = false;  // its slot comes back all the same
        ASSERT_TRUE(link.client.until([&] {
          while (sent < kMessages && need(link.active->post(std::span(&send, 1))) == 1)
            ++sent;
          return sent == kMessages;
        }));
        // Messages that are left in the sender move only when it polls.
        const Operation last = link.send(0, 1, 2);
        bool posted = false;
        ASSERT_TRUE(link.client.until([&] {
          posted = posted || need(link.active->post(std::span(&last, 1))) == 1;
          return link.client.count(Kind::kSend) == 1;
        }));
      });
  EXPECT_LT(clock_.now() - start, kNoSleepThrough);
}

// Messages that wait for room keep their order, their inline bytes, and the READs behind them.
TEST_P(ShmWaiting, WhatIsHeldBackKeepsItsOrderAndItsBytes) {
  LinkOptions options;
  options.queue = {.receive_buffers = 2, .poll = GetParam()};
  Link link(harness_, options);
  std::vector<std::uint64_t> contexts;
  std::uint64_t text[32] = {};  // reused at once: these messages are inline
  constexpr std::uint64_t kMessages = 240;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    std::ranges::fill(text, i);
    Operation send = Operation::send({reinterpret_cast<std::byte*>(text), sizeof text}, 0, i);
    send.inline_data = true;
    link.post(send);
  }
  link.post(link.read(0, 8, kMessages));
  EXPECT_LT(link.client.poll_once(), kMessages) << "all of it fitted: nothing is tested";
  ASSERT_TRUE(link.server.until([&] {
    link.client.poll_once();
    return link.server.count(Kind::kReceive) >= kMessages;
  }));
  ASSERT_TRUE(link.client.until_seen(kMessages + 1));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_EQ(link.client.seen[i].context, i);
    const std::string& message = link.server.seen[i].message;
    ASSERT_EQ(message.size(), sizeof text);
    EXPECT_EQ(load_le<std::uint64_t>(as_bytes(message).data()), i);
    EXPECT_EQ(load_le<std::uint64_t>(as_bytes(message).data() + sizeof text - 8), i);
  }
  EXPECT_EQ(link.client.seen.back().kind, Kind::kRead);
}

// Messages that were published before the end are delivered, even if there is no buffer for them at
// once.
TEST_P(ShmWaiting, MessagesBeforeTheEndWaitForBuffers) {
  LinkOptions options;
  options.queue = {.receive_buffers = 2, .poll = GetParam()};
  Link link(harness_, options);
  for (std::uint64_t i = 0; i < 20; ++i)
    link.post(link.send(0, 64, i));
  ASSERT_TRUE(link.client.until_seen(20));
  link.active.reset();
  std::vector<std::uint32_t> held;
  std::size_t messages = 0;
  bool ended = false;
  const Deadline end = link.server.soon();
  while (!ended && !end.passed()) {
    Completion some[8];
    const std::size_t count = link.server.queue->poll(some);
    for (const Completion& one : std::span(some, count)) {
      ended = one.kind == Kind::kDisconnected;
      if (ended) break;
      ++messages;
      held.push_back(one.receive_buffer);
    }
    EXPECT_LE(held.size(), 2U);
    // With all buffers held there is nothing to wait for.
    if (held.size() < 2) link.server.queue->wait(end);
    link.server.queue->release(held);
    held.clear();
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(messages, 20U);
}

INSTANTIATE_TEST_SUITE_P(Modes, ShmWaiting,
                         ::testing::Values(PollMode::kAdaptive, PollMode::kBusy, PollMode::kEvent));

}  // namespace
}  // namespace rkv::rdma::shm
