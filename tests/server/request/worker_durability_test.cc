// Answers that await a mark: SERVE-5 and SERVE-6 of worker.h.
#include <utility>

#include "server/persistence/applier.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

using DurableWrites = WorkerTest;

TEST_F(DurableWrites, EachIsAnsweredWhenItsMarkHasMoved) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("m"), as_bytes("v"), Durability::kMemory);
  put(*client, as_bytes("w"), as_bytes("v"), Durability::kWal);
  put(*client, as_bytes("s"), as_bytes("v"), Durability::kSync);
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  write_all();
  turn();
  ASSERT_EQ(client->posted.size(), 2U);
  EXPECT_EQ(answer(*client, 1).code, 0);
  EXPECT_GE(answer(*client, 1).wal_mark, answer(*client, 1).version);
  EXPECT_LT(answer(*client, 1).sync_mark, answer(*client, 1).version);
  sync_all();
  turn();
  ASSERT_EQ(client->posted.size(), 3U);
  EXPECT_EQ(answer(*client, 2).code, 0);
  EXPECT_GE(answer(*client, 2).sync_mark, answer(*client, 2).version);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 3U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kWalWrites), 1U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kSyncWrites), 1U);
}

// The answer to another client does not wait for the disk.
TEST_F(DurableWrites, AreVisibleBeforeTheyAreAnsweredAndHoldNobodyUp) {
  FakeConnection* const writer = connect();
  FakeConnection* const other = connect();
  put(*writer, as_bytes("key"), as_bytes("value"), Durability::kSync);
  ask(*other, {.opcode = Opcode::kGet, .sequence = 5, .key = as_bytes("key")});
  turn();
  EXPECT_TRUE(writer->posted.empty());
  ASSERT_EQ(other->posted.size(), 1U);
  EXPECT_EQ(as_text(answer(*other, 0).value), "value");
}

// One turn's writes of all clients share what the applier is asked for.
TEST_F(DurableWrites, AskTheApplierOnceATurn) {
  FakeConnection* clients[] = {connect(), connect(), connect()};
  for (FakeConnection* client : clients) {
    for (int i = 0; i < kMaxCredits; ++i)
      put(*client, as_bytes("key"), as_bytes("value"), Durability::kSync);
  }
  worker_->poll_once();
  EXPECT_EQ(times_asked_, 1);
  EXPECT_EQ(asked_level_, Durability::kSync);
  EXPECT_GE(log_->last_begun(), asked_);
  sync_all();
  turn();
  for (FakeConnection* client : clients) {
    ASSERT_EQ(client->posted.size(), kMaxCredits);
    for (std::size_t i = 0; i < kMaxCredits; ++i)
      EXPECT_LE(answer(*client, i).version.sequence(), asked_);
  }
}

TEST_F(DurableWrites, CountersComeWithTheirOwnNumbers) {
  FakeConnection* const client = connect();
  std::array<std::byte, kCounterBytes> number{};
  for (std::uint64_t i = 0; i < kMaxCredits; ++i) {
    store_le(number.data(), std::int64_t{100});
    ask(*client, {.opcode = Opcode::kAdd,
                  .sequence = i,
                  .durability = Durability::kWal,
                  .key = as_bytes("counter"),
                  .value = number});
  }
  turn();
  ASSERT_TRUE(client->posted.empty());
  write_all();
  turn();
  ASSERT_EQ(client->posted.size(), kMaxCredits);
  for (std::size_t i = 0; i < kMaxCredits; ++i) {
    const std::vector<std::byte> bytes = client->posted[i].bytes;
    EXPECT_EQ(load_le<std::int64_t>(bytes.data() + kResponseHeaderBytes),
              static_cast<std::int64_t>(100 * (i + 1)));
  }
}

TEST_F(DurableWrites, AreInDoubtWhenTheDiskFails) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("w"), as_bytes("v"), Durability::kWal);
  put(*client, as_bytes("s"), as_bytes("v"), Durability::kSync);
  turn();
  log_->set_disk_state(DiskState::kFailing);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client->posted.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(answer(*client, i).code, static_cast<std::uint8_t>(Code::kIo));
    EXPECT_EQ(answer(*client, i).flags, Response::kMayHaveHappened);
  }
  // The next is not made at all, and says so.
  put(*client, as_bytes("s"), as_bytes("later"), Durability::kSync);
  turn();
  ASSERT_EQ(client->posted.size(), 3U);
  EXPECT_EQ(answer(*client, 2).code, static_cast<std::uint8_t>(Code::kIo));
  EXPECT_EQ(answer(*client, 2).flags, 0);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 0U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kRefused), 3U);
}

