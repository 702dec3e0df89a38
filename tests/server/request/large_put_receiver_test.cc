// Large values on their way from a client's memory: PUTLARGE-1 to PUTLARGE-5, with READs that are
// done by hand.
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

using CompletionStatus = rdma::Completion::Status;

constexpr std::size_t kLength = 700'000;  // three pieces
constexpr std::size_t kPieces =
    (kLength + LargePutReceiver::kPieceBytes - 1) / LargePutReceiver::kPieceBytes;

class FetchesTest : public WorkerTest {
 protected:
  // Asks for `value`, which is the client's memory, to be put under `key`.
  void put_large(FakeConnection& from, std::string_view key, Bytes value,
                 std::uint64_t digest_change = 0) {
    std::vector<std::byte> source(kValueSourceBytes);
    encode(ValueSource{.address = reinterpret_cast<std::uint64_t>(value.data()),
                       .remote_key = 99,
                       .length = static_cast<std::uint32_t>(value.size()),
                       .digest = value_digest(as_bytes(key), value, 1) ^ digest_change},
           source);
    ask(from, {.opcode = Opcode::kPutLarge, .sequence = 3, .key = as_bytes(key), .value = source});
  }
  static constexpr std::size_t kFetches = 16;  // of a worker

  // The values of all of them have room.
  void make_worker_for(std::uint32_t clients) {
    worker_.reset();
    store_.reset();
    log_ = std::move(*CommitLog::create(8 * CommitLog::kMinCapacityBytes));
    store_ = std::make_unique<Store>(*memory_, *log_, clock_, 1);
    worker_ = std::move(*Worker::create(parts_of_worker(), {.clients = clients}));
  }
  void finish_reads(FakeConnection& of) {
    while (of.reads_done < of.reads.size()) {
      queue().complete_read(of);
      turn();
    }
  }
  std::uint64_t used() const { return store_->stats().data_bytes_used; }
  std::size_t stored(std::string_view key) {
    std::vector<std::byte> out(kMaxInlineBytes);
    const auto got = store_->get(as_bytes(key), out);
    return got ? got->value_length : 0;
  }

  std::vector<std::byte> value_ = patterned(1, kLength);
};

TEST_F(FetchesTest, AValueIsReadInPiecesAFewAtATimeThenAnswered) {
  auto* const client = connect();
  put_large(*client, "key", value_);
  turn();
  EXPECT_EQ(client->reads.size(), LargePutReceiver::kPieces);
  EXPECT_EQ(client->reads[0].remote_key, 99U);
  EXPECT_EQ(client->reads[0].local.size(), LargePutReceiver::kPieceBytes);
  EXPECT_EQ(queue().free_buffers(), all_buffers_ - 1) << "the request lies there";
  queue().complete_read(*client);
  turn();
  EXPECT_EQ(client->reads.size(), kPieces);
  EXPECT_TRUE(client->posted.empty());
  EXPECT_EQ(stored("key"), 0U);
  finish_reads(*client);
  ASSERT_EQ(client->posted.size(), 1U);
  const Response done = answer(*client, 0);
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.opcode, Opcode::kPutLarge);
  EXPECT_EQ(done.sequence, 3U);
  EXPECT_EQ(done.version, Version::of(1, 1));
  EXPECT_FALSE(done.slot.empty());
  EXPECT_EQ(stored("key"), kLength);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
  CommitLog::Entry entry;
  ASSERT_TRUE(log_->consume(&entry));
  EXPECT_TRUE(std::ranges::equal(entry.record.value, value_)) << "the disk gets the same";
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 1U);
}

// ONCE-1, PUTLARGE-4: a value is stored and known to be, or neither.
TEST_F(FetchesTest, AClientThatHasLostTheAnswerCanAskForIt) {
  for (const bool stored : {true, false}) {
    auto* const client = connect();
    put_large(*client, "key", value_);
    turn();
    if (stored) finish_reads(*client);
    queue().complete_sends(*client);
    queue().end(*client);
    turn();
    const auto outcomes = outcomes_.find(sessions_, nullptr);
    ASSERT_NE(outcomes, nullptr);
    EXPECT_EQ(outcomes->fate_of(3),
              stored ? Outcomes::Fate::kApplied : Outcomes::Fate::kNotApplied);
  }
}

