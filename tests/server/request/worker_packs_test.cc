// Packs through a worker: each is executed once, and each of its operations is counted once.
#include <string>
#include <vector>

#include "common/pack.h"
#include "server/monitor/facts.h"
#include "server/monitor/reports.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

class WorkerPacks : public WorkerTest {
 protected:
  static Request put_of(std::string_view key, std::string_view value = "value") {
    return {.opcode = Opcode::kPut, .key = as_bytes(key), .value = as_bytes(value)};
  }
  static Request get_of(std::string_view key) {
    return {.opcode = Opcode::kGet, .key = as_bytes(key)};
  }
  Bytes packed(const std::vector<Request>& operations) {
    bytes_.resize(64 * kMaxPacked * 8);
    PackWriter writer(bytes_);
    for (const Request& operation : operations)
      writer.add(operation);
    return writer.finish();
  }
  void pack(FakeConnection& from, const std::vector<Request>& operations, std::uint64_t sequence,
            Durability durability = Durability::kDefault) {
    ask(from, {.opcode = Opcode::kPack,
               .sequence = sequence,
               .durability = durability,
               .value = packed(operations)});
  }
  // All received requests have been answered.
  void expect_none_waits() {
    WorkerFacts facts{};
    facts.counters = &worker_->counters();
    EXPECT_EQ(requests_waiting(facts), 0U);
    EXPECT_EQ(queue().free_buffers(), all_buffers_);
  }

  std::vector<std::byte> bytes_;
};

TEST_F(WorkerPacks, AreAnsweredAndCountedByOperation) {
  FakeConnection* const client = connect();
  pack(*client, {put_of("a"), put_of("b"), get_of("none")}, 5);
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  const Response response = answer(*client, 0);
  EXPECT_EQ(response.opcode, Opcode::kPack);
  EXPECT_EQ(response.sequence, 5U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 2U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kGets), 1U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPacked), 3U);
  EXPECT_EQ(worker_->counters().answers(Opcode::kPack, 0), 1U);
  expect_none_waits();
}

// The opcode of a packed operation comes from a peer and counts in a table of the server.
TEST_F(WorkerPacks, OfAnyOpcodeAreCountedWithinBounds) {
  FakeConnection* const client = connect();
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    std::vector<std::byte> value(128);
    PackWriter writer(value);
    for (int i = 0; i < 4; ++i)
      writer.add(put_of("key"));
    value.resize(writer.finish().size());
    value[kPackHeaderBytes] = static_cast<std::byte>(opcode);
    ask(*client, {.opcode = Opcode::kPack, .sequence = opcode, .value = value});
    turn();
    ASSERT_EQ(client->posted.size(), opcode + 1U);
    EXPECT_EQ(answer(*client, opcode).code, 0);
    queue().complete_sends(*client);
    turn();
  }
  expect_none_waits();
}

TEST_F(WorkerPacks, OfMoreThanTheServerTakesAreRefused) {
  FakeConnection* const client = connect();
  const std::size_t most = worker_->room().max_packed;
  for (const std::size_t count : {most, most + 1, kMaxPacked}) {
    pack(*client, std::vector<Request>(std::min(count, kMaxPacked), put_of("a")), 1);
    turn();
    const Response response = answer(*client, client->posted.size() - 1);
    EXPECT_EQ(response.code == 0, count <= most) << count;
    queue().complete_sends(*client);
    turn();
  }
  expect_none_waits();
}

// A pack with a GET needs a large buffer. It waits for one, and then its writes run once.
TEST_F(WorkerPacks, WaitForARoomForTheirResultsAndRunOnce) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("long"), patterned(1, kMaxInlineBytes));
  turn();
  queue().complete_sends(*client);
  turn();
  for (std::uint32_t i = 0; i < kLargeRepliesPerClient; ++i)
    ask(*client, {.opcode = Opcode::kGet, .sequence = i, .key = as_bytes("long")});
  turn();
  const std::size_t before = client->posted.size();
  ASSERT_EQ(before, 1 + kLargeRepliesPerClient);
  const std::array<std::byte, kCounterBytes> one{std::byte{1}};
  const Request add{.opcode = Opcode::kAdd, .key = as_bytes("count"), .value = one};
  pack(*client, {add, get_of("none")}, 77);
  for (int i = 0; i < 5; ++i)
    turn();
  EXPECT_EQ(client->posted.size(), before) << "there is no room for its results";
  EXPECT_GT(worker_->counters().get(WorkerCounters::kDeferred), 0U);
  queue().complete_sends(*client);
  turn();
  ASSERT_EQ(client->posted.size(), before + 1);
  const Response response = answer(*client, before);
  EXPECT_EQ(response.sequence, 77U);
  ResultReader reader(response.value);
  const auto added = reader.next(Opcode::kAdd);
  ASSERT_TRUE(added);
  EXPECT_EQ(load_le<std::int64_t>(added->value.data()), 1) << "it ran once";
  expect_none_waits();
}