TEST_F(DurableWrites, GoWithTheirClient) {
  FakeConnection* const client = connect();
  FakeConnection* const other = connect();
  put(*client, as_bytes("key"), as_bytes("value"), Durability::kSync);
  put(*other, as_bytes("other"), as_bytes("value"), Durability::kSync);
  turn();
  queue().end(*client);
  turn();
  sync_all();
  turn();
  ASSERT_EQ(other->posted.size(), 1U);
  EXPECT_EQ(answer(*other, 0).code, 0);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

// A held answer counts against its client's credits like a request that waits.
TEST_F(DurableWrites, UseUpCreditsUntilTheyAreAnswered) {
  FakeConnection* const client = connect(2);
  put(*client, as_bytes("a"), as_bytes("v"), Durability::kSync);
  put(*client, as_bytes("b"), as_bytes("v"), Durability::kSync);
  turn();
  EXPECT_EQ(client->aborts, 0);
  ping(*client);
  turn();
  EXPECT_EQ(client->aborts, 1);
}

// SERVE-5 with real threads: an applier's marks against the worker's look at them. Every wake-up
// that is missed leaves an answer behind, and the test without its end.
TEST_F(DurableWrites, NoneIsForgottenWhileMarksMove) {
  FakeConnection* const client = connect();
  std::atomic<bool> over{false};
  std::thread disk([&] {
    while (!over.load()) {
      CommitLog::Entry entry;
      while (log_->consume(&entry)) {
      }
      log_->set_wal_mark(log_->consumed());
      worker_->wake_for_answers();
      log_->set_sync_mark(log_->consumed());
      log_->advance();
      worker_->wake_for_answers();
    }
  });
  for (std::size_t i = 0; i < 3000; ++i) {
    put(*client, as_bytes("key"), as_bytes("v"), i % 2 == 0 ? Durability::kWal : Durability::kSync);
    worker_->poll_once();
    // A sleeping worker turns again for a wake-up only.
    for (int seen = -1; client->posted.size() <= i;) {
      const int wakes = queue().wakes;
      if (wakes == seen) continue;
      seen = wakes;
      worker_->poll_once();
    }
    queue().complete_sends(*client);
    worker_->poll_once();
    EXPECT_GE(answer(*client, i).wal_mark, answer(*client, i).version);
  }
  over.store(true);
  disk.join();
}

// ---- the end of the worker

class EndOfAWorker : public WorkerTest {
 protected:
  // Everybody sees to its part while the worker waits: the disk, the network, the clock.
  void finish(FakeConnection& client, const std::function<void()>& meanwhile) {
    FakeConnection* connected = &client;
    client.on_destroyed = [&] { connected = nullptr; };
    queue().on_wait = [&] {
      clock_.advance(10 * kNanosPerMs);
      meanwhile();
      if (connected != nullptr && client.aborts != 0) queue().end(client);
    };
    worker_->finish();
    EXPECT_EQ(connected, nullptr) << "its connection has not ended";
    queue().on_wait = nullptr;
  }
};

TEST_F(EndOfAWorker, AnswersThatAreHeldAreGivenBeforeIt) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("w"), as_bytes("v"), Durability::kWal);
  ask(*client, {.opcode = Opcode::kFlush, .sequence = 2});
  turn();
  ASSERT_TRUE(client->posted.empty());
  std::vector<Response> answers;
  int waits = 0;
  finish(*client, [&] {
    if (++waits < 5) return;
    if (client->aborts != 0) return;
    sync_all();
    for (std::size_t i = answers.size(); i < client->posted.size(); ++i) {
      EXPECT_TRUE(client->posted[i].signaled) << "the worker does not know when it has arrived";
      answers.push_back(answer(*client, i));
    }
    if (waits > 10) queue().complete_sends(*client);
  });
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].code, 0);
  EXPECT_EQ(answers[1].code, 0);
  EXPECT_GT(waits, 10) << "the end did not wait for the answers to arrive";
}

TEST_F(EndOfAWorker, NothingMoreIsBegun) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("held"), as_bytes("v"), Durability::kSync);
  turn();
  bool sent = false;
  finish(*client, [&] {
    if (client->aborts != 0) return;
    if (!std::exchange(sent, true)) return put(*client, as_bytes("late"), as_bytes("v"));
    sync_all();
    queue().complete_sends(*client);
  });
  std::vector<std::byte> out(kMaxInlineBytes);
  EXPECT_TRUE(store_->get(as_bytes("held"), out));
  EXPECT_EQ(store_->get(as_bytes("late"), out).error().code, Code::kNotFound);
}

TEST_F(EndOfAWorker, ADiskThatDoesNotAnswerIsNotWaitedForLong) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("key"), as_bytes("v"), Durability::kSync);
  turn();
  const Nanos begun = clock_.now();
  std::size_t answered = 0;
  finish(*client, [&] { answered += client->posted.size(); });
  EXPECT_EQ(answered, 0U);
  EXPECT_LT(clock_.now() - begun, 10'000 * kNanosPerMs);
}

TEST_F(EndOfAWorker, AFailedDiskIsToldOf) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("key"), as_bytes("v"), Durability::kSync);
  turn();
  Response told{};
  finish(*client, [&] {
    log_->set_disk_state(DiskState::kFailing);
    if (!client->posted.empty()) told = answer(*client, 0);
    if (client->aborts == 0) queue().complete_sends(*client);
  });
  EXPECT_EQ(told.code, static_cast<std::uint8_t>(Code::kIo));
  EXPECT_EQ(told.flags, Response::kMayHaveHappened);
}

}  // namespace
}  // namespace rkv::server
