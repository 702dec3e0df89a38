// The required behaviour of every message transport: one body of tests, run on each transport. A
// `World` has the builders and an address:
//
//   struct World { using Builder = ...; static Builder usual(); static Builder tiny();
//                  static SocketAddress address(); };
//
// tiny() has few and small buffers, so that a few messages fill them.
#pragma once

#include <algorithm>
#include <numeric>

#include "rkv/rdma/message/any_transport.h"
#include "tests/rdma/extras/message/ends.h"
#include "tests/rdma/support/teardown.h"

namespace rkv::rdma::testing {

template <class World>
class TransportScenarios : public ::testing::Test {
 protected:
  using Builder = typename World::Builder;
  using Transport = typename Builder::Transport;
  static Ends<Transport> usual() {
    return connect_ends(World::usual(), World::usual(), World::address());
  }
  static Ends<Transport> tiny() {
    return connect_ends(World::tiny(), World::tiny(), World::address());
  }
};
TYPED_TEST_SUITE_P(TransportScenarios);

TYPED_TEST_P(TransportScenarios, BothEndsKnowTheOther) {
  auto ends = this->usual();
  const std::string client = ends.client.local_address().to_string();
  const std::string server = ends.server.local_address().to_string();
  EXPECT_EQ(ends.client.peer_address().to_string(), server);
  EXPECT_EQ(ends.server.peer_address().to_string(), client);
  EXPECT_NE(client, server);
  EXPECT_EQ(ends.client.max_message(), ends.server.max_message());
  EXPECT_GE(ends.client.receive_window(), 1U);
  EXPECT_EQ(ends.client.sends_in_flight(), 0U);
  EXPECT_FALSE(ends.client.poll_disconnect());
  EXPECT_TRUE(receive(ends.client).empty());
}

TYPED_TEST_P(TransportScenarios, OneMessageEachWay) {
  auto ends = this->usual();
  send(ends.client, ends.server, pattern(1, 100));
  expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), 1);
  send(ends.server, ends.client, pattern(2, 1));
  expect_and_release(ends.client, receive_exactly(ends.client, ends.server, 1), 2);
}

TYPED_TEST_P(TransportScenarios, ManyMessagesArriveInOrder) {
  auto ends = this->tiny();
  constexpr std::uint64_t kCount = 300;
  const std::size_t most = ends.client.max_message();
  const auto length = [&](std::uint64_t i) { return 1 + mix64(i) % most; };
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  until(ends.client, ends.server, [&] {
    need(ends.client.poll_sends());
    while (sent < kCount && need(ends.client.send_copy(pattern(sent, length(sent)))) != 0)
      ++sent;
    for (const Received& one : receive(ends.server)) {
      EXPECT_EQ(one.length, length(received));
      expect_and_release(ends.server, std::span(&one, 1), received++);
    }
    return received == kCount;
  });
  EXPECT_EQ(sent, kCount);
}

TYPED_TEST_P(TransportScenarios, BackPressureIsNoErrorAndEnds) {
  auto ends = this->tiny();
  const std::size_t length = ends.client.max_message() / 2;
  std::uint64_t sent = fill(ends.client, 0, length, 1000);
  EXPECT_GE(sent, 1U);
  EXPECT_LT(sent, 1000U);
  // While the peer takes nothing, the number of sends is limited, and a further attempt is not an
  // error.
  for (int i = 0; i < 1000; ++i) {
    need(ends.client.poll_sends());
    sent += fill(ends.client, sent, length, 1);
  }
  EXPECT_LT(sent, 1000U);
  const auto held = receive_exactly(ends.server, ends.client, 1);
  expect_and_release(ends.server, held, 0);
  std::uint64_t received = 1;
  const std::uint64_t goal = sent + 20;
  until(ends.client, ends.server, [&] {
    need(ends.client.poll_sends());
    sent += fill(ends.client, sent, length, goal - sent);
    const auto some = receive(ends.server);
    expect_and_release(ends.server, some, received);
    received += some.size();
    return received == goal;
  });
}

