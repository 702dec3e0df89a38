// Requests too long to be sent: LONG-1 to LONG-5, with READs that are done by hand.
#include "common/pack.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

using CompletionStatus = rdma::Completion::Status;

constexpr std::size_t kBuffers = 8;  // fewer than the credits of all clients

class LongRequestsTest : public WorkerTest {
 protected:
  // The client's memory holds the request; what is sent says where.
  void ask_long(FakeConnection& from, const Request& request) {
    auto& message = memory_of_clients_.emplace_back(kRequestHeaderBytes + request.key.size() +
                                                    request.value.size());
    encode(request, message);
    tell(from, request.sequence, message);
  }
  void tell(FakeConnection& from, std::uint64_t sequence, Bytes message) {
    std::vector<std::byte> source(kMessageSourceBytes);
    encode(MessageSource{.address = reinterpret_cast<std::uint64_t>(message.data()),
                         .remote_key = 99,
                         .length = static_cast<std::uint32_t>(message.size())},
           source);
    ask(from, {.opcode = Opcode::kLong, .sequence = sequence, .value = source});
  }
  void put_long(FakeConnection& from, std::string_view key, std::uint64_t sequence = 3) {
    ask_long(from,
             {.opcode = Opcode::kPut, .sequence = sequence, .key = as_bytes(key), .value = value_});
  }
  std::size_t stored(std::string_view key) {
    std::vector<std::byte> out(kMaxInlineBytes);
    const auto got = store_->get(as_bytes(key), out);
    return got ? got->value_length : 0;
  }
  // All buffers serve again: as many READs as there are buffers are posted at once.
  void expect_all_buffers_free() {
    EXPECT_EQ(queue().free_buffers(), all_buffers_);
    FakeConnection* const first = connect();
    FakeConnection* const second = connect();
    for (std::size_t i = 0; i < kBuffers; ++i)
      put_long(i % 2 == 0 ? *first : *second, "free");
    turn();
    EXPECT_EQ(first->reads.size() + second->reads.size(), kBuffers);
    queue().end(*first);
    queue().end(*second);
    turn();
  }

  std::vector<std::byte> value_ = patterned(1, 100'000);
  std::deque<std::vector<std::byte>> memory_of_clients_;
};

TEST_F(LongRequestsTest, AreReadOnceThenAnsweredLikeAnyOther) {
  FakeConnection* const client = connect();
  put_long(*client, "key", 7);
  turn();
  ASSERT_EQ(client->reads.size(), 1U);
  EXPECT_EQ(client->reads[0].remote_key, 99U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_) << "what was sent has been looked at";
  EXPECT_TRUE(client->posted.empty());
  EXPECT_EQ(stored("key"), 0U);
  queue().complete_read(*client);
  std::ranges::fill(memory_of_clients_.front(), std::byte{0});  // too late (LONG-2)
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).opcode, Opcode::kPut);
  EXPECT_EQ(answer(*client, 0).sequence, 7U);
  EXPECT_EQ(answer(*client, 0).code, 0);
  EXPECT_EQ(stored("key"), value_.size());
  EXPECT_EQ(client->reads.size(), 1U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 1U);
  queue().end(*client);
  turn();
  expect_all_buffers_free();
}

TEST_F(LongRequestsTest, OneCreditIsEnoughForOne) {
  FakeConnection* const client = connect(2);
  put_long(*client, "one");
  put_long(*client, "two");
  turn();
  EXPECT_EQ(client->reads.size(), 2U);
  EXPECT_EQ(client->aborts, 0);
  ping(*client);  // while both are on their way
  turn();
  EXPECT_EQ(client->aborts, 1) << "a third request";
}