TEST_F(FetchesTest, OthersAreServedWhileReadsAreOutstanding) {
  auto* const slow = connect();
  auto* const other = connect();
  put_large(*slow, "key", value_);
  turn();
  for (int i = 0; i < 10; ++i) {
    put(*other, as_bytes("other"), as_bytes("value"));
    turn();
    queue().complete_sends(*other);
  }
  turn();
  EXPECT_EQ(other->posted.size(), 10U);
  // The same client's other requests too.
  ping(*slow, 4);
  turn();
  EXPECT_EQ(slow->posted.size(), 1U);
  finish_reads(*slow);
  EXPECT_EQ(slow->posted.size(), 2U);
}

TEST_F(FetchesTest, AValueThatChangedIsNotStored) {
  auto* const client = connect();
  put(*client, as_bytes("key"), as_bytes("old"));
  turn();
  queue().complete_sends(*client);
  const std::uint64_t before = used();
  put_large(*client, "key", value_);
  turn();
  value_[kLength - 1] ^= std::byte{1};
  finish_reads(*client);
  ASSERT_EQ(client->posted.size(), 2U);
  EXPECT_EQ(answer(*client, 1).code, static_cast<std::uint8_t>(Code::kValueChanged));
  EXPECT_EQ(stored("key"), 3U);
  EXPECT_EQ(used(), before);
  EXPECT_EQ(client->aborts, 0) << "it is the user's mistake, not the client's";
  put_large(*client, "key", value_);
  turn();
  finish_reads(*client);
  EXPECT_EQ(answer(*client, 2).code, 0);
  EXPECT_EQ(stored("key"), kLength);
}

TEST_F(FetchesTest, ARefusedReadEndsTheClientAndFreesTheBlockWithTheLastCompletion) {
  auto* const client = connect();
  put_large(*client, "key", value_);
  turn();
  const std::uint64_t taken = used();
  EXPECT_GT(taken, kLength);
  queue().complete_read(*client, CompletionStatus::kRemoteAccess);
  turn();
  EXPECT_EQ(client->aborts, 1);
  EXPECT_EQ(used(), taken) << "a READ into it is under way (PUTLARGE-1)";
  EXPECT_EQ(client->reads.size(), 2U) << "and no more are posted";
  queue().complete_read(*client, CompletionStatus::kFlushed);
  turn();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
  queue().end(*client);
  turn();
  EXPECT_EQ(worker_->sessions().clients(), 0U);
  EXPECT_EQ(log_->bytes_queued(), 0U);
}

