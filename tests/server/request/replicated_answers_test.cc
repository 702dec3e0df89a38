// Answers of a server whose log is replicated: none shows what is above the replicated mark
// (SERVE-10, ONCE-4).
#include <array>
#include <utility>

#include "common/pack.h"
#include "server/log/logged_outcomes.h"
#include "server/log/replication_reader.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

class ReplicatedAnswers : public WorkerTest {
 protected:
  ReplicatedAnswers() : WorkerTest(CommitLog::Group::kReplicated), reader_(*log_) {
    client_ = connect();
    other_ = connect();
  }
  // As if all in-sync replicas had everything.
  void replicate_all() {
    for (CommitLog::Entry entry; reader_.next(&entry);) {
    }
    log_->set_replicated_mark(reader_.position());
    worker_->wake_for_answers();
  }
  void put_by_other(std::string_view key, std::string_view value = "value") {
    put(*other_, as_bytes(key), as_bytes(value));
    turn();
  }
  // Asks, and expects the answer only when everything up to now is replicated.
  Response answer_when_replicated(const Request& request) {
    const std::size_t before = client_->posted.size();
    ask(*client_, request);
    turn();
    EXPECT_EQ(client_->posted.size(), before) << "the answer shows what may be taken back";
    // The disk's marks do not matter, and neither does its failure.
    log_->set_wal_mark(log_->last_begun());
    log_->set_sync_mark(log_->last_begun());
    worker_->wake_for_answers();
    turn();
    EXPECT_EQ(client_->posted.size(), before);
    return answer_after_replication(before);
  }
  Response answer_after_replication(std::size_t before) {
    replicate_all();
    turn();
    if (client_->posted.size() != before + 1) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    return answer(*client_, before);
  }
  Response answer_at_once(const Request& request) {
    const std::size_t before = client_->posted.size();
    ask(*client_, request);
    turn();
    if (client_->posted.size() != before + 1) {
      ADD_FAILURE() << "no answer";
      return {};
    }
    return answer(*client_, before);
  }
  static Code code_of(const Response& response) { return static_cast<Code>(response.code); }

  ReplicationReader reader_;
  FakeConnection* client_ = nullptr;
  FakeConnection* other_ = nullptr;
};

// The answer to a ping proves that the server was the primary after the ping had come.
class RoundAnswers : public WorkerTest {
 protected:
  RoundAnswers() : WorkerTest(CommitLog::Group::kReplicated) {
    auto parts = parts_of_worker();
    parts.rounds = &rounds_;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
    client_ = connect();
  }
  int woken_ = 0;
  ReplicationRounds rounds_{[this] { ++woken_; }};
  FakeConnection* client_ = nullptr;
};

TEST_F(RoundAnswers, APingAwaitsARoundThatBeganAfterIt) {
  const std::uint64_t before = rounds_.begin();
  EXPECT_FALSE(rounds_.is_wanted());
  ping(*client_, 3);
  turn();
  EXPECT_EQ(woken_, 1);
  EXPECT_TRUE(rounds_.is_wanted());
  EXPECT_TRUE(client_->posted.empty());
  rounds_.complete(before);  // it was under way when the ping came
  worker_->wake_for_answers();
  turn();
  EXPECT_TRUE(client_->posted.empty());
  const std::uint64_t round = rounds_.begin();
  clock_.advance(5'000'000);
  rounds_.complete(round);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client_->posted.size(), 1U);
  EXPECT_EQ(answer(*client_, 0).sequence, 3U);
  EXPECT_GE(answer(*client_, 0).server_us, 5'000U) << "the time is not one after its coming";
  EXPECT_FALSE(rounds_.is_wanted());
}

TEST_F(RoundAnswers, OneRoundIsForAllWhoAskedBeforeIt) {
  for (const std::uint64_t sequence : {1U, 2U})
    ping(*client_, sequence);
  turn();
  const std::uint64_t round = rounds_.begin();
  ping(*client_, 3);
  turn();
  rounds_.complete(round);
  worker_->wake_for_answers();
  turn();
  EXPECT_EQ(client_->posted.size(), 2U);
  rounds_.complete(rounds_.begin());
  worker_->wake_for_answers();
  turn();
  EXPECT_EQ(client_->posted.size(), 3U);
}

