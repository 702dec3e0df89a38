// Writes whose clients have given up are not begun (STORE-6), wherever they waited meanwhile.
#include "common/pack.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

constexpr Nanos kLate = 5 * kNanosPerMs;
constexpr std::uint64_t kByUs = kLate / kNanosPerUs;

class GivenUp : public WorkerTest {
 protected:
  static Request put_by(std::uint64_t begin_by_us, Bytes value = as_bytes("value")) {
    return {.opcode = Opcode::kPut,
            .sequence = 1,
            .begin_by_us = begin_by_us,
            .key = as_bytes("key"),
            .value = value};
  }
  bool is_there() {
    std::vector<std::byte> out(kMaxInlineBytes);
    return store_->get(as_bytes("key"), out).has_value();
  }
  void expect_refused(const FakeConnection& client, std::size_t number = 0) {
    ASSERT_GT(client.posted.size(), number);
    EXPECT_EQ(answer(client, number).code, static_cast<std::uint8_t>(Code::kTimeout));
    EXPECT_FALSE(is_there());
    EXPECT_EQ(log_->last_begun(), 0U);
    EXPECT_EQ(queue().free_buffers(), all_buffers_);
  }
  std::vector<std::byte> encoded(const Request& request) {
    std::vector<std::byte> bytes(kRequestHeaderBytes + request.key.size() + request.value.size());
    encode(request, bytes);
    return bytes;
  }
};

// The message lay in the receive queue while the server was stopped.
TEST_F(GivenUp, APutThatIsTakenTooLateIsRefused) {
  FakeConnection* const client = connect();
  ask(*client, put_by(kByUs));
  clock_.advance(kLate + 1);
  turn();
  expect_refused(*client);
  EXPECT_EQ(store_->stats().data_bytes_used, 0U);
}

TEST_F(GivenUp, InTimeIsUpToTheLastNanosecond) {
  FakeConnection* const client = connect();
  ask(*client, put_by(kByUs));
  clock_.advance(kLate - clock_.now());
  turn();
  EXPECT_EQ(answer(*client, 0).code, 0);
  EXPECT_TRUE(is_there());
}

TEST_F(GivenUp, WhoSaysNoTimeWaitsForEver) {
  FakeConnection* const client = connect();
  ask(*client, put_by(0));
  clock_.advance(3600 * kNanosPerSecond);
  turn();
  EXPECT_TRUE(is_there());
}

// The field is that much of the clock: what it leaves out is what is nearest.
TEST_F(GivenUp, TheTimeIsModulo48Bits) {
  clock_.advance(static_cast<Nanos>(kBeginByModulus) * kNanosPerUs - kNanosPerMs);
  FakeConnection* const client = connect();
  const auto in_us = [&](Nanos from_now) {
    return static_cast<std::uint64_t>((clock_.now() + from_now) / kNanosPerUs) % kBeginByModulus;
  };
  ask(*client, put_by(in_us(-kNanosPerMs)));
  turn();
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kTimeout));
  ask(*client, put_by(in_us(10 * kNanosPerMs)));  // beyond the wrap
  turn();
  EXPECT_EQ(answer(*client, 1).code, 0);
  clock_.advance(2 * kNanosPerMs);
  ask(*client, put_by(in_us(-5 * kNanosPerMs)));  // before it
  turn();
  EXPECT_EQ(answer(*client, 2).code, static_cast<std::uint8_t>(Code::kTimeout));
}

TEST_F(GivenUp, EveryKindOfWriteIsRefused) {
  const std::array<std::byte, 16> numbers{};
  FakeConnection* const client = connect();
  const std::vector<Request> writes = {
      put_by(kByUs),
      {.opcode = Opcode::kRemove, .begin_by_us = kByUs, .key = as_bytes("there")},
      {.opcode = Opcode::kAdd,
       .begin_by_us = kByUs,
       .key = as_bytes("key"),
       .value = Bytes(numbers).first(8)},
      {.opcode = Opcode::kSwap,
       .begin_by_us = kByUs,
       .key = as_bytes("key"),
       .value = Bytes(numbers)},
      {.opcode = Opcode::kOpenCounter,
       .begin_by_us = kByUs,
       .key = as_bytes("key"),
       .value = Bytes(numbers).first(1)}};
  ASSERT_TRUE(store_->put(as_bytes("there"), as_bytes("value")));
  const std::uint64_t before = log_->last_begun();
  clock_.advance(2 * kLate);
  for (std::size_t i = 0; i < writes.size(); ++i) {
    ask(*client, writes[i]);
    turn();
    EXPECT_EQ(answer(*client, i).code, static_cast<std::uint8_t>(Code::kTimeout))
        << to_string(writes[i].opcode);
    queue().complete_sends(*client);
  }
  EXPECT_EQ(log_->last_begun(), before);
}

