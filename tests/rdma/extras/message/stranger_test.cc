// Peers that do not follow the protocol, on real verbs: their input ends their own connection with
// a typed error, after earlier messages were delivered. Also the behaviour of rings when they are
// short of space.
#include "tests/rdma/extras/message/stranger.h"

#include "rdma/extras/message/ring.h"
#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/send_receive.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

TEST(Strangers, ABadTokenIsRefusedAndBothSidesSayWhy) {
  const CreditRingBuilder builder{.options = kRing};
  CmListener listener = need(builder.listen(device_address()));
  const auto good = detail::encode({.kind = TransportKind::kCreditRing,
                                    .max_message = 100,
                                    .slots = 4,
                                    .ring = {.address = 4096, .length = 4096, .rkey = 1}});
  for (const std::size_t changed : {std::size_t{0}, std::size_t{4}, std::size_t{20}}) {
    auto bad = good;
    bad[changed] ^= std::byte{0xFF};
    PrivateData reason;
    auto dialled = std::async(std::launch::async, [&] {
      Connector connector = need(Connector::resolve(listener.address(), {}, soon()));
      Stranger stranger(connector.device());
      return std::move(connector).connect(stranger.make(), {}, bad, soon(), &reason).error();
    });
    const auto accepted = builder.accept(listener, soon());
    const Code wanted = changed == 4 ? Code::kVersionMismatch : Code::kCorrupt;
    ASSERT_FALSE(accepted);
    EXPECT_EQ(accepted.error().code, wanted);
    const Error rejected = dialled.get();  // carries the reason
    EXPECT_EQ(detail::understand_refusal(rejected, reason.bytes()).code, wanted);
  }
}

TEST(Strangers, AnotherKindOfTransportIsRefused) {
  const CreditRingBuilder ring{.options = kRing};
  const SendReceiveBuilder plain;
  CmListener listener = need(ring.listen(device_address()));
  auto dialled = std::async(std::launch::async,
                            [&] { return plain.connect(listener.address(), soon()).error(); });
  const auto accepted = ring.accept(listener, soon());
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, Code::kVersionMismatch);
  EXPECT_EQ(dialled.get().code, Code::kVersionMismatch);
}

TEST(Strangers, AServerThatAnswersWithNonsenseIsLeft) {
  CmListener listener = need(CmListener::listen(device_address()));
  auto dialled = std::async(std::launch::async, [&] {
    return CreditRingBuilder{.options = kRing}.connect(listener.address(), soon()).error();
  });
  ConnectRequest request = need(listener.wait(soon()));
  Stranger stranger(request.device());
  auto link = need(std::move(request).accept(stranger.make(), {}, as_bytes("welcome")));
  EXPECT_EQ(dialled.get().code, Code::kCorrupt);
}

TEST(Strangers, ADoorbellThatCannotBeEndsTheConnectionAfterWhatCameBefore) {
  Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
  visit.stranger->ring(0, 108, 108);
  visit.stranger->ring(112, 16, 16);  // states offset 0, but its place is 112
  std::size_t delivered = 0;
  const Error error = failure_of(*visit.server, &delivered);
  EXPECT_EQ(delivered, 1U);
  EXPECT_EQ(error.code, Code::kCorrupt) << to_string(error);
  EXPECT_NE(to_string(error).find("record"), std::string::npos);
}

TEST(Strangers, ALieBeforeTheEndIsNoCleanEnd) {
  Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
  visit.stranger->ring(0, 108, 108);
  visit.stranger->ring(112, 16, 16);
  need(visit.stranger->link->disconnect());
  const Deadline deadline = soon();
  while (!visit.server->poll_disconnect())
    ASSERT_FALSE(deadline.passed());
  EXPECT_EQ(receive(*visit.server).size(), 1U);
  expect_corrupt(*visit.server, "record");
}

// Whether the failure is seen before the end or after it: the end is not clean.
TEST(Strangers, AMessageThatDidNotFitBeforeTheEndIsNoCleanEnd) {
  for (const bool waits : {true, false}) {
    Visit<SendReceiveBuilder> visit(TransportKind::kSendReceive,
                                    {.options = {.message_bytes = 100, .receive_buffers = 2}});
    visit.stranger->say(pattern(1, 100));
    visit.stranger->say(pattern(2, 101));
    need(visit.stranger->link->disconnect());
    const Deadline deadline = soon();
    while (waits && !visit.server->poll_disconnect())
      ASSERT_FALSE(deadline.passed());
    std::size_t delivered = 0;
    const Error error = failure_of(*visit.server, &delivered);
    EXPECT_EQ(delivered, 1U);
    EXPECT_STREQ(error.call, "receive") << to_string(error);
    const auto again = failure_of(*visit.server);
    EXPECT_STREQ(again.call, "receive") << "reported once, true ever after";
  }
}