const Request kGetKey{.opcode = Opcode::kGet, .sequence = 5, .key = as_bytes("key")};

TEST_F(ReplicatedAnswers, WritesInMemoryAwaitTheReplicatedMark) {
  const Response stored = answer_when_replicated(
      {.opcode = Opcode::kPut, .sequence = 1, .key = as_bytes("key"), .value = as_bytes("v")});
  EXPECT_EQ(stored.code, 0);
  EXPECT_EQ(times_asked_, 0) << "the disk is not asked for it";
  const Response removed =
      answer_when_replicated({.opcode = Opcode::kRemove, .sequence = 2, .key = as_bytes("key")});
  EXPECT_EQ(removed.code, 0);
  std::array<std::byte, kCounterBytes> number{};
  store_le(number.data(), std::int64_t{7});
  const Response added = answer_when_replicated(
      {.opcode = Opcode::kAdd, .sequence = 3, .key = as_bytes("counter"), .value = number});
  EXPECT_EQ(load_le<std::int64_t>(added.value.data()), 7);
}

TEST_F(ReplicatedAnswers, DurableWritesAwaitTheGroupsMarks) {
  put(*client_, as_bytes("w"), as_bytes("v"), Durability::kWal);
  put(*client_, as_bytes("s"), as_bytes("v"), Durability::kSync);
  turn();
  replicate_all();
  sync_all();  // this server's disk only
  turn();
  EXPECT_TRUE(client_->posted.empty());
  const std::uint64_t all = log_->last_begun();
  log_->set_group_marks(all, 0);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client_->posted.size(), 1U);
  EXPECT_EQ(answer(*client_, 0).sync_mark, Version::of(1, 0)) << "it tells of the group's marks";
  log_->set_group_marks(all, all);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client_->posted.size(), 2U);
  EXPECT_GE(answer(*client_, 1).sync_mark, answer(*client_, 1).version);
}

TEST_F(ReplicatedAnswers, HitsAwaitTheMark) {
  put_by_other("key", "a value longer than a number");
  const Response found = answer_when_replicated(kGetKey);
  EXPECT_EQ(as_text(found.value), "a value longer than a number");
}

TEST_F(ReplicatedAnswers, HitsOfReplicatedValuesAreAnsweredAtOnce) {
  put_by_other("key");
  replicate_all();
  put_by_other("another");
  EXPECT_EQ(as_text(answer_at_once(kGetKey).value), "value");
}

TEST_F(ReplicatedAnswers, MissesAwaitTheMark) {
  put_by_other("key");
  replicate_all();
  ask(*other_, {.opcode = Opcode::kRemove, .sequence = 2, .key = as_bytes("key")});
  turn();
  EXPECT_EQ(code_of(answer_when_replicated(kGetKey)), Code::kNotFound);
}

TEST_F(ReplicatedAnswers, RefusalsThatDependOnDataAwaitTheMark) {
  put_by_other("key");
  const Response conflict = answer_when_replicated({.opcode = Opcode::kPut,
                                                    .sequence = 1,
                                                    .condition = Condition::kIfAbsent,
                                                    .key = as_bytes("key"),
                                                    .value = as_bytes("v")});
  EXPECT_EQ(code_of(conflict), Code::kConflict);
  put_by_other("key");
  const std::array<std::byte, kCounterBytes> number{};
  const Response no_counter = answer_when_replicated(
      {.opcode = Opcode::kAdd, .sequence = 2, .key = as_bytes("key"), .value = number});
  EXPECT_EQ(code_of(no_counter), Code::kWrongType);
  put_by_other("key");
  const Response missing =
      answer_when_replicated({.opcode = Opcode::kRemove, .sequence = 3, .key = as_bytes("none")});
  EXPECT_EQ(code_of(missing), Code::kNotFound);
}

TEST_F(ReplicatedAnswers, RefusalsToTryLaterDoNotWait) {
  put_by_other("key");
  log_->set_disk_state(DiskState::kFailing);
  const Response refused = answer_at_once(
      {.opcode = Opcode::kPut, .sequence = 1, .key = as_bytes("key"), .value = as_bytes("v")});
  EXPECT_EQ(code_of(refused), Code::kIo);
}