// A late request that only reads does no harm.
TEST_F(GivenUp, AGetIsAnswered) {
  ASSERT_TRUE(store_->put(as_bytes("key"), as_bytes("value")));
  FakeConnection* const client = connect();
  ask(*client, {.opcode = Opcode::kGet, .begin_by_us = kByUs, .key = as_bytes("key")});
  clock_.advance(2 * kLate);
  turn();
  EXPECT_EQ(answer(*client, 0).code, 0);
}

// The request waited for room for its answer.
TEST_F(GivenUp, WhatWaitedForRoomTooLongIsRefused) {
  FakeConnection* const client = connect();
  for (std::uint32_t i = 0; i < kRepliesInFlight; ++i) {
    ping(*client, i);
    turn();
  }
  ask(*client, put_by(kByUs));
  turn();
  ASSERT_EQ(client->posted.size(), kRepliesInFlight) << "it had to wait";
  clock_.advance(2 * kLate);
  queue().complete_sends(*client);
  turn();
  expect_refused(*client, kRepliesInFlight);
}

TEST_F(GivenUp, APackThatWaitedForItsTurnTooLongBeginsNoWrite) {
  FakeConnection* const client = connect();
  const auto pack = [&](const Request& operation) {
    std::array<std::byte, 64> value;
    PackWriter writer(value);
    writer.add(operation);
    ask(*client, {.opcode = Opcode::kPack, .begin_by_us = kByUs, .value = writer.finish()});
  };
  pack({.opcode = Opcode::kGet, .key = as_bytes("key")});
  pack(put_by(0));
  worker_->poll_once();
  ASSERT_EQ(client->posted.size(), 1U) << "a turn executes one of them";
  clock_.advance(2 * kLate);
  turn();
  ASSERT_EQ(client->posted.size(), 2U);
  ResultReader results(answer(*client, 1).value);
  EXPECT_EQ(results.next(Opcode::kPut)->code, static_cast<std::uint8_t>(Code::kTimeout));
  EXPECT_FALSE(is_there());
  EXPECT_EQ(log_->last_begun(), 0U);
}

TEST_F(GivenUp, ALongRequestThatCameTooLateIsRefused) {
  FakeConnection* const client = connect();
  const auto value = patterned(1, 100'000);
  const auto message = encoded(put_by(kByUs, value));
  std::vector<std::byte> source(kMessageSourceBytes);
  encode(MessageSource{.address = reinterpret_cast<std::uint64_t>(message.data()),
                       .remote_key = 99,
                       .length = static_cast<std::uint32_t>(message.size())},
         source);
  ask(*client, {.opcode = Opcode::kLong, .sequence = 1, .value = source});
  turn();
  ASSERT_EQ(client->reads.size(), 1U);
  clock_.advance(2 * kLate);
  queue().complete_read(*client);
  turn();
  expect_refused(*client);
}

// A write begins when it is published: what came before was for nobody to see.
TEST_F(GivenUp, ALargeValueThatArrivedTooLateIsNotPublished) {
  FakeConnection* const client = connect();
  const auto value = patterned(1, 200'000);
  std::vector<std::byte> source(kValueSourceBytes);
  encode(ValueSource{.address = reinterpret_cast<std::uint64_t>(value.data()),
                     .remote_key = 99,
                     .length = static_cast<std::uint32_t>(value.size()),
                     .digest = value_digest(as_bytes("key"), value, 1)},
         source);
  Request request = put_by(kByUs, source);
  request.opcode = Opcode::kPutLarge;
  ask(*client, request);
  turn();
  ASSERT_EQ(client->reads.size(), 1U);
  EXPECT_NE(store_->stats().data_bytes_used, 0U);
  clock_.advance(2 * kLate);
  queue().complete_read(*client);
  turn();
  expect_refused(*client);
  EXPECT_EQ(store_->stats().data_bytes_used, 0U) << "its block has come back";
  ask(*client, request);
  turn();
  EXPECT_EQ(client->reads.size(), 1U) << "one that is late already is not even READ";
}

// It was made in time; that it is safe is said whenever it is (SERVE-6).
TEST_F(GivenUp, AWriteThatWasMadeInTimeIsAnsweredWhenItIsSafe) {
  FakeConnection* const client = connect();
  Request request = put_by(kByUs);
  request.durability = Durability::kWal;
  ask(*client, request);
  turn();
  EXPECT_TRUE(client->posted.empty());
  clock_.advance(2 * kLate);
  write_all();
  turn();
  EXPECT_EQ(answer(*client, 0).code, 0);
}

TEST_F(GivenUp, EveryAnswerSaysTheTime) {
  FakeConnection* const client = connect();
  clock_.advance(7 * kNanosPerMs);
  ping(*client);
  turn();
  EXPECT_EQ(answer(*client, 0).server_us, 7000U);
  Request request = put_by(0);
  request.durability = Durability::kWal;
  ask(*client, request);
  turn();
  clock_.advance(2 * kNanosPerMs);
  write_all();
  turn();  // in which nothing but the mark has come
  EXPECT_EQ(answer(*client, 1).server_us, 9000U);
}

}  // namespace
}  // namespace rkv::server