TEST_F(LongRequestsTest, WhoWaitsForABufferComesBeforeTheNewest) {
  FakeConnection* clients[] = {connect(), connect(), connect()};
  for (FakeConnection* client : clients) {
    for (int i = 0; i < kMaxCredits; ++i)
      put_long(*client, "key");
  }
  turn();
  EXPECT_EQ(clients[0]->reads.size(), 4U);
  EXPECT_EQ(clients[1]->reads.size(), 4U);
  EXPECT_EQ(clients[2]->reads.size(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_ - 4) << "they wait where they were received";
  queue().complete_read(*clients[0]);
  turn();
  EXPECT_EQ(clients[2]->reads.size(), 1U);
  // The next request of client 0 comes behind the READ that makes room: client 2 has waited for
  // that room.
  queue().complete_read(*clients[1]);
  put_long(*clients[0], "key");
  turn();
  EXPECT_EQ(clients[0]->reads.size(), 4U);
  EXPECT_EQ(clients[2]->reads.size(), 2U);
  for (int round = 0; round < 4; ++round) {
    for (FakeConnection* client : clients) {
      while (client->reads_done < client->reads.size())
        queue().complete_read(*client);
      turn();
    }
  }
  EXPECT_EQ(clients[0]->posted.size(), 5U);
  EXPECT_EQ(clients[1]->posted.size(), 4U);
  EXPECT_EQ(clients[2]->posted.size(), 4U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(LongRequestsTest, OthersAreServedMeanwhile) {
  FakeConnection* const slow = connect();
  FakeConnection* const other = connect();
  put_long(*slow, "key");
  put(*other, as_bytes("other"), as_bytes("value"));
  ping(*slow, 4);
  turn();
  EXPECT_EQ(other->posted.size(), 1U);
  EXPECT_EQ(slow->posted.size(), 1U);
}

TEST_F(LongRequestsTest, ARefusedReadEndsTheClientAndNoOther) {
  FakeConnection* const client = connect();
  FakeConnection* const other = connect();
  put_long(*client, "key");
  put_long(*other, "other");
  turn();
  queue().complete_read(*client, CompletionStatus::kRemoteAccess);
  queue().complete_read(*other);
  turn();
  EXPECT_EQ(client->aborts, 1);
  EXPECT_EQ(other->aborts, 0);
  EXPECT_EQ(stored("key"), 0U);
  EXPECT_EQ(stored("other"), value_.size());
  queue().end(*client);
  queue().end(*other);
  turn();
  expect_all_buffers_free();
}

TEST_F(LongRequestsTest, AClientThatDiesInTheMiddleLeavesNothing) {
  FakeConnection* const client = connect();
  for (int i = 0; i < kMaxCredits; ++i)
    put_long(*client, "key");
  turn();
  queue().end(*client);
  turn();
  EXPECT_EQ(worker_->sessions().clients(), 0U);
  EXPECT_EQ(stored("key"), 0U);
  expect_all_buffers_free();
}

// LONG-1, should a READ go unreported: the connection goes first, then what it may still write to.
TEST_F(LongRequestsTest, AnUnreportedReadGivesItsBufferBackBehindItsConnection) {
  FakeConnection* const client = connect();
  put_long(*client, "key");
  turn();
  queue().arrived.push_back({.kind = rdma::Completion::Kind::kDisconnected, .connection = client});
  turn();
  expect_all_buffers_free();
}

TEST_F(LongRequestsTest, AnEndedSessionsRequestDoesNotBegin) {
  FakeConnection* const client = connect();
  put_long(*client, "key");
  turn();
  EXPECT_FALSE(worker_->sessions().end_session(sessions_, Deadline::after_ms(clock_, 0)));
  queue().complete_read(*client);
  turn();
  EXPECT_EQ(stored("key"), 0U);
  EXPECT_TRUE(client->posted.empty());
  queue().end(*client);
  turn();
  expect_all_buffers_free();
}

TEST_F(LongRequestsTest, ALongInsideALongEndsTheClient) {
  FakeConnection* const client = connect();
  std::vector<std::byte> source(kMessageSourceBytes);
  encode(MessageSource{.address = 8, .remote_key = 99, .length = 5000}, source);
  ask_long(*client, {.opcode = Opcode::kLong, .sequence = 1, .value = source});
  turn();
  queue().complete_read(*client);
  turn();
  EXPECT_EQ(client->aborts, 1);
  EXPECT_EQ(client->reads.size(), 1U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kMalformed), 1U);
  queue().end(*client);
  turn();
  expect_all_buffers_free();
}

// All buffers hold requests that would want another one: nobody may wait for them (LONG-4).
TEST_F(LongRequestsTest, LongsInsideLongsInAllBuffersKeepNobodyWaiting) {
  FakeConnection* const first = connect();
  FakeConnection* const second = connect();
  FakeConnection* const honest = connect();
  for (std::size_t i = 0; i < kBuffers; ++i) {
    ask_long(i % 2 == 0 ? *first : *second,
             {.opcode = i < 4 ? Opcode::kLong : Opcode::kPutLarge,
              .sequence = 1,
              .key = as_bytes("key"),
              .value = Bytes(value_).first(i < 4 ? kMessageSourceBytes : kValueSourceBytes)});
  }
  put_long(*honest, "honest");
  turn();
  EXPECT_TRUE(honest->reads.empty());
  for (std::size_t i = 0; i < kBuffers; ++i)
    queue().complete_read(i % 2 == 0 ? *first : *second);
  turn();
  EXPECT_EQ(first->aborts, 1);
  EXPECT_EQ(second->aborts, 1);
  ASSERT_EQ(honest->reads.size(), 1U);
  queue().complete_read(*honest);
  turn();
  EXPECT_EQ(stored("honest"), value_.size());
  queue().end(*first);
  queue().end(*second);
  queue().end(*honest);
  turn();
  expect_all_buffers_free();
}

// Two clients that take no large replies, with packs whose answers would need some (LONG-4).
TEST_F(LongRequestsTest, PacksWithoutRoomForTheirAnswersKeepNoBuffer) {
  ASSERT_TRUE(store_->put(as_bytes("large"), patterned(2, 12'000)));
  std::array<std::byte, 64> value;
  PackWriter writer(value);
  writer.add({.opcode = Opcode::kGet, .key = as_bytes("large")});
  const Bytes pack = writer.finish();
  FakeConnection* const hostile[] = {connect(), connect()};
  for (FakeConnection* client : hostile) {
    for (std::size_t i = 0; i < kMaxCredits; ++i)
      ask(*client, {.opcode = Opcode::kGet, .sequence = i, .key = as_bytes("large")});
    turn();
    ASSERT_EQ(client->posted.size(), kMaxCredits);
    for (std::size_t i = 0; i < kMaxCredits; ++i)
      ask_long(*client, {.opcode = Opcode::kPack, .sequence = i, .value = pack});
    turn();
    ASSERT_EQ(client->reads.size(), kMaxCredits);
  }
  FakeConnection* const honest = connect();
  put_long(*honest, "honest");
  for (FakeConnection* client : hostile) {
    while (client->reads_done < client->reads.size())
      queue().complete_read(*client);
  }
  turn();
  ASSERT_EQ(honest->reads.size(), 1U);
  queue().complete_read(*honest);
  turn();
  EXPECT_EQ(stored("honest"), value_.size());
  for (const FakeConnection* client : hostile) {
    ASSERT_EQ(client->posted.size(), 2U * kMaxCredits);
    for (std::size_t i = kMaxCredits; i < client->posted.size(); ++i)
      EXPECT_EQ(answer(*client, i).code, static_cast<std::uint8_t>(Code::kBusy));
  }
}

// A client whose replies in flight are as many as they may be, but for one: there is room for the
// answer to one long request, and no other reply takes it (LONG-4).
TEST_F(LongRequestsTest, WhatWasReadHasRoomForItsAnswer) {
  FakeConnection* const client = connect();
  constexpr std::size_t kPings = kRepliesInFlight - 1;
  for (std::size_t i = 0; i < kPings; ++i) {
    ping(*client);
    turn();
  }
  ASSERT_EQ(client->posted.size(), kPings);
  for (int i = 0; i < 3; ++i)
    put_long(*client, "key");
  ping(*client);
  turn();
  while (client->reads_done < client->reads.size())
    queue().complete_read(*client);
  turn();
  EXPECT_EQ(client->reads.size(), 1U);
  EXPECT_EQ(stored("key"), value_.size()) << "it is done, and has given its buffer back";
  for (int i = 0; i < 4; ++i) {
    queue().complete_sends(*client);
    turn();
    while (client->reads_done < client->reads.size())
      queue().complete_read(*client);
    turn();
  }
  EXPECT_EQ(client->posted.size(), kPings + 3 + 1);
  queue().end(*client);
  turn();
  expect_all_buffers_free();
}

TEST_F(LongRequestsTest, AnotherSequenceThanAnnouncedEndsTheClient) {
  FakeConnection* const client = connect();
  auto& message = memory_of_clients_.emplace_back(kRequestHeaderBytes + 3 + value_.size());
  encode(Request{.opcode = Opcode::kPut, .sequence = 4, .key = as_bytes("key"), .value = value_},
         message);
  tell(*client, 5, message);
  turn();
  queue().complete_read(*client);
  turn();
  EXPECT_EQ(client->aborts, 1);
  EXPECT_EQ(stored("key"), 0U);
}

// LONG-5: as long as nobody waits for a buffer, nobody is ended.
TEST_F(LongRequestsTest, MemoryThatDoesNotAnswerIsGivenUpWhenOthersWait) {
  FakeConnection* const first = connect();
  FakeConnection* const second = connect();
  for (std::size_t i = 0; i < kBuffers; ++i)
    put_long(i % 2 == 0 ? *first : *second, "silent");
  turn();
  clock_.advance(LongRequestReader::kLongestRead);
  turn();
  EXPECT_EQ(first->aborts + second->aborts, 0);
  FakeConnection* const waiting = connect();
  put_long(*waiting, "waiting");
  turn();
  turn();
  EXPECT_EQ(first->aborts, 1);
  queue().end(*first);
  turn();
  ASSERT_EQ(waiting->reads.size(), 1U);
  queue().complete_read(*waiting);
  turn();
  EXPECT_EQ(stored("waiting"), value_.size());
}

// LONG-5: they have answered while the worker stood still, and it has not looked yet.
TEST_F(LongRequestsTest, MemoryThatHasAnsweredIsNotGivenUp) {
  FakeConnection* const first = connect();
  FakeConnection* const second = connect();
  FakeConnection* const waiting = connect();
  for (std::size_t i = 0; i < kBuffers; ++i)
    put_long(i % 2 == 0 ? *first : *second, "slow");
  turn();
  clock_.advance(LongRequestReader::kLongestRead);
  put_long(*waiting, "waiting");
  for (FakeConnection* const one : {first, second}) {
    while (one->reads_done < one->reads.size())
      queue().complete_read(*one);
  }
  turn();
  EXPECT_EQ(first->aborts + second->aborts, 0);
}

TEST_F(LongRequestsTest, MemoryThatDoesNotAnswerDoesNotHoldUpAServerThatLeaves) {
  FakeConnection* const client = connect();
  put_long(*client, "silent");
  turn();
  worker_->leave();
  turn();
  EXPECT_FALSE(worker_->is_quiet());
  EXPECT_EQ(client->aborts, 0);
  clock_.advance(LongRequestReader::kLongestRead);
  turn();
  EXPECT_EQ(client->aborts, 1);
  queue().end(*client);
  turn();
  EXPECT_TRUE(worker_->is_quiet());
}

TEST_F(LongRequestsTest, NonsenseThatWasReadIsAnsweredOrEndsTheClient) {
  FakeConnection* const client = connect();
  auto& nonsense = memory_of_clients_.emplace_back(patterned(5, 6000));
  nonsense.front() = std::byte{99};  // no operation
  store_le(nonsense.data() + 8, std::uint64_t{5});
  tell(*client, 5, nonsense);
  turn();
  queue().complete_read(*client);
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kInvalidArgument));
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kMalformed), 1U);
}

TEST_F(LongRequestsTest, AConnectionThatTakesNoReadIsEnded) {
  FakeConnection* const client = connect();
  client->reads_taken_at_most = 0;
  put_long(*client, "key");
  turn();
  EXPECT_EQ(client->aborts, 1);
  queue().end(*client);
  turn();
  expect_all_buffers_free();
}

// Where receive buffers cost nothing until they are used.
TEST_F(LongRequestsTest, AreNotThereWhereAnyRequestMayBeSent) {
  worker_.reset();
  transport_.pins = false;
  worker_ = std::move(*Worker::create(parts_of_worker(), {.clients = kClients}));
  EXPECT_EQ(queue().options.receive_bytes, kMaxMessageBytes);
  FakeConnection* const client = connect();
  put_long(*client, "key");
  turn();
  EXPECT_EQ(client->aborts, 1);
  EXPECT_TRUE(client->reads.empty());
}

}  // namespace
}  // namespace rkv::server