// The next primary answers for a write that was made, and takes those that were not.
TEST_F(ReplicatedAnswers, WhileAnotherReplicaTakesOverTheDiskIsNoError) {
  log_->set_successor(true);
  const std::size_t before = client_->posted.size();
  ask(*client_, {.opcode = Opcode::kPut,
                 .sequence = 1,
                 .durability = Durability::kSync,
                 .key = as_bytes("key"),
                 .value = as_bytes("v")});
  turn();
  replicate_all();
  log_->set_disk_state(DiskState::kFull);
  worker_->wake_for_answers();
  turn();
  EXPECT_EQ(client_->posted.size(), before) << "nothing says that it failed";
  const Response refused = answer_at_once(
      {.opcode = Opcode::kPut, .sequence = 2, .key = as_bytes("two"), .value = as_bytes("v")});
  EXPECT_EQ(code_of(refused), Code::kBusy);
  EXPECT_EQ(refused.flags, 0);
  const Response flush = answer_at_once({.opcode = Opcode::kFlush, .sequence = 3});
  EXPECT_EQ(code_of(flush), Code::kBusy);
  log_->set_successor(false);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client_->posted.size(), before + 3);
}

TEST_F(ReplicatedAnswers, AFailingDiskEndsNoWaitForTheMark) {
  put_by_other("key");
  const std::size_t before = client_->posted.size();
  ask(*client_, kGetKey);
  turn();
  log_->set_disk_state(DiskState::kFailing);
  worker_->wake_for_answers();
  turn();
  EXPECT_EQ(client_->posted.size(), before);
  EXPECT_EQ(as_text(answer_after_replication(before).value), "value");
}

TEST_F(ReplicatedAnswers, FlushesAwaitTheGroup) {
  put_by_other("key");
  const std::size_t before = client_->posted.size();
  ask(*client_, {.opcode = Opcode::kFlush, .sequence = 1});
  turn();
  replicate_all();
  sync_all();
  turn();
  EXPECT_EQ(client_->posted.size(), before);
  log_->set_group_marks(log_->last_begun(), log_->last_begun());
  worker_->wake_for_answers();
  turn();
  EXPECT_EQ(client_->posted.size(), before + 1);
}

TEST_F(ReplicatedAnswers, PacksAwaitWhatTheirOperationsHaveSeen) {
  const auto pack = [&](Durability level) {
    std::vector<std::byte> bytes(512);
    PackWriter writer(bytes);
    writer.add({.opcode = Opcode::kPut, .key = as_bytes("mine"), .value = as_bytes("v")});
    writer.add({.opcode = Opcode::kRemove, .key = as_bytes("none")});
    bytes.resize(writer.finish().size());
    return std::pair(Request{.opcode = Opcode::kPack, .sequence = 4, .durability = level}, bytes);
  };
  put_by_other("key");
  auto [request, bytes] = pack(Durability::kMemory);
  request.value = bytes;
  EXPECT_EQ(answer_when_replicated(request).code, 0);
  std::vector<std::byte> reads(512);
  PackWriter writer(reads);
  writer.add({.opcode = Opcode::kGet, .key = as_bytes("key")});
  reads.resize(writer.finish().size());
  put_by_other("key");
  EXPECT_EQ(answer_when_replicated({.opcode = Opcode::kPack, .sequence = 5, .value = reads}).code,
            0);
}

// The outcome of a write waits like the write's answer.
TEST_F(ReplicatedAnswers, OutcomesAreAnsweredWhenTheWriteIsReplicated) {
  FakeConnection* const lost = connect();
  const std::uint64_t session = sessions_;
  constexpr std::uint64_t kNumber = kLanes;  // lane 0
  ask(*lost, {.opcode = Opcode::kPut,
              .sequence = kNumber,
              .key = as_bytes("key"),
              .value = as_bytes("value")});
  turn();
  (void)worker_->sessions().end_session(session, Deadline::after_ms(clock_, 0));
  queue().end(*lost);
  turn();
  std::array<std::byte, kWriteIdBytes> write{};
  encode(WriteId{.session = session, .sequence = kNumber}, write);
  const Response outcome =
      answer_when_replicated({.opcode = Opcode::kOutcome, .sequence = 6, .value = write});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.version, Version::of(1, 1));
}