TYPED_TEST_P(TransportScenarios, ManySmallMessagesInFlight) {
  auto ends = this->usual();
  constexpr std::uint64_t kCount = 2000;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  until(ends.client, ends.server, [&] {
    need(ends.client.poll_sends());
    sent += fill(ends.client, sent, 16, kCount - sent);
    const auto some = receive(ends.server, 256);
    expect_and_release(ends.server, some, received);
    received += some.size();
    return received == kCount;
  });
}

TYPED_TEST_P(TransportScenarios, SendingReapsNothing) {
  auto ends = this->tiny();
  const std::size_t sent = fill(ends.client, 0, 8);
  EXPECT_EQ(ends.client.sends_in_flight(), sent);
  expect_and_release(ends.server, receive_alone(ends.server, sent), 0);
  // The peer has all of them, but only poll_sends() may report that. Refused sends must not have
  // polled.
  EXPECT_EQ(need(ends.client.send_copy(pattern(0, 8))), 0U);
  EXPECT_EQ(ends.client.sends_in_flight(), sent);
  std::size_t reaped = 0;
  until(
      ends.client, ends.server,
      [&] {
        reaped += need(ends.client.poll_sends());
        return reaped == sent;
      },
      Interest::kSent, Interest::kNone);
  EXPECT_EQ(ends.client.sends_in_flight(), 0U);
}

TYPED_TEST_P(TransportScenarios, MessagesThatDoNotFitIntoTheAnswerAreKept) {
  auto ends = this->usual();
  for (std::uint64_t i = 0; i < 5; ++i)
    send(ends.client, ends.server, pattern(i, 40));
  flush(ends.client, ends.server);
  std::uint64_t next = 0;
  std::vector<std::size_t> portions;
  until(ends.server, ends.client, [&] {
    const auto some = receive(ends.server, 2);
    if (!some.empty()) portions.push_back(some.size());
    expect_and_release(ends.server, some, next);
    next += some.size();
    return next == 5;
  });
  EXPECT_EQ(std::accumulate(portions.begin(), portions.end(), std::size_t{0}), 5U);
  EXPECT_TRUE(std::ranges::all_of(portions, [](std::size_t n) { return n <= 2; }));
  EXPECT_TRUE(receive(ends.server).empty());
}

TYPED_TEST_P(TransportScenarios, MessagesAreReleasedInAnyOrder) {
  auto ends = this->tiny();
  Random random(7);
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::vector<std::pair<Received, std::uint64_t>> held;
  constexpr std::uint64_t kCount = 400;
  // Returns true if a message arrived.
  const auto step = [&] {
    need(ends.client.poll_sends());
    while (sent < kCount && fill(ends.client, sent, 1 + mix64(sent) % 200, 1) != 0)
      ++sent;
    const std::uint64_t before = received;
    for (const Received& one : receive(ends.server, 3))
      held.emplace_back(one, received++);
    // Releases half of them, in any order; the others keep their contents until no more messages
    // arrive.
    const std::size_t leave = received == before ? 0 : held.size() / 2;
    while (held.size() > leave) {
      const std::size_t i = random.below(held.size());
      EXPECT_TRUE(is_pattern(ends.server.view(held[i].first.index), held[i].second));
      need(ends.server.release(held[i].first.index));
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return received != before;
  };
  until(ends.client, ends.server, [&] {
    while (step()) {
    }
    return received == kCount;
  });
}

TYPED_TEST_P(TransportScenarios, AMessageThatIsHeldStaysWhileOthersPass) {
  auto ends = this->tiny();
  send(ends.client, ends.server, pattern(99, 64));
  const auto held = receive_exactly(ends.server, ends.client, 1);
  const std::size_t others = ends.server.receive_window() - 1;
  for (std::uint64_t i = 0; i < others; ++i) {
    send(ends.client, ends.server, pattern(i, 32));
    expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), i);
  }
  EXPECT_TRUE(is_pattern(ends.server.view(held[0].index), 99));
  need(ends.server.release(held[0].index));
}

TYPED_TEST_P(TransportScenarios, PiecesAreGathered) {
  auto ends = this->usual();
  const auto whole = pattern(5, 300);
  const std::array<Bytes, 4> pieces = {Bytes(whole).first(100), Bytes(),
                                       Bytes(whole).subspan(100, 1), Bytes(whole).subspan(101)};
  until(ends.client, ends.server, [&] { return need(ends.client.send_gather(pieces)) == 300; });
  expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), 5);
}

