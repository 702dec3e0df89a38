// The server's knowledge of a write whose answer was lost (ONCE-1 to ONCE-5).
#include "server/request/outcomes.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "tests/server/request/worker_fixture.h"
#include "tests/support/manual_clock.h"

namespace rkv::server {
namespace {

using Fate = Outcomes::Fate;

constexpr std::uint64_t number_of(std::uint64_t round, std::uint64_t lane) {
  return round * kLanes + lane;
}

Response applied(std::uint64_t sequence) {
  return {.opcode = Opcode::kPut, .sequence = sequence, .version = Version::of(1, sequence)};
}

TEST(OutcomesOfASession, AreKeptOnePerLane) {
  Outcomes outcomes;
  for (std::uint64_t lane = 0; lane < kMaxCredits; ++lane)
    EXPECT_EQ(outcomes.fate_of(number_of(1, lane)), Fate::kNotApplied);
  outcomes.keep(applied(number_of(3, 1)), as_bytes("12345678"), {});
  EXPECT_EQ(outcomes.fate_of(number_of(3, 1)), Fate::kApplied);
  EXPECT_EQ(as_text(outcomes.value_of(number_of(3, 1))), "12345678");
  EXPECT_EQ(outcomes.applied(number_of(3, 1)).version, Version::of(1, number_of(3, 1)));
  EXPECT_EQ(outcomes.fate_of(number_of(4, 1)), Fate::kNotApplied) << "it came later, or never";
  EXPECT_EQ(outcomes.fate_of(number_of(2, 1)), Fate::kNotKnown) << "the client has its answer";
  EXPECT_EQ(outcomes.fate_of(number_of(3, 2)), Fate::kNotApplied) << "another lane";

  outcomes.keep(applied(number_of(9, 1)), {}, {});
  EXPECT_EQ(outcomes.fate_of(number_of(9, 1)), Fate::kApplied);
  EXPECT_TRUE(outcomes.value_of(number_of(9, 1)).empty());
  EXPECT_EQ(outcomes.fate_of(number_of(3, 1)), Fate::kNotKnown);
}

// The client does not use lanes, or uses more credits than the server grants.
TEST(OutcomesOfASession, OfOtherLanesAreNotKnown) {
  Outcomes outcomes;
  for (std::uint64_t lane = kMaxCredits; lane < kLanes; ++lane) {
    outcomes.keep(applied(number_of(1, lane)), {}, {});
    EXPECT_EQ(outcomes.fate_of(number_of(1, lane)), Fate::kNotKnown);
    EXPECT_EQ(outcomes.fate_of(number_of(2, lane)), Fate::kNotKnown);
  }
}

TEST(OutcomesOfASession, OfThePackWithTheLongestResultsFit) {
  std::vector<Request> adds(kMaxPacked, Request{.opcode = Opcode::kAdd});
  std::vector<std::byte> results(kMaxInlineBytes);
  ResultWriter writer(results);
  const std::array<std::byte, kCounterBytes> number{std::byte{7}};
  for (std::size_t i = 0; i < adds.size(); ++i)
    writer.add({.opcode = Opcode::kAdd, .value = number}, 0);
  std::array<std::byte, kMostOutcomeBytes> out{};
  EXPECT_EQ(outcome_of_pack(adds, writer.finish(), out).size(), kMostOutcomeBytes);
}

class EndedSessions : public ::testing::Test {
 protected:
  void put(std::uint64_t session, std::shared_ptr<const User> user = nullptr) {
    archive_.put(session, std::move(user), std::make_shared<Outcomes>());
  }
  static std::shared_ptr<const User> user(const char* name, std::byte key = {}) {
    return std::make_shared<const User>(
        User{.name = name, .role = Role::kWrite, .keys = {.stored_key = {key}}});
  }
  ManualClock clock_;
  OutcomeArchive archive_{clock_, 3};
};

TEST_F(EndedSessions, AreForgottenOldestFirst) {
  for (std::uint64_t session = 1; session <= 5; ++session)
    put(session);
  EXPECT_EQ(archive_.size(), 3U);
  for (std::uint64_t session = 1; session <= 6; ++session)
    EXPECT_EQ(archive_.find(session, nullptr) != nullptr, session >= 3 && session <= 5) << session;
}

TEST_F(EndedSessions, AreForgottenAfterSomeMinutes) {
  put(1);
  clock_.advance(OutcomeArchive::kKeptFor);
  EXPECT_NE(archive_.find(1, nullptr), nullptr);
  put(2);
  clock_.advance(1);
  EXPECT_EQ(archive_.find(1, nullptr), nullptr);
  EXPECT_NE(archive_.find(2, nullptr), nullptr);
  put(3);
  EXPECT_EQ(archive_.size(), 2U) << "the memory is free again";
}

// Not of one with the same name and other keys either: it was revoked and is another one.
TEST_F(EndedSessions, AreTheirUsersOnly) {
  put(1, user("anna"));
  put(2);
  EXPECT_NE(archive_.find(1, user("anna").get()), nullptr);
  EXPECT_EQ(archive_.find(1, user("ben").get()), nullptr);
  EXPECT_EQ(archive_.find(1, user("anna", std::byte{1}).get()), nullptr);
  EXPECT_EQ(archive_.find(1, nullptr), nullptr);
  EXPECT_EQ(archive_.find(2, user("anna").get()), nullptr);
}

// ---- a worker whose clients lose their connections

class LostWrites : public WorkerTest {
 protected:
  // Returns the answer to a returning client about this write of that session.
  Response outcome(std::uint64_t session, std::uint64_t sequence) {
    FakeConnection* const client = ask_for(session, sequence);
    turn();
    told_ = client->posted.at(0).bytes;
    leave(*client);
    const auto told = decode_response(told_);
    EXPECT_TRUE(told && told->opcode == Opcode::kOutcome);
    return told ? *told : Response{};
  }
  FakeConnection* ask_for(std::uint64_t session, std::uint64_t sequence) {
    FakeConnection* const client = connect();
    std::array<std::byte, kWriteIdBytes> value;
    encode(WriteId{.session = session, .sequence = sequence}, value);
    ask(*client, {.opcode = Opcode::kOutcome, .sequence = kLanes, .value = value});
    return client;
  }
  void leave(FakeConnection& client) {
    queue().complete_sends(client);
    queue().end(client);
    turn();
  }
  void add(FakeConnection& from, std::uint64_t sequence, std::int64_t summand,
           Durability durability = Durability::kDefault) {
    std::array<std::byte, kCounterBytes> number;
    store_le(number.data(), summand);
    ask(from, {.opcode = Opcode::kAdd,
               .sequence = sequence,
               .durability = durability,
               .key = as_bytes("n"),
               .value = number});
  }
  static Code code_of(const Response& response) { return static_cast<Code>(response.code); }