// A client that has sent all that it may does not make another wait.
TEST_F(WorkerPacks, OfOneClientTakeATurnEach) {
  FakeConnection* const many = connect();
  FakeConnection* const other = connect();
  for (std::uint64_t i = 0; i < kMaxCredits; ++i)
    pack(*many, {put_of("a"), put_of("b")}, i);
  ping(*other, 9);
  EXPECT_NE(worker_->poll_once(), 0U);
  EXPECT_EQ(many->posted.size(), 1U);
  EXPECT_EQ(other->posted.size(), 1U);
  for (std::size_t i = 2; i <= kMaxCredits; ++i) {
    EXPECT_EQ(worker_->poll_once() != 0, i < kMaxCredits) << "it does not sleep while packs wait";
    EXPECT_EQ(many->posted.size(), i);
    EXPECT_EQ(answer(*many, i - 1).sequence, i - 1) << "in their order";
  }
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kDeferred), 0U);
  expect_none_waits();
}

// A client that sends a pack for each that is answered does not overtake itself.
TEST_F(WorkerPacks, OfOneClientAreExecutedInTheOrderOfTheirArrival) {
  FakeConnection* const client = connect();
  std::uint64_t sent = 0;
  while (sent < kMaxCredits)
    pack(*client, {put_of("a"), put_of("b")}, sent++);
  for (std::uint64_t answered = 0; answered < 40; ++answered) {
    worker_->poll_once();
    ASSERT_EQ(client->posted.size(), answered + 1);
    EXPECT_EQ(answer(*client, answered).sequence, answered);
    queue().complete_sends(*client);
    pack(*client, {put_of("a"), put_of("b")}, sent++);
  }
  turn();
  EXPECT_EQ(client->posted.size(), sent);
  expect_none_waits();
}

TEST_F(WorkerPacks, OfDurableWritesAreAnsweredAtTheirMark) {
  FakeConnection* const client = connect();
  pack(*client, {put_of("a"), put_of("b"), get_of("a")}, 9, Durability::kWal);
  turn();
  EXPECT_TRUE(client->posted.empty());
  EXPECT_EQ(times_asked_, 1);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 0U) << "not answered yet";
  write_all();
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  ResultReader reader(answer(*client, 0).value);
  for (const Opcode opcode : {Opcode::kPut, Opcode::kPut})
    EXPECT_EQ(reader.next(opcode)->code, 0);
  EXPECT_EQ(reader.next(Opcode::kGet)->flags, Response::kAlone) << "its answer would be late";
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kWalWrites), 2U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 2U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPacked), 2U);
  expect_none_waits();
}

TEST_F(WorkerPacks, OfDurableWritesMayHaveHappenedWhenTheDiskFails) {
  FakeConnection* const client = connect();
  pack(*client, {put_of("a"), put_of("b")}, 9, Durability::kSync);
  turn();
  log_->set_disk_state(DiskState::kFailing);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  const Response response = answer(*client, 0);
  EXPECT_EQ(response.opcode, Opcode::kPack);
  EXPECT_EQ(response.code, static_cast<std::uint8_t>(Code::kIo));
  EXPECT_EQ(response.flags, Response::kMayHaveHappened);
  // As they are counted when they come by themselves.
  const WorkerCounters& counters = worker_->counters();
  EXPECT_EQ(counters.get(WorkerCounters::kPuts), 0U);
  EXPECT_EQ(counters.answers(Opcode::kPut, status_index(response.code)), 2U);
  EXPECT_EQ(counters.get(WorkerCounters::kSyncWrites), 0U);
  expect_none_waits();
}

TEST_F(WorkerPacks, OfAClientThatEndsFirstAreNotCounted) {
  FakeConnection* const client = connect();
  pack(*client, {put_of("a"), put_of("b")}, 9, Durability::kSync);
  turn();
  queue().end(*client);
  turn();
  sync_all();
  turn();
  const WorkerCounters& counters = worker_->counters();
  EXPECT_EQ(counters.get(WorkerCounters::kPuts), 0U);
  EXPECT_EQ(counters.get(WorkerCounters::kAbandoned), 1U);
  expect_none_waits();
}

}  // namespace
}  // namespace rkv::server