TEST(Strangers, WhoOnlyLeavesHasEndedCleanly) {
  Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
  visit.stranger->ring(0, 108, 108);
  need(visit.stranger->link->disconnect());
  const Deadline deadline = soon();
  while (!visit.server->poll_disconnect())
    ASSERT_FALSE(deadline.passed());
  EXPECT_EQ(receive(*visit.server).size(), 1U);
  EXPECT_EQ(receive(*visit.server).size(), 0U);  // no error
}

TEST(Strangers, ImmediatesOutOfRangeEndTheConnection) {
  for (const std::uint32_t immediate : {0U, 8U, 1025U, 0xFFFFU, 0xFFFF'FFFFU, 0x0001'0010U}) {
    Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
    visit.stranger->ring(0, 16, immediate);
    expect_corrupt(*visit.server, "record");
  }
}

TEST(Strangers, CreditsAndRecordsAreNeverTakenForEachOther) {
  const std::array<std::byte, 8> nothing{};
  Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
  visit.stranger->say(nothing);  // nothing is freed: valid
  visit.stranger->say(Bytes(nothing).first(4));
  expect_corrupt(*visit.server, "neither");
}

TEST(Strangers, WhoFreesWhatWasNeverSentIsLeft) {
  {
    Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
    std::array<std::byte, 8> credit{};
    store_le<std::uint32_t>(credit.data(), 64);
    visit.stranger->say(credit);
    expect_corrupt(*visit.server, "freed messages");
  }
  {
    Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
    visit.stranger->ring(0, 16, 16, std::uint64_t{1} << 32 | 64);  // in a record's header
    expect_corrupt(*visit.server, "freed messages");
  }
}

// The peer has no receives, so no request completes: the most that is possible is outstanding
// (RINGTRANS-1).
TEST(Strangers, WhoTakesNoCreditsHoldsUpNothingElse) {
  Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
  for (std::uint32_t i = 0; i < 40; ++i) {
    visit.stranger->ring(16 * i, 16, 2 * i << 16 | 16);
    const auto got = receive_alone(*visit.server, 1);
    ASSERT_EQ(got.size(), 1U);
    need(visit.server->release(got[0].index));
  }
  EXPECT_EQ(visit.server->counters().credits_sent, 8U);  // of 40 that would be due
  EXPECT_EQ(fill(*visit.server, 0, 16), kRing.slots);
  EXPECT_FALSE(visit.server->poll_disconnect());
  EXPECT_EQ(need(visit.server->poll_sends()), 0U);
}

// Each failed request names its own operation: a credit is a SEND, a message a WRITE.
TEST(Strangers, WhoDiesIsReportedByTheOperationThatFailed) {
  for (const bool credit : {true, false}) {
    Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, {.options = kRing});
    // The stranger dies without a message to the server, and before the operation: else this may
    // have been acknowledged.
    const auto die = [&] { need(visit.stranger->link->qp.to_error()); };
    if (credit) {
      visit.stranger->ring(0, 16, 16);
      const auto got = receive_alone(*visit.server, 1);
      ASSERT_EQ(got.size(), 1U);
      die();
      need(visit.server->release(got[0].index));
      EXPECT_EQ(visit.server->counters().credits_sent, 1U);
    } else {
      die();
      EXPECT_EQ(need(visit.server->send_copy(pattern(1, 16))), 16U);
    }
    const Error error = failure_of(*visit.server);
    EXPECT_STREQ(error.call, credit ? "SEND" : "RDMA WRITE") << to_string(error);
  }
}

TEST(Strangers, AMessageOfNoBytesIsNone) {
  Visit<SendReceiveBuilder> visit(TransportKind::kSendReceive, {});
  visit.stranger->say(pattern(1, 10));
  visit.stranger->say({});
  std::size_t delivered = 0;
  const Error error = failure_of(*visit.server, &delivered);
  EXPECT_EQ(delivered, 1U);
  EXPECT_EQ(error.code, Code::kCorrupt) << to_string(error);
}

// The peer has no receives, so none of these can have arrived.
TEST(Strangers, SendsThatWereLostAreNotTold) {
  const auto lose = [](auto& transport) {
    EXPECT_EQ(fill(transport, 0, 16, 2), 2U);
    need(transport.disconnect());
    std::size_t told = 0;
    const Deadline deadline = soon();
    while (transport.sends_in_flight() != 0) {
      told += need(transport.poll_sends());
      ASSERT_FALSE(deadline.passed());
    }
    EXPECT_EQ(told, 0U);
  };
  Visit<CreditRingBuilder> ring(TransportKind::kCreditRing, {.options = kRing});
  lose(*ring.server);
  Visit<SendReceiveBuilder> plain(TransportKind::kSendReceive, {});
  lose(*plain.server);
}

TEST(Strangers, AMessageLongerThanTheBufferEndsTheConnection) {
  Visit<SendReceiveBuilder> visit(TransportKind::kSendReceive,
                                  {.options = {.message_bytes = 100, .receive_buffers = 2}});
  visit.stranger->say(pattern(1, 100));
  visit.stranger->say(pattern(2, 101));
  std::size_t delivered = 0;
  const Error error = failure_of(*visit.server, &delivered);
  EXPECT_EQ(delivered, 1U);
  EXPECT_STREQ(error.call, "receive") << to_string(error);
}