TYPED_TEST_P(TransportScenarios, LongMessagesAreCutAndEmptyOnesRefused) {
  auto ends = this->tiny();
  const std::size_t most = ends.client.max_message();
  EXPECT_EQ(need(ends.client.send_copy(pattern(3, most + 1000))), most);
  const auto got = receive_exactly(ends.server, ends.client, 1);
  EXPECT_EQ(got[0].length, most);
  expect_and_release(ends.server, got, 3);
  flush(ends.client, ends.server);
  const auto empty = ends.client.send_copy({});
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Code::kInvalidArgument);
  send(ends.client, ends.server, pattern(4, 10));  // the connection still works
  expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), 4);
}

TYPED_TEST_P(TransportScenarios, WhatCameBeforeTheEndIsDelivered) {
  auto ends = this->usual();
  for (std::uint64_t i = 0; i < 3; ++i)
    send(ends.client, ends.server, pattern(i, 500));
  flush(ends.client, ends.server);
  need(ends.client.disconnect());
  until(
      ends.server, ends.client, [&] { return ends.server.poll_disconnect(); }, Interest::kNone,
      Interest::kNone);
  std::uint64_t delivered = 0;
  for (auto got = receive(ends.server); !got.empty(); got = receive(ends.server)) {
    expect_and_release(ends.server, got, delivered);
    delivered += got.size();
  }
  EXPECT_EQ(delivered, 3U);
}

TYPED_TEST_P(TransportScenarios, DisconnectingTwiceIsNoErrorAndSendingAfterwardsIs) {
  auto ends = this->usual();
  need(ends.client.disconnect());
  need(ends.client.disconnect());
  EXPECT_TRUE(ends.client.poll_disconnect());
  const auto sent = ends.client.send_copy(pattern(0, 8));
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kDisconnected);
  EXPECT_TRUE(receive(ends.client).empty());
  until(
      ends.server, ends.client, [&] { return ends.server.poll_disconnect(); }, Interest::kNone,
      Interest::kNone);
  const auto answered = ends.server.send_copy(pattern(0, 8));
  ASSERT_FALSE(answered);
  EXPECT_EQ(answered.error().code, Code::kDisconnected);
  need(ends.server.disconnect());
}

// Each object is destroyed after those that depend on it, else its destructor reports an error.
TYPED_TEST_P(TransportScenarios, EndsMayBeDroppedWithEverythingUnderWay) {
  const TeardownErrors errors;
  for (const bool client_first : {true, false}) {
    auto ends = this->tiny();
    const std::size_t sent = fill(ends.client, 0, 100);
    fill(ends.server, 0, 100);
    const auto held = receive_exactly(ends.server, ends.client, std::min<std::size_t>(sent, 2));
    EXPECT_FALSE(held.empty());
    std::optional client(std::move(ends.client));
    std::optional server(std::move(ends.server));
    if (client_first) client.reset();
    server.reset();
    client.reset();
  }
  EXPECT_EQ(errors.count(), 0);
}

TYPED_TEST_P(TransportScenarios, SeveralConnectionsOfOneListener) {
  const auto builder = TypeParam::usual();
  auto listener = need(builder.listen(TypeParam::address()));
  constexpr std::size_t kCount = 3;
  using Made = typename TypeParam::Builder::Transport;
  std::vector<std::future<Result<Made>>> dialled;
  for (std::size_t i = 0; i < kCount; ++i) {
    dialled.push_back(std::async(std::launch::async, [&builder, to = listener.address()] {
      return builder.connect(to, soon(kLongPatienceMs));
    }));
  }
  std::vector<Made> servers;
  for (std::size_t i = 0; i < kCount; ++i)
    servers.push_back(need(builder.accept(listener, soon(kLongPatienceMs))));
  std::vector<Made> clients;
  for (auto& one : dialled)
    clients.push_back(need(one.get()));
  for (std::size_t i = 0; i < kCount; ++i)
    EXPECT_EQ(need(clients[i].send_copy(pattern(i, 64 + i))), 64 + i);
  // It is unknown which client each server got: each client identifies itself by its length.
  std::size_t seen = 0;
  for (auto& server : servers) {
    const auto got = receive_exactly(server, clients[0], 1);
    seen += got[0].length - 64;
    expect_and_release(server, got, got[0].length - 64);
  }
  EXPECT_EQ(seen, 0U + 1U + 2U);
}