  std::vector<std::byte> told_;  // the last outcome(): its value lies here
};

TEST_F(LostWrites, AreAnsweredAsTheyWereAtFirst) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  add(*client, number_of(1, 0), 40);
  ask(*client, {.opcode = Opcode::kPut,
                .sequence = number_of(2, 1),
                .condition = Condition::kIfAbsent,
                .key = as_bytes("key"),
                .value = as_bytes("value")});
  turn();
  const Response sum = answer(*client, 0);
  const Response put = answer(*client, 1);
  leave(*client);
  for (int i = 0; i < 2; ++i) {
    const Response told = outcome(session, number_of(1, 0));
    EXPECT_EQ(told.code, 0);
    EXPECT_EQ(told.version, sum.version);
    EXPECT_EQ(told.slot.bits, sum.slot.bits);
    ASSERT_EQ(told.value.size(), kCounterBytes);
    EXPECT_EQ(load_le<std::int64_t>(told.value.data()), 40);
  }
  EXPECT_EQ(outcome(session, number_of(2, 1)).version, put.version);
  EXPECT_EQ(code_of(outcome(session, number_of(2, 0))), Code::kNotFound) << "never sent";
  EXPECT_EQ(code_of(outcome(session, number_of(2, 2))), Code::kNotFound);
  EXPECT_EQ(code_of(outcome(session + 100, number_of(1, 0))), Code::kStale) << "no such session";
}

// A refused write has changed nothing: it may be sent again.
TEST_F(LostWrites, ThatWereRefusedWereNotApplied) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  ask(*client, {.opcode = Opcode::kRemove, .sequence = number_of(1, 0), .key = as_bytes("none")});
  ask(*client, {.opcode = Opcode::kGet, .sequence = number_of(1, 1), .key = as_bytes("none")});
  turn();
  leave(*client);
  EXPECT_EQ(code_of(outcome(session, number_of(1, 0))), Code::kNotFound);
  EXPECT_EQ(code_of(outcome(session, number_of(1, 1))), Code::kNotFound);
}