// A primary, whose log is read like a backup's, and its successor.
class EarlierPrimary : public ReplicatedAnswers {
 protected:
  static constexpr std::uint64_t kFloor = 0;

  // Executes a write of client_, and returns its answer.
  Response write(const Request& request) {
    const std::size_t before = client_->posted.size();
    ask(*client_, request);
    turn();
    for (CommitLog::Entry entry; reader_.next(&entry);)
      outcomes_in_log_.note(entry);
    log_->set_replicated_mark(reader_.position());
    worker_->wake_for_answers();
    turn();
    return answer(*client_, before);
  }
  // From now on another server answers, which has the log.
  void take_over() {
    auto parts = parts_of_worker();
    parts.rounds = &rounds_;
    parts.earlier_outcomes = &outcomes_in_log_;
    parts.outcomes = &own_outcomes_;
    queue().end(*client_);
    queue().end(*other_);
    turn();
    writer_session_ = 1;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
    client_ = connect();
  }
  void ask_about(std::uint64_t sequence, std::uint64_t since = 1) {
    std::array<std::byte, kWriteIdBytes> write{};
    encode(WriteId{.session = writer_session_, .sequence = sequence}, write);
    ask(*client_,
        {.opcode = Opcode::kOutcome, .sequence = 6, .expected = Version{since}, .value = write});
    turn();
  }
  Response outcome_of(std::uint64_t sequence) {
    const std::size_t before = client_->posted.size();
    ask_about(sequence);
    if (client_->posted.size() == before + 1) return answer(*client_, before);
    ADD_FAILURE() << "no answer";
    return {};
  }

  LoggedOutcomes outcomes_in_log_{Version{kFloor}};
  OutcomeArchive own_outcomes_{clock_, 8};  // of the successor
  ReplicationRounds rounds_{[] {}};
  std::uint64_t writer_session_ = 0;
};

std::array<std::byte, kCounterBytes> bytes_of(std::int64_t number) {
  std::array<std::byte, kCounterBytes> bytes{};
  store_le(bytes.data(), number);
  return bytes;
}

TEST_F(EarlierPrimary, ItsAnswersAreGivenBySuccessors) {
  const auto seven = bytes_of(7);
  std::array<std::byte, 2 * kCounterBytes> from_7_to_9{};
  store_le(from_7_to_9.data(), std::int64_t{7});
  store_le(from_7_to_9.data() + kCounterBytes, std::int64_t{9});
  const std::vector<Request> requests = {
      {.opcode = Opcode::kPut, .sequence = 16, .key = as_bytes("k"), .value = as_bytes("v")},
      {.opcode = Opcode::kAdd, .sequence = 17, .key = as_bytes("n"), .value = seven},
      {.opcode = Opcode::kSwap, .sequence = 18, .key = as_bytes("n"), .value = from_7_to_9},
      {.opcode = Opcode::kRemove, .sequence = 19, .key = as_bytes("k")}};
  std::vector<Response> answers;
  for (const Request& request : requests)
    answers.push_back(write(request));
  const std::int64_t number = load_le<std::int64_t>(answers[2].value.data());
  EXPECT_EQ(number, 9);
  std::vector<std::int64_t> numbers = {0, 7, 9, 0};
  take_over();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Response outcome = outcome_of(requests[i].sequence);
    EXPECT_EQ(outcome.code, 0) << i;
    EXPECT_EQ(outcome.version, answers[i].version) << i;
    EXPECT_EQ(outcome.flags & ~Response::kInNeighbour, answers[i].flags & ~Response::kInNeighbour);
    EXPECT_TRUE(outcome.slot.empty()) << "it is where the earlier primary had it";
    ASSERT_EQ(outcome.value.size(), numbers[i] == 0 ? 0 : kCounterBytes) << i;
    if (numbers[i] == 0) continue;
    EXPECT_EQ(load_le<std::int64_t>(outcome.value.data()), numbers[i]);
  }
}