TYPED_TEST_P(TransportScenarios, ASleeperIsWoken) {
  auto ends = this->usual();
  EXPECT_TRUE(need(ends.server.arm(kAnything)));
  send(ends.client, ends.server, pattern(1, 10));
  ASSERT_TRUE(need(wait_readable(ends.server.fd(), soon())));
  // There is an event for a waiter for messages, and none for a waiter for space.
  until(
      ends.server, ends.client, [&] { return !need(ends.server.arm(Interest::kMessages)); },
      Interest::kNone, Interest::kNone);
  EXPECT_TRUE(need(ends.server.arm(Interest::kRoom)));
  expect_and_release(ends.server, receive(ends.server), 1);
  EXPECT_TRUE(need(ends.server.arm(kAnything)));
  need(ends.client.disconnect());
  // Another event may come first, such as the completion of this side's key or credit.
  const Deadline deadline = soon();
  do {
    ASSERT_TRUE(need(wait_readable(ends.server.fd(), deadline)));
  } while (!ends.server.poll_disconnect() && need(ends.server.arm(Interest::kNone)));
  EXPECT_TRUE(ends.server.poll_disconnect());
  EXPECT_FALSE(need(ends.server.arm(Interest::kNone)));  // the end always counts
}

TYPED_TEST_P(TransportScenarios, RoomWakesWhoWasRefused) {
  auto ends = this->tiny();
  const std::size_t length = ends.client.max_message();
  std::uint64_t sent = fill(ends.client, 0, length);
  std::uint64_t received = 0;
  // Ten times the whole window: each round sleeps until there is space, and never spins on a
  // message.
  const std::uint64_t goal = sent + 10 * ends.server.receive_window();
  until(
      ends.client, ends.server,
      [&] {
        need(ends.client.poll_sends());
        sent += fill(ends.client, sent, length, goal - sent);
        const auto some = receive(ends.server, 1);
        expect_and_release(ends.server, some, received);
        received += some.size();
        return received == goal;
      },
      Interest::kRoom, Interest::kMessages);
}

// Both directions at once, all sizes, messages held for a while and released out of order, several
// times through every buffer. Each message arrives unchanged.
TYPED_TEST_P(TransportScenarios, ALongRandomTalk) {
  auto ends = this->tiny();
  struct Talker {
    typename TypeParam::Builder::Transport& self;
    std::uint64_t base;
    std::uint64_t peer_base;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::vector<std::pair<Received, std::uint64_t>> held;
  };
  constexpr std::uint64_t kCount = 400;
  std::array<Talker, 2> talkers = {
      {{.self = ends.client, .base = 0, .peer_base = 1000000, .held = {}},
       {.self = ends.server, .base = 1000000, .peer_base = 0, .held = {}}}};
  Random random(11);
  const auto step = [&](Talker& one) {
    need(one.self.poll_sends());
    for (std::uint64_t burst = random.below(4); burst != 0 && one.sent < kCount; --burst) {
      const std::uint64_t number = one.base + one.sent;
      const std::size_t length = 1 + mix64(number) % one.self.max_message();
      one.sent += fill(one.self, number, length, 1);
    }
    for (const Received& got : receive(one.self, 1 + random.below(3)))
      one.held.emplace_back(got, one.peer_base + one.received++);
    const bool all = one.received == kCount || random.below(3) == 0;
    while (!one.held.empty() && (all || random.below(2) == 0)) {
      const std::size_t i = random.below(one.held.size());
      EXPECT_TRUE(is_pattern(one.self.view(one.held[i].first.index), one.held[i].second));
      need(one.self.release(one.held[i].first.index));
      one.held.erase(one.held.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return one.received == kCount && one.sent == kCount;
  };
  const Deadline deadline = soon(kLongPatienceMs);
  while (!(step(talkers[0]) & step(talkers[1])))
    ASSERT_FALSE(deadline.passed());
}

TYPED_TEST_P(TransportScenarios, NobodyWhoListensNobodyWhoAnswersNobodyWhoCalls) {
  const auto builder = TypeParam::usual();
  std::optional listener(need(builder.listen(TypeParam::address())));
  const auto nobody = builder.accept(*listener, soon(50));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, Code::kTimeout);
  const SocketAddress to = listener->address();
  const auto silent = builder.connect(to, soon(100));
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, Code::kTimeout);
  listener.reset();
  const auto closed = builder.connect(to, soon());
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, Code::kUnreachable);
}