// The session ends with the acceptor's call, before the end of its connection is known. What
// arrived and was not begun never is (ONCE-2).
TEST_F(LostWrites, AreDecidedWhenTheClientComesBack) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  add(*client, number_of(1, 0), 40);
  turn();
  (void)worker_->sessions().end_session(session, Deadline::after_ms(clock_, 0));
  add(*client, number_of(2, 0), 40);
  turn();
  EXPECT_EQ(outcome(session, number_of(1, 0)).code, 0);
  EXPECT_EQ(code_of(outcome(session, number_of(2, 0))), Code::kNotFound);
  leave(*client);
  EXPECT_EQ(outcome(session, number_of(1, 0)).code, 0) << "the end of the connection loses nothing";
}

TEST_F(LostWrites, OfASessionThatGoesOnAreNotTold) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  add(*client, number_of(1, 0), 40);
  turn();
  EXPECT_EQ(code_of(outcome(session, number_of(1, 0))), Code::kStale);
  EXPECT_EQ(code_of(outcome(session, number_of(2, 0))), Code::kStale)
      << "it may still be sent: nobody says that it never will be applied";
}

// ONCE-4
TEST_F(LostWrites, ThatAwaitAMarkAreAnsweredWhenItHasMoved) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  add(*client, number_of(1, 0), 40, Durability::kSync);
  turn();
  leave(*client);
  FakeConnection* const back = ask_for(session, number_of(1, 0));
  turn();
  EXPECT_TRUE(back->posted.empty());
  write_all();
  turn();
  EXPECT_TRUE(back->posted.empty());
  sync_all();
  turn();
  ASSERT_EQ(back->posted.size(), 1U);
  EXPECT_EQ(answer(*back, 0).code, 0);
  EXPECT_EQ(load_le<std::int64_t>(answer(*back, 0).value.data()), 40);
  EXPECT_GE(answer(*back, 0).sync_mark, answer(*back, 0).version);
}

TEST_F(LostWrites, ThatTheDiskFailsMayHaveHappened) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  add(*client, number_of(1, 0), 40, Durability::kWal);
  turn();
  leave(*client);
  FakeConnection* const back = ask_for(session, number_of(1, 0));
  turn();
  log_->set_disk_state(DiskState::kFailing);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(back->posted.size(), 1U);
  EXPECT_EQ(code_of(answer(*back, 0)), Code::kIo);
  EXPECT_EQ(answer(*back, 0).flags, Response::kMayHaveHappened);
}

class LostPacks : public LostWrites {
 protected:
  LostPacks() {
    transport_.pins = false;  // else packs are short
    worker_ = std::move(*Worker::create(parts_of_worker(), {.clients = kClients}));
  }
  void pack(FakeConnection& from, std::uint64_t sequence, std::span<const Request> operations) {
    std::vector<std::byte> bytes(1 << 16);
    PackWriter writer(bytes);
    for (const Request& one : operations)
      writer.add(one);
    ask(from, {.opcode = Opcode::kPack, .sequence = sequence, .value = writer.finish()});
    turn();
  }
};