TEST_F(EarlierPrimary, OfAPackTheOperationsThatWereAppliedAreTold) {
  const auto seven = bytes_of(7);
  std::vector<std::byte> bytes(512);
  PackWriter writer(bytes);
  writer.add({.opcode = Opcode::kPut, .key = as_bytes("a"), .value = as_bytes("v")});
  writer.add({.opcode = Opcode::kRemove, .key = as_bytes("none")});  // is refused
  writer.add({.opcode = Opcode::kGet, .key = as_bytes("a")});
  writer.add({.opcode = Opcode::kAdd, .key = as_bytes("n"), .value = seven});
  bytes.resize(writer.finish().size());
  const Response first = write({.opcode = Opcode::kPack, .sequence = 16, .value = bytes});
  ResultReader answered(first.value);
  const Version put = answered.next(Opcode::kPut)->version;
  take_over();
  const Response outcome = outcome_of(16);
  ASSERT_EQ(outcome.code, 0);
  ResultReader results(outcome.value);
  EXPECT_EQ(results.next(Opcode::kPut)->version, put);
  for (const Opcode opcode : {Opcode::kRemove, Opcode::kGet}) {
    const auto result = results.next(opcode);
    ASSERT_TRUE(result);
    EXPECT_NE(result->flags & Response::kAlone, 0) << "it may be sent again";
  }
  const auto added = results.next(Opcode::kAdd);
  ASSERT_TRUE(added);
  EXPECT_EQ(load_le<std::int64_t>(added->value.data()), 7);
  EXPECT_TRUE(results.at_end());
}

// A later primary may have it, unless this one proves to be the newest.
TEST_F(EarlierPrimary, ThatAWriteWasNotAppliedIsSaidAfterARound) {
  (void)write({.opcode = Opcode::kPut, .sequence = 16, .key = as_bytes("k"), .value = {}});
  take_over();
  const std::uint64_t before = rounds_.begin();
  ask_about(32);
  rounds_.complete(before);
  worker_->wake_for_answers();
  turn();
  EXPECT_TRUE(client_->posted.empty());
  rounds_.complete(rounds_.begin());
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client_->posted.size(), 1U);
  EXPECT_EQ(code_of(answer(*client_, 0)), Code::kNotFound);
}

TEST_F(EarlierPrimary, WhatMayBeOlderThanTheTableIsNotKnown) {
  for (std::uint64_t sequence = 1; sequence < 4; ++sequence)
    (void)write({.opcode = Opcode::kPut, .sequence = sequence, .key = as_bytes("k"), .value = {}});
  take_over();
  ask_about(16, 0);  // as if the write had been sent to this server
  ASSERT_EQ(client_->posted.size(), 1U);
  EXPECT_EQ(code_of(answer(*client_, 0)), Code::kStale);
}

// It was sent to this server, or to a later primary: neither's log was noted here.
TEST_F(EarlierPrimary, OfWritesOfItsOwnTermNothingIsSaidFromTheLog) {
  (void)write({.opcode = Opcode::kPut, .sequence = 16, .key = as_bytes("k"), .value = {}});
  take_over();
  ask_about(32, Version::of(1, 1).bits);
  ASSERT_EQ(client_->posted.size(), 1U);
  EXPECT_EQ(code_of(answer(*client_, 0)), Code::kStale);
}

// The backups would refuse such a tag, and with it the log.
TEST_F(EarlierPrimary, WritesWithoutASequenceHaveNoTag) {
  ask(*client_, {.opcode = Opcode::kPut, .sequence = 0, .key = as_bytes("k"), .value = {}});
  turn();
  CommitLog::Entry entry;
  ASSERT_TRUE(reader_.next(&entry));
  EXPECT_FALSE(entry.tag);
}

TEST_F(ReplicatedAnswers, PingsDoNotWait) {
  put_by_other("key");
  EXPECT_EQ(answer_at_once({.opcode = Opcode::kPing, .sequence = 9}).code, 0);
}

}  // namespace
}  // namespace rkv::server