TYPED_TEST_P(TransportScenarios, AnyTransportHoldsIt) {
  auto ends = this->usual();
  AnyMessageTransport client(std::move(ends.client));
  AnyMessageTransport server(std::move(ends.server));
  send(client, server, pattern(1, 50));
  expect_and_release(server, receive_exactly(server, client, 1), 1);
  flush(client, server);
  EXPECT_EQ(client.peer_address().port(), server.local_address().port());
  EXPECT_EQ(client.max_message(), server.max_message());
  EXPECT_EQ(client.receive_window(), server.receive_window());
  need(client.disconnect());
  until(server, client, [&] { return server.poll_disconnect(); }, Interest::kNone, Interest::kNone);
}

// All calls on a moved-from transport abort; it may be assigned to again, and destroyed.
template <class T>
void expect_moved_from(T& gone) {
  std::array<Received, 1> got;
  const auto bytes = pattern(1, 8);
  const std::array<Bytes, 1> pieces = {Bytes(bytes)};
  const char* const says = "moved from";
  EXPECT_DEATH(std::ignore = gone.send_copy(bytes), says);
  EXPECT_DEATH(std::ignore = gone.send_gather(pieces), says);
  EXPECT_DEATH(std::ignore = gone.poll_sends(), says);
  EXPECT_DEATH(std::ignore = gone.poll_receives(got), says);
  EXPECT_DEATH(std::ignore = gone.view(0), says);
  EXPECT_DEATH(std::ignore = gone.release(0), says);
  EXPECT_DEATH(std::ignore = gone.poll_disconnect(), says);
  EXPECT_DEATH(std::ignore = gone.disconnect(), says);
  EXPECT_DEATH(std::ignore = gone.local_address(), says);
  EXPECT_DEATH(std::ignore = gone.peer_address(), says);
  EXPECT_DEATH(std::ignore = gone.max_message(), says);
  EXPECT_DEATH(std::ignore = gone.sends_in_flight(), says);
  EXPECT_DEATH(std::ignore = gone.receive_window(), says);
  EXPECT_DEATH(std::ignore = gone.fd(), says);
  EXPECT_DEATH(std::ignore = gone.arm(Interest::kMessages), says);
}

TYPED_TEST_P(TransportScenarios, WhatWasMovedFromSaysSo) {
  auto ends = this->usual();
  auto here = std::move(ends.client);
  expect_moved_from(ends.client);  // NOLINT(bugprone-use-after-move)
  ends.client = std::move(here);
  send(ends.client, ends.server, pattern(1, 100));
  expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), 1);
}

REGISTER_TYPED_TEST_SUITE_P(TransportScenarios, BothEndsKnowTheOther, OneMessageEachWay,
                            ManyMessagesArriveInOrder, BackPressureIsNoErrorAndEnds,
                            ManySmallMessagesInFlight, SendingReapsNothing,
                            MessagesThatDoNotFitIntoTheAnswerAreKept, MessagesAreReleasedInAnyOrder,
                            AMessageThatIsHeldStaysWhileOthersPass, PiecesAreGathered,
                            LongMessagesAreCutAndEmptyOnesRefused, WhatCameBeforeTheEndIsDelivered,
                            DisconnectingTwiceIsNoErrorAndSendingAfterwardsIs,
                            EndsMayBeDroppedWithEverythingUnderWay, SeveralConnectionsOfOneListener,
                            ASleeperIsWoken, RoomWakesWhoWasRefused, ALongRandomTalk,
                            WhatWasMovedFromSaysSo, NobodyWhoListensNobodyWhoAnswersNobodyWhoCalls,
                            AnyTransportHoldsIt);

}  // namespace rkv::rdma::testing