TEST_F(LostPacks, HaveAllTheirResults) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  const std::vector<Request> puts(
      kMaxPacked, {.opcode = Opcode::kPut, .key = as_bytes("key"), .value = as_bytes("value")});
  pack(*client, number_of(1, 2), puts);
  const Response first = answer(*client, 0);
  const std::vector<std::byte> results(first.value.begin(), first.value.end());
  leave(*client);
  const Response told = outcome(session, number_of(1, 2));
  EXPECT_EQ(told.code, 0);
  EXPECT_TRUE(std::ranges::equal(told.value, results));
}

// A get of a pack is sent by itself; a refusal keeps its code and loses its sentence.
TEST_F(LostPacks, TellOfTheirWritesAlone) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  const std::array<std::byte, kCounterBytes> one{std::byte{1}};
  const Request operations[] = {
      {.opcode = Opcode::kPut, .key = as_bytes("key"), .value = as_bytes("value")},
      {.opcode = Opcode::kGet, .key = as_bytes("key")},
      {.opcode = Opcode::kAdd, .key = as_bytes("key"), .value = one},
      {.opcode = Opcode::kAdd, .key = as_bytes("n"), .value = one}};
  pack(*client, number_of(1, 0), operations);
  pack(*client, number_of(1, 1), std::span(operations).subspan(1, 1));
  leave(*client);
  const Response told = outcome(session, number_of(1, 0));
  ASSERT_EQ(told.code, 0);
  ResultReader reader(told.value);
  EXPECT_EQ(reader.next(Opcode::kPut)->code, 0);
  EXPECT_EQ(reader.next(Opcode::kGet)->flags, Response::kAlone);
  const auto refused = reader.next(Opcode::kAdd);
  EXPECT_EQ(code_of(*refused), Code::kWrongType);
  EXPECT_TRUE(refused->value.empty());
  EXPECT_EQ(load_le<std::int64_t>(reader.next(Opcode::kAdd)->value.data()), 1);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(code_of(outcome(session, number_of(1, 1))), Code::kNotFound) << "it only reads";
}

TEST_F(LostPacks, WhoseRefusalsAreLongAreCutToWhatIsKept) {
  FakeConnection* const client = connect();
  const std::uint64_t session = sessions_;
  put(*client, as_bytes("key"), as_bytes("value"));
  turn();
  const std::array<std::byte, kCounterBytes> one{std::byte{1}};
  const std::vector<Request> adds(kMaxPacked,
                                  {.opcode = Opcode::kAdd, .key = as_bytes("key"), .value = one});
  pack(*client, number_of(1, 0), adds);
  ASSERT_GT(answer(*client, 1).value.size(), kMostOutcomeBytes);
  leave(*client);
  const Response told = outcome(session, number_of(1, 0));
  ResultReader reader(told.value);
  for (std::size_t i = 0; i < kMaxPacked; ++i)
    EXPECT_EQ(code_of(*reader.next(Opcode::kAdd)), Code::kWrongType);
}

// Sequences that no client that keeps to the lanes would have.
TEST_F(LostWrites, CannotBeFoundByTryingEverything) {
  FakeConnection* const client = connect();
  for (std::uint64_t i = 1; i <= 200; ++i) {
    add(*client, i * 7919 % 1000, 1);
    turn();
    queue().complete_sends(*client);
    turn();
  }
  const std::uint64_t session = sessions_;
  leave(*client);
  std::size_t found = 0;
  FakeConnection* const asker = connect();
  std::array<std::byte, kWriteIdBytes> value;
  for (std::uint64_t sequence = 1; sequence < 1000; ++sequence) {
    encode(WriteId{.session = session, .sequence = sequence}, value);
    ask(*asker, {.opcode = Opcode::kOutcome, .sequence = sequence, .value = value});
    turn();
    found += answer(*asker, sequence - 1).code == 0 ? 1U : 0U;
    queue().complete_sends(*asker);
    turn();
  }
  EXPECT_EQ(found, kMaxCredits) << "one a lane";
}

}  // namespace
}  // namespace rkv::server
