// The counts of a worker: answers by operation and status, requests under way, and how long they
// took - without reading the clock for it.
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {

namespace {

std::uint64_t clock_readings = 0;

class CountingClock final : public Clock {
 public:
  Nanos now() const override {
    ++clock_readings;
    return now_;
  }
  void set(Nanos now) { now_ = now; }

 private:
  Nanos now_ = 1;
};

class WorkerCounts : public WorkerTest {
 protected:
  TimingSum timed(Opcode opcode) const {
    TimingSum sum;
    worker_->timings().add_to(sum, opcode);
    return sum;
  }
  std::uint64_t counted(WorkerCounters::Counter counter) const {
    return worker_->counters().get(counter);
  }
};

TEST_F(WorkerCounts, EveryRequestIsAnsweredOrAbandoned) {
  FakeConnection* const stays = connect();
  FakeConnection* const goes = connect();
  put(*stays, as_bytes("key"), as_bytes("value"));
  ask(*stays, {.opcode = Opcode::kRemove, .key = as_bytes("key")});
  ask(*stays, {.opcode = Opcode::kRemove, .key = as_bytes("key")});
  put(*goes, as_bytes("slow"), as_bytes("value"), Durability::kSync);  // waits for the disk
  turn();
  EXPECT_EQ(counted(WorkerCounters::kReceived), 4U);
  const WorkerCounters& counters = worker_->counters();
  const std::size_t missing = status_index(static_cast<std::uint8_t>(Code::kNotFound));
  EXPECT_EQ(counters.answers(Opcode::kPut, 0), 1U);
  EXPECT_EQ(counters.answers(Opcode::kRemove, 0), 1U);
  EXPECT_EQ(counters.answers(Opcode::kRemove, missing), 1U);
  EXPECT_EQ(counted(WorkerCounters::kGranted), 2U * kMaxCredits);
  queue().end(*goes);
  turn();
  EXPECT_EQ(counted(WorkerCounters::kAbandoned), 1U);
  EXPECT_EQ(counted(WorkerCounters::kEnded), 1U);
  EXPECT_EQ(counted(WorkerCounters::kReturned), std::uint64_t{kMaxCredits});
}

TEST_F(WorkerCounts, OperationsThatCameToNothing) {
  FakeConnection* const client = connect();
  ping(*client);
  turn();
  using rdma::Completion;
  const WorkerCounters& counters = worker_->counters();
  EXPECT_EQ(counters.failures(Completion::Kind::kSend, Completion::Status::kFlushed), 0U);
  queue().end(*client);  // before the answer has arrived
  turn();
  EXPECT_EQ(counters.failures(Completion::Kind::kSend, Completion::Status::kFlushed), 1U);
  EXPECT_EQ(counters.failures(Completion::Kind::kSend, Completion::Status::kFailed), 0U);
  EXPECT_EQ(counted(WorkerCounters::kDropped), 0U) << "it went by itself";
}

TEST_F(WorkerCounts, ATurnsAnswersEndWhenTheClockIsReadNext) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("key"), as_bytes("value"));
  turn();
  EXPECT_EQ(timed(Opcode::kPut).count, 0U);
  clock_.advance(3000);
  ping(*client);
  turn();
  EXPECT_EQ(timed(Opcode::kPut).count, 1U);
  EXPECT_EQ(timed(Opcode::kPut).sum_ns, 3000U);
  EXPECT_EQ(timed(Opcode::kPing).count, 0U);
}

TEST_F(WorkerCounts, AnAnswerThatWaitsForTheDiskTakesAsLongAsThat) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("key"), as_bytes("value"), Durability::kSync);
  turn();
  clock_.advance(5'000'000);
  sync_all();
  turn();
  ping(*client);
  turn();
  EXPECT_EQ(timed(Opcode::kPut).count, 1U);
  EXPECT_EQ(timed(Opcode::kPut).sum_ns, 5'000'000U);
}

// The price of latencies: a turn reads the clock once, whatever is in it, as it did before there
// were any.
TEST_F(WorkerCounts, ATurnReadsTheClockOnce) {
  const CountingClock clock;
  Worker::Parts parts = parts_of_worker();
  test::FakeTransport transport;
  const Worker::Parts counted_parts{.transport = transport,
                                    .store = parts.store,
                                    .log = parts.log,
                                    .clock = clock,
                                    .boot = parts.boot,
                                    .stats = parts.stats,
                                    .make_durable = parts.make_durable};
  worker_ = std::move(*Worker::create(counted_parts, {.clients = kClients}));
  ASSERT_TRUE(worker_->sessions().reserve_client());
  auto connection = std::make_unique<FakeConnection>();
  FakeConnection* const client = connection.get();
  worker_->sessions().adopt({.connection = std::move(connection),
                             .session = 1,
                             .credits = kMaxCredits,
                             .name = "test",
                             .place = nullptr});
  worker_->poll_once();
  const auto send = [&](std::string_view key) {
    std::vector<std::byte> message(kRequestHeaderBytes + key.size());
    message.resize(
        encode(Request{.opcode = Opcode::kPut, .sequence = 1, .key = as_bytes(key), .value = {}},
               message));
    transport.queue->receive(*client, message);
  };
  for (const char* key : {"a", "b", "c"})
    send(key);
  clock_readings = 0;
  worker_->poll_once();
  EXPECT_EQ(clock_readings, 1U);
  EXPECT_EQ(counted(WorkerCounters::kPuts), 3U);
  clock_readings = 0;
  worker_->poll_once();
  EXPECT_EQ(clock_readings, 0U) << "nothing was there";
}

}  // namespace
}  // namespace rkv::server