TEST(MessageOptions, OutOfRangeAreNamedBeforeAnythingIsDone) {
  const SocketAddress nowhere = device_address();
  const auto expect_named = [](const auto& made, const char* text) {
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().code, Code::kInvalidArgument);
    EXPECT_NE(to_string(made.error()).find(text), std::string::npos) << to_string(made.error());
  };
  const auto plain = [&](const SendReceiveOptions& options, const char* text) {
    expect_named(SendReceiveBuilder{options}.connect(nowhere, soon()), text);
  };
  plain({.message_bytes = 0}, "message_bytes is from 1 to 16777216");
  plain({.message_bytes = (1U << 24) + 1}, "message_bytes is from 1 to 16777216");
  plain({.send_buffers = 0}, "send_buffers is from 1 to 8192");
  plain({.send_buffers = 8193}, "send_buffers is from 1 to 8192");
  plain({.receive_buffers = 0}, "receive_buffers is from 1 to 8192");
  plain({.receive_buffers = 8193}, "receive_buffers is from 1 to 8192");
  plain({.inline_bytes = 513}, "inline_bytes is from 0 to 512");
  const auto ring = [&](const RingOptions& options, const char* text) {
    expect_named(CreditRingBuilder{options}.connect(nowhere, soon()), text);
  };
  ring({.ring_bytes = 5000}, "ring_bytes is a power of two from 4096");
  ring({.ring_bytes = 2048}, "ring_bytes is a power of two from 4096");
  ring({.slots = 3}, "slots");
  ring({.slots = 16384}, "slots");
}

TEST(MessageOptions, TheSmallerOfBothSidesIsUsed) {
  const auto ends = connect_ends(
      CreditRingBuilder{.options = {.ring_bytes = 8192, .slots = 64, .message_bytes = 900}},
      CreditRingBuilder{.options = {.ring_bytes = 65536, .slots = 16, .message_bytes = 0}},
      device_address());
  EXPECT_EQ(ends.client.max_message(), 900U);
  EXPECT_EQ(ends.server.max_message(), 900U);
  EXPECT_EQ(ends.client.receive_window(), 16U);
  const auto small =
      connect_ends(CreditRingBuilder{.options = {.ring_bytes = 4096}},
                   CreditRingBuilder{.options = {.ring_bytes = 65536}}, device_address());
  EXPECT_EQ(small.server.max_message(), 1016U);
}

TEST(SendReceivePresets, AreWhatTheyAreCalled) {
  for (const auto& options : {SendReceiveOptions::stream(), SendReceiveOptions::stream(4),
                              SendReceiveOptions::datagram()}) {
    const SendReceiveBuilder builder{options};
    auto ends = connect_ends(builder, builder, device_address());
    for (std::uint64_t i = 0; i < 10; ++i) {
      const std::size_t length = 1 + 150 * i;  // inline and not inline
      send(ends.client, ends.server, pattern(i, length));
      expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), i);
    }
    EXPECT_EQ(ends.server.receive_window(), options.receive_buffers);
  }
}

// More than 64 KiB in one message, and a ring larger than offsets of 16 bits can reach.
TEST(LargeRings, CarryLargeMessages) {
  const CreditRingBuilder builder{.options = {.ring_bytes = 1U << 21, .slots = 8}};
  auto ends = connect_ends(builder, builder, device_address());
  const std::size_t length = ends.client.max_message();
  EXPECT_EQ(length, (1U << 19) - 8);
  for (std::uint64_t i = 0; i < 9; ++i) {
    send(ends.client, ends.server, pattern(i, length - i));
    expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), i);
  }
}

TEST(CreditRings, CreditsAreBatchedAndRideOnRecordsOfTheOtherWay) {
  const CreditRingBuilder builder{.options = {.ring_bytes = 65536, .slots = 64}};
  auto ends = connect_ends(builder, builder, device_address());
  for (std::uint64_t i = 0; i < 640; ++i) {
    send(ends.client, ends.server, pattern(i, 100));
    expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), i);
  }
  // One per quarter of the slots, not one per message.
  EXPECT_EQ(ends.server.counters().credits_sent, 40U);
  const std::uint64_t before = ends.server.counters().credits_sent;
  for (std::uint64_t i = 0; i < 320; ++i) {
    send(ends.client, ends.server, pattern(i, 100));
    expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), i);
    send(ends.server, ends.client, pattern(i, 100));
    expect_and_release(ends.client, receive_exactly(ends.client, ends.server, 1), i);
  }
  EXPECT_EQ(ends.server.counters().credits_sent, before);
  EXPECT_EQ(ends.client.counters().credits_sent, 0U);
}

}  // namespace
}  // namespace rkv::rdma