TEST_F(FetchesTest, AClientThatDiesInTheMiddleLeavesNothing) {
  auto* const client = connect();
  put_large(*client, "one", value_);
  put_large(*client, "two", value_);
  turn();
  queue().complete_read(*client);
  turn();
  queue().end(*client);
  turn();
  EXPECT_EQ(worker_->sessions().clients(), 0U);
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(log_->bytes_queued(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
  EXPECT_EQ(stored("one"), 0U);
}

// All has come, but the session was ended before the last READ was looked at (PUTLARGE-4).
TEST_F(FetchesTest, AnEndedSessionPublishesNothing) {
  auto* const client = connect();
  put_large(*client, "key", value_);
  turn();
  queue().complete_read(*client);
  turn();
  EXPECT_FALSE(worker_->sessions().end_session(sessions_, Deadline::after_ms(clock_, 0)));
  queue().complete_read(*client);
  queue().complete_read(*client);
  turn();
  EXPECT_EQ(stored("key"), 0U);
  EXPECT_EQ(used(), 0U);
  EXPECT_TRUE(client->posted.empty());
  queue().end(*client);
  turn();
}

TEST_F(FetchesTest, AClientHasAFewOnTheirWayAndTheRestWait) {
  auto* const client = connect();
  value_.resize(300'000);  // two pieces each, and the queue to the disk holds three of them
  for (int i = 0; i < 3; ++i)
    put_large(*client, "key" + std::to_string(i), value_);
  turn();
  EXPECT_EQ(client->reads.size(), LargePutReceiver::kReadsPerSession);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kDeferred), 1U);
  finish_reads(*client);
  ASSERT_EQ(client->posted.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(answer(*client, i).code, 0) << i;
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(FetchesTest, AConnectionThatTakesNoReadIsEnded) {
  auto* const client = connect();
  client->reads_taken_at_most = 1;
  put_large(*client, "key", value_);
  turn();
  EXPECT_EQ(client->aborts, 1);
  queue().end(*client);
  turn();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(FetchesTest, WhatTheStoreRefusesIsNotRead) {
  auto* const client = connect();
  put_large(*client, "key", patterned(1, std::size_t{8} << 20));  // the queue has 1 MiB
  turn();
  EXPECT_TRUE(client->reads.empty());
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kTooLarge));
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(FetchesTest, AWorkerThatEndsDropsWhatIsOnItsWay) {
  auto* const client = connect();
  put_large(*client, "key", value_);
  turn();
  worker_.reset();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(log_->bytes_queued(), 0U);
}

// PUTLARGE-1, should a READ go unreported: the connection goes first, then what it may still write
// to.
TEST_F(FetchesTest, AConnectionIsDestroyedBeforeItsMemoryServesOthers) {
  auto* const client = connect();
  put_large(*client, "key", value_);
  turn();
  std::uint64_t used_then = 0;
  client->on_destroyed = [&] { used_then = used(); };
  queue().arrived.push_back({.kind = rdma::Completion::Kind::kDisconnected, .connection = client});
  turn();
  EXPECT_GE(used_then, kLength);
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

// PUTLARGE-5: as long as nobody waits for a fetch, nobody is ended; and one that answers goes on.
TEST_F(FetchesTest, MemoryThatDoesNotAnswerIsGivenUpWhenOthersWait) {
  make_worker_for(kFetches + 1);
  const Bytes value = Bytes(value_).first(kMaxInlineBytes + 1);
  FakeConnection* const working = connect();
  put_large(*working, "working", value_);
  std::vector<FakeConnection*> silent;
  while (silent.size() + 1 < kFetches) {
    silent.push_back(connect());
    put_large(*silent.back(), "silent", value);
  }
  turn();
  for (const FakeConnection* const one : silent)
    ASSERT_EQ(one->reads.size(), 1U);
  const auto aborted = [&] {
    return std::ranges::count_if(silent, [](const auto* one) { return one->aborts != 0; });
  };
  clock_.advance(LargePutReceiver::kLongestRead);
  queue().complete_read(*working);
  turn();
  EXPECT_EQ(aborted(), 0);
  FakeConnection* const waiting = connect();
  put_large(*waiting, "waiting", value);
  turn();
  turn();
  EXPECT_EQ(aborted(), 1);
  EXPECT_EQ(working->aborts, 0);
  for (FakeConnection* const one : silent)
    if (one->aborts != 0) queue().end(*one);
  turn();
  finish_reads(*waiting);
  EXPECT_EQ(stored("waiting"), value.size());
}

// PUTLARGE-5: the value has come, and the answer finds no room.
TEST_F(FetchesTest, AClientThatTakesNoRepliesIsGivenUpWhenOthersWait) {
  make_worker_for(kFetches + 1);
  const Bytes value = Bytes(value_).first(kMaxInlineBytes + 1);
  FakeConnection* const greedy = connect();
  put_large(*greedy, "greedy", value);
  for (std::uint32_t i = 0; i < kRepliesInFlight; ++i) {
    ping(*greedy);
    turn();
  }
  finish_reads(*greedy);
  EXPECT_EQ(stored("greedy"), 0U) << "it waits for room";
  for (std::size_t i = 1; i < kFetches; ++i)
    put_large(*connect(), "silent", value);
  turn();
  clock_.advance(LargePutReceiver::kLongestRead);
  turn();
  EXPECT_EQ(greedy->aborts, 0);
  put_large(*connect(), "waiting", value);
  turn();
  turn();
  EXPECT_EQ(greedy->aborts, 1);
}

// PUTLARGE-5, at 2 % duty: a piece now and then, so that the memory answers all the time. Those
// that wait are refused as busy, here or by another worker.
TEST_F(FetchesTest, ASlowOneIsGivenUpWhenOthersFindNoMemoryForLargeValues) {
  make_worker_for(kFetches);
  const std::size_t most = store_->large_records().limit_bytes();
  const std::vector<std::byte> half = patterned(2, most / 2 + 4096);
  FakeConnection* const slow = connect();
  FakeConnection* const other = connect();
  put_large(*slow, "slow", half);
  turn();
  ASSERT_EQ(slow->reads.size(), LargePutReceiver::kPieces);
  // It answers all the time, at a tenth of the pace.
  for (int i = 0; i < 4; ++i) {
    clock_.advance(5 * kNanosPerSecond / 2);
    queue().complete_read(*slow);
    turn();
  }
  EXPECT_EQ(slow->aborts, 0) << "nobody waits";
  put_large(*other, "other", half);
  turn();
  turn();
  ASSERT_EQ(other->posted.size(), 1U);
  EXPECT_EQ(answer(*other, 0).code, static_cast<std::uint8_t>(Code::kBusy));
  EXPECT_EQ(slow->aborts, 1);
  queue().end(*slow);
  turn();
  put_large(*other, "other", half);
  turn();
  finish_reads(*other);
  EXPECT_EQ(stored("other"), half.size());
}

// A queue that is full is not its fault, and the value is not READ again for it.
TEST_F(FetchesTest, AValueThatHasArrivedWaitsForTheQueueToTheDisk) {
  auto* const client = connect();
  put_large(*client, "key", value_);
  turn();
  const std::uint64_t idle = log_->bytes_queued();
  EXPECT_EQ(idle, 0U) << "LARGE-2";
  const std::string filler(kMaxInlineBytes, 'f');
  while (store_->put(as_bytes("filler"), as_bytes(filler))) {
  }
  finish_reads(*client);
  EXPECT_TRUE(client->posted.empty());
  const std::uint64_t refused = log_->refused();
  turn();
  turn();
  EXPECT_EQ(log_->refused(), refused);
  clock_.advance(2 * LargePutReceiver::kLongestRead);
  worker_->leave();  // which waits for it
  turn();
  EXPECT_EQ(client->aborts, 0);
  EXPECT_FALSE(worker_->is_quiet());
  sync_all();
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, 0);
  EXPECT_EQ(stored("key"), kLength);
}

TEST_F(FetchesTest, AValueThatWaitsForTheDiskEndsByItsDeadline) {
  auto* const client = connect();
  std::vector<std::byte> source(kValueSourceBytes);
  encode(ValueSource{.address = reinterpret_cast<std::uint64_t>(value_.data()),
                     .remote_key = 99,
                     .length = static_cast<std::uint32_t>(value_.size()),
                     .digest = value_digest(as_bytes("key"), value_, 1)},
         source);
  clock_.advance(kNanosPerSecond);
  const auto by = static_cast<std::uint64_t>((clock_.now() + kNanosPerSecond) / kNanosPerUs);
  ask(*client, {.opcode = Opcode::kPutLarge,
                .sequence = 3,
                .begin_by_us = by,
                .key = as_bytes("key"),
                .value = source});
  turn();
  const std::string filler(kMaxInlineBytes, 'f');
  while (store_->put(as_bytes("filler"), as_bytes(filler))) {
  }
  finish_reads(*client);
  EXPECT_TRUE(client->posted.empty());
  clock_.advance(2 * kNanosPerSecond);
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kBusy));
  EXPECT_EQ(store_->large_records().bytes_under_way(), 0U);
}

TEST_F(FetchesTest, MemoryThatDoesNotAnswerDoesNotHoldUpAServerThatLeaves) {
  FakeConnection* const client = connect();
  put_large(*client, "key", value_);
  turn();
  worker_->leave();
  turn();
  EXPECT_FALSE(worker_->is_quiet());
  EXPECT_EQ(client->aborts, 0);
  clock_.advance(LargePutReceiver::kLongestRead);
  turn();
  EXPECT_EQ(client->aborts, 1);
  queue().end(*client);
  turn();
  EXPECT_TRUE(worker_->is_quiet());
}

TEST_F(FetchesTest, AGetOfALargeValueIsAnsweredWithItsPlace) {
  auto* const client = connect();
  ASSERT_TRUE(store_->put(as_bytes("key"), value_));
  ask(*client, {.opcode = Opcode::kGet, .sequence = 1, .key = as_bytes("key")});
  turn();
  const Response got = answer(*client, 0);
  EXPECT_EQ(got.flags, Response::kByRead);
  const Slot slot = got.slot;
  const auto record =
      decode_record({memory_->record(slot.location()), kLength + 100}, 1, slot.location());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->fields.version, got.version);
  EXPECT_TRUE(std::ranges::equal(record->fields.value, value_));
}

}  // namespace
}  // namespace rkv::server
