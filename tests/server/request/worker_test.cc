// The worker's turns, without a thread and without a network.
#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "common/log.h"
#include "tests/server/request/worker_fixture.h"

namespace rkv::server {
namespace {

TEST_F(WorkerTest, TheReceiveQueueHoldsTheCreditsOfAllClients) {
  EXPECT_GE(queue().options.receive_buffers, kClients * kMaxCredits);
  EXPECT_EQ(queue().options.receive_bytes, worker_->room().receive_bytes);
  EXPECT_GE(worker_->room().bytes(),
            std::size_t{queue().options.receive_buffers} * queue().options.receive_bytes);
}

// The worker's longest messages bound the sizes that a client may ask for in its handshake.
TEST_F(WorkerTest, AConnectionsRingsAreAsLongAsItsMessages) {
  const rdma::ConnectionOptions options = worker_->connection_options(Role::kAdmin);
  EXPECT_EQ(options.send_bytes, kMaxMessageBytes);
}

// A client may cost 64 KiB in all: its places in the device's queues come on top
// (tests/system/client_memory_test.cc).
TEST_F(WorkerTest, AClientsMessagesTakeLessThan24KiB) {
  const std::size_t some = MessageBuffers::of(transport_, 100).bytes();
  EXPECT_LE(MessageBuffers::of(transport_, 101).bytes() - some, std::size_t{24} << 10);
  EXPECT_LE(some, (std::size_t{100 * 24} << 10) + (std::size_t{6} << 20));
}

// A client that comes back: what it sent over its old connection and was not begun never will be.
TEST_F(WorkerTest, AnEndedSessionsRequestsDoNotBegin) {
  FakeConnection* const old = connect();
  FakeConnection* const other = connect();
  put(*old, as_bytes("key"), as_bytes("too late"));
  put(*other, as_bytes("other"), as_bytes("in time"));
  bool ended = false;
  std::thread acceptor(
      [&] { ended = worker_->sessions().end_session(1, Deadline::after_ms(clock_, 60'000)); });
  // The worker's thread is this one; the request to end stands before the first turn, or the put
  // would rightly be carried out.
  while (!worker_->sessions().has_mail())
    std::this_thread::yield();
  turn();
  acceptor.join();
  EXPECT_TRUE(ended);
  std::vector<std::byte> value(kMaxInlineBytes);
  EXPECT_FALSE(store_->get(as_bytes("key"), value)) << "carried out after its session's end";
  EXPECT_TRUE(store_->get(as_bytes("other"), value));
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(WorkerTest, EndingAnUnknownSessionEndsNobody) {
  FakeConnection* const client = connect();
  bool ended = false;
  std::thread acceptor(
      [&] { ended = worker_->sessions().end_session(77, Deadline::after_ms(clock_, 60'000)); });
  while (!worker_->sessions().has_mail())
    std::this_thread::yield();
  turn();
  acceptor.join();
  EXPECT_TRUE(ended);
  ping(*client);
  turn();
  EXPECT_EQ(client->posted.size(), 1U);
}

TEST_F(WorkerTest, AClientWhosePlaceIsGivenToAnotherIsEnded) {
  FakeConnection* const silent = connect();
  FakeConnection* const busy = connect();
  worker_->sessions().give_up(77);  // nobody here
  worker_->sessions().give_up(1);
  turn();
  EXPECT_FALSE(silent->alive());
  EXPECT_EQ(worker_->counters().drops(DropReason::kSilent), 1U);
  EXPECT_TRUE(busy->alive());
  ping(*busy);
  turn();
  EXPECT_EQ(busy->posted.size(), 1U);
}

// Its place was given away while the connection was being made, and nobody names it again.
TEST_F(WorkerTest, AClientThatWasNamedBeforeItCameIsEnded) {
  Places places(1);
  auto place = places.take(9, "192.0.2.1:1", clock_.now());
  clock_.advance(Places::kUnheard);
  ASSERT_EQ(places.victim("192.0.2.2:1", clock_.now()), 9U);
  worker_->sessions().give_up(9);
  turn();
  auto connection = std::make_unique<FakeConnection>();
  FakeConnection* const client = connection.get();
  ASSERT_TRUE(worker_->sessions().reserve_client());
  worker_->sessions().adopt({.connection = std::move(connection),
                             .session = 9,
                             .credits = 4,
                             .name = "",
                             .place = std::move(place)});
  turn();
  EXPECT_FALSE(client->alive());
}

TEST_F(WorkerTest, EachRequestShowsThatItsClientIsThere) {
  Places places(2);
  const auto one = places.take(1, "192.0.2.1:1", clock_.now());
  auto connection = std::make_unique<FakeConnection>();
  FakeConnection* const client = connection.get();
  ASSERT_TRUE(worker_->sessions().reserve_client());
  worker_->sessions().adopt({.connection = std::move(connection),
                             .session = 2,
                             .credits = 4,
                             .name = "",
                             .place = places.take(2, "192.0.2.2:1", clock_.now())});
  turn();
  clock_.advance(Places::kSilent);
  ping(*client);
  turn();
  EXPECT_EQ(places.victim("192.0.2.3:1", clock_.now()), 1U);
  EXPECT_EQ(places.victim("192.0.2.3:1", clock_.now()), std::nullopt);
  queue().end(*client);
  turn();
  clock_.advance(2 * Places::kSilent);
  EXPECT_EQ(places.victim("192.0.2.3:1", clock_.now()), std::nullopt) << "it disconnected";
}

TEST_F(WorkerTest, AnswersABatchWithOnePost) {
  FakeConnection* const client = connect();
  for (std::uint64_t i = 0; i < 4; ++i)
    ping(*client, 100 + i);
  worker_->poll_once();
  ASSERT_EQ(client->posted.size(), 4U);
  EXPECT_EQ(client->posts, 1);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer(*client, i).sequence, 100 + i);
    EXPECT_TRUE(client->posted[i].inline_data);
  }
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(WorkerTest, StoresAndFinds) {
  FakeConnection* const client = connect();
  const auto value = patterned(1, 5000);
  put(*client, as_bytes("key"), value);
  turn();
  EXPECT_EQ(answer(*client, 0).code, 0);
  ask(*client, {.opcode = Opcode::kGet, .sequence = 2, .key = as_bytes("key")});
  turn();
  EXPECT_FALSE(client->posted[1].inline_data);
  EXPECT_TRUE(client->posted[1].signaled) << "its buffer comes back by the completion";
  EXPECT_TRUE(test::equal(answer(*client, 1).value, value));
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kPuts), 1U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kGets), 1U);
}

TEST_F(WorkerTest, OneClientMayWorkForEver) {
  FakeConnection* const client = connect();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    ping(*client, i);
    turn();
    ASSERT_EQ(client->posted.size(), i + 1) << "stalled";
    if (i % 3 == 0) queue().complete_sends(*client);
  }
}

TEST_F(WorkerTest, MessagesBeforeAdoptionAreKept) {
  ASSERT_TRUE(worker_->sessions().reserve_client());
  auto connection = std::make_unique<FakeConnection>();
  FakeConnection* const client = connection.get();
  ping(*client, 7);
  turn();
  EXPECT_TRUE(client->posted.empty());
  worker_->sessions().adopt({.connection = std::move(connection),
                             .session = 1,
                             .credits = 4,
                             .name = "",
                             .place = nullptr});
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(answer(*client, 0).sequence, 7U);
}

TEST_F(WorkerTest, AClientThatEndsBeforeAdoptionIsForgotten) {
  ASSERT_TRUE(worker_->sessions().reserve_client());
  auto connection = std::make_unique<FakeConnection>();
  ping(*connection, 7);
  queue().end(*connection);
  turn();
  worker_->sessions().adopt({.connection = std::move(connection),
                             .session = 1,
                             .credits = 4,
                             .name = "",
                             .place = nullptr});
  turn();
  EXPECT_EQ(worker_->sessions().clients(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(WorkerTest, MoreThanTheCreditsEndsTheClientAndNoOther) {
  FakeConnection* const greedy = connect(2);
  FakeConnection* const other = connect(2);
  put(*other, as_bytes("k"), as_bytes("v"));
  for (int i = 0; i < 2; ++i)
    ask(*greedy, {.opcode = Opcode::kFlush});
  worker_->poll_once();
  ASSERT_EQ(greedy->aborts, 0);
  ping(*greedy);  // a third, while two flushes wait
  ping(*other);
  worker_->poll_once();
  EXPECT_EQ(greedy->aborts, 1);
  EXPECT_EQ(other->posted.size(), 2U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kDropped), 1U);
  EXPECT_EQ(worker_->counters().drops(DropReason::kCredits), 1U);
  queue().end(*greedy);
  turn();
  EXPECT_EQ(worker_->sessions().clients(), 1U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(WorkerTest, AnUnreadableHeaderEndsTheClientAndNoOther) {
  FakeConnection* const bad = connect();
  FakeConnection* const other = connect();
  queue().receive(*bad, patterned(1, 20));
  ping(*other);
  worker_->poll_once();
  EXPECT_EQ(bad->aborts, 1);
  EXPECT_EQ(other->posted.size(), 1U);
}

TEST_F(WorkerTest, AFlushIsAnsweredWhenTheMarkHasMoved) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("k"), as_bytes("v"));
  ask(*client, {.opcode = Opcode::kFlush, .sequence = 9});
  turn();
  ASSERT_EQ(client->posted.size(), 1U);
  EXPECT_EQ(asked_, log_->last_begun());
  const int wakes = queue().wakes;
  sync_all();
  EXPECT_EQ(queue().wakes, wakes + 1);
  turn();
  ASSERT_EQ(client->posted.size(), 2U);
  EXPECT_EQ(answer(*client, 1).sequence, 9U);
  EXPECT_EQ(answer(*client, 1).code, 0);
  worker_->wake_for_answers();
  EXPECT_EQ(queue().wakes, wakes + 1) << "nobody waits any more";
}

TEST_F(WorkerTest, AFlushIsAnsweredWithTheErrorWhenTheDiskFails) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("k"), as_bytes("v"));
  ask(*client, {.opcode = Opcode::kFlush, .sequence = 9});
  turn();
  log_->set_disk_state(DiskState::kFailing);
  worker_->wake_for_answers();
  turn();
  ASSERT_EQ(client->posted.size(), 2U);
  EXPECT_EQ(answer(*client, 1).code, static_cast<std::uint8_t>(Code::kIo));
}

TEST_F(WorkerTest, LargeRepliesWaitForBuffersInTheirTurn) {
  FakeConnection* clients[] = {connect(), connect(), connect()};
  put(*clients[0], as_bytes("key"), patterned(1, kMaxInlineBytes));
  turn();
  queue().complete_sends(*clients[0]);
  turn();
  // Each client takes what it is sent, but its device is slow to say so.
  std::size_t asked = 0;
  for (int round = 0; round < 3; ++round) {
    for (FakeConnection* client : clients) {
      for (int i = 0; i < 2; ++i, ++asked)
        ask(*client, {.opcode = Opcode::kGet, .sequence = asked, .key = as_bytes("key")});
    }
    turn();
  }
  const auto answered = [&] {
    std::size_t total = 0;
    for (const FakeConnection* client : clients)
      total += client->posted.size();
    return total - 1;  // the put
  };
  EXPECT_LT(answered(), asked) << "the share of each is smaller than that (SERVE-8)";
  EXPECT_EQ(queue().free_buffers(), all_buffers_ - (asked - answered()));
  ping(*clients[1], 1000);
  turn();
  EXPECT_EQ(answer(*clients[1], clients[1]->posted.size() - 1).sequence, 1000U)
      << "small replies pass";
  for (FakeConnection* client : clients)
    queue().complete_sends(*client);
  turn();
  EXPECT_EQ(answered(), asked + 1);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
  EXPECT_GT(worker_->counters().get(WorkerCounters::kDeferred), 0U);
  EXPECT_EQ(worker_->counters().get(WorkerCounters::kGets), asked);
}

TEST_F(WorkerTest, PutsWaitWhileRepliesPileUpAndRunOnce) {
  FakeConnection* const client = connect();
  for (std::uint64_t i = 0; i < 40; ++i) {
    put(*client, as_bytes("key-" + std::to_string(i)), as_bytes("v"));
    turn();
  }
  EXPECT_EQ(client->posted.size(), std::size_t{kRepliesInFlight}) << "what the connection takes";
  EXPECT_EQ(client->aborts, 1) << "the rest was more than its credits";
}

TEST_F(WorkerTest, AnEndTakesEverythingOfTheClientWithIt) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("key"), patterned(1, kMaxInlineBytes));
  ask(*client, {.opcode = Opcode::kFlush});
  ask(*client, {.opcode = Opcode::kGet, .key = as_bytes("key")});
  worker_->poll_once();
  ping(*client);
  queue().end(*client);
  turn();
  EXPECT_EQ(worker_->sessions().clients(), 0U);
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
  sync_all();
  turn();
  // All large buffers are back: as many can be in flight again as there ever were.
  FakeConnection* const next = connect();
  ask(*next, {.opcode = Opcode::kGet, .key = as_bytes("key")});
  turn();
  EXPECT_EQ(answer(*next, 0).value.size(), kMaxInlineBytes);
}

TEST_F(WorkerTest, PlacesAreCountedAndComeBack) {
  for (std::uint32_t i = 0; i < kClients; ++i)
    EXPECT_TRUE(worker_->sessions().reserve_client());
  EXPECT_FALSE(worker_->sessions().reserve_client());
  worker_->sessions().cancel_client();
  FakeConnection* const client = connect();
  EXPECT_FALSE(worker_->sessions().reserve_client());
  queue().end(*client);
  turn();
  EXPECT_TRUE(worker_->sessions().reserve_client());
}

// Clients that keep to the protocol, at random; at the end every buffer is back.
TEST_F(WorkerTest, RandomTrafficLosesNoBuffer) {
  Random random(test::test_seed());
  const auto large = patterned(1, kMaxInlineBytes);
  struct Client {
    FakeConnection* connection;
    std::size_t asked;
  };
  std::vector<Client> clients;
  for (int step = 0; step < 20'000; ++step) {
    if (clients.size() < kClients && random.below(20) == 0) clients.push_back({connect(), 0});
    if (clients.empty()) continue;
    const std::size_t chosen = random.below(clients.size());
    Client& client = clients[chosen];
    const std::string key = "k" + std::to_string(random.below(20));
    const bool has_credit = client.asked - client.connection->posted.size() < kMaxCredits;
    switch (has_credit ? random.below(8) : 5 + random.below(3)) {
      case 0:
        put(*client.connection, as_bytes(key), Bytes(large).first(random.below(300)));
        ++client.asked;
        break;
      case 1:
        put(*client.connection, as_bytes(key), Bytes(large).first(random.below(large.size())));
        ++client.asked;
        break;
      case 2:
      case 3:
        ask(*client.connection, {.opcode = Opcode::kGet, .key = as_bytes(key)});
        ++client.asked;
        break;
      case 4:
        ask(*client.connection, {.opcode = Opcode::kFlush});
        ++client.asked;
        break;
      case 5:
        queue().complete_sends(*client.connection);
        break;
      case 6:
        sync_all();
        break;
      default:
        if (random.below(30) != 0) break;
        queue().end(*client.connection);
        clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(chosen));
        turn();
    }
    if (random.below(2) == 0) worker_->poll_once();
  }
  for (int i = 0; i < 50; ++i) {
    sync_all();
    for (const Client& client : clients)
      queue().complete_sends(*client.connection);
    turn();
  }
  for (const Client& client : clients) {
    EXPECT_EQ(client.connection->posted.size(), client.asked);
    EXPECT_EQ(client.connection->aborts, 0);
  }
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

// One who knows the whole session number can make the server end this client's connection, and many
// people read logs.
TEST_F(WorkerTest, TheLogShowsTheBeginningOfASessionAlone) {
  std::vector<std::string> shown;
  set_event_sink([&](const LogEvent& event) {
    for (const LogField& field : event.fields) {
      if (field.name == "session") shown.push_back(field.value);
      EXPECT_EQ(event.text.find("3456789abcdef0"), std::string::npos) << event.text;
    }
  });
  sessions_ = 0x123456789abcdeef;
  FakeConnection* const client = connect();
  client->abort();
  queue().arrived.push_back({.kind = rdma::Completion::Kind::kDisconnected, .connection = client});
  turn();
  set_event_sink([](const LogEvent&) {});
  EXPECT_EQ(shown, (std::vector<std::string>{"123456", "123456"}));
}

std::shared_ptr<const User> user_of(const std::string& name, Role role) {
  return std::make_shared<const User>(
      User{.name = name, .role = role, .keys = ClientKeys::of(Secret::draw()).stored});
}
std::shared_ptr<const Users> users_of(const std::vector<std::shared_ptr<const User>>& users) {
  std::string text;
  for (const auto& user : users)
    text += Users::line_of(*user) + "\n";
  std::string problem;
  return *Users::parse(text, "users", &problem);
}

class WorkerUsers : public WorkerTest {
 protected:
  FakeConnection* connect_as(std::shared_ptr<const User> user, bool turns = true) {
    EXPECT_TRUE(worker_->sessions().reserve_client());
    auto connection = std::make_unique<FakeConnection>();
    FakeConnection* const raw = connection.get();
    worker_->sessions().adopt({.connection = std::move(connection),
                               .session = ++sessions_,
                               .credits = kMaxCredits,
                               .name = "test",
                               .place = nullptr,
                               .user = std::move(user)});
    if (turns) worker_->poll_once();
    return raw;
  }
  const std::shared_ptr<const User> anna_ = user_of("anna", Role::kWrite);
  const std::shared_ptr<const User> rita_ = user_of("rita", Role::kRead);
};

TEST_F(WorkerUsers, TheUsersRoleDecides) {
  FakeConnection* const anna = connect_as(anna_);
  FakeConnection* const rita = connect_as(rita_);
  FakeConnection* const anyone = connect_as(nullptr);
  for (FakeConnection* const client : {anna, rita, anyone}) {
    put(*client, as_bytes("key"), as_bytes("value"));
    ask(*client, {.opcode = Opcode::kStats, .sequence = 2});
  }
  turn();
  const auto no = static_cast<std::uint8_t>(Code::kPermission);
  EXPECT_EQ(answer(*anna, 0).code, 0);
  EXPECT_EQ(answer(*anna, 1).code, no);
  EXPECT_EQ(answer(*rita, 0).code, no);
  EXPECT_EQ(answer(*rita, 1).code, no);
  EXPECT_EQ(answer(*anyone, 0).code, 0) << "without users everyone is an administrator";
  EXPECT_EQ(answer(*anyone, 1).code, 0);
}

TEST_F(WorkerUsers, SessionsOfRevokedUsersEndAndNoOthers) {
  FakeConnection* const anna = connect_as(anna_);
  FakeConnection* const rita = connect_as(rita_);
  worker_->sessions().end_revoked(users_of({anna_, rita_}));
  worker_->poll_once();
  EXPECT_TRUE(anna->alive());
  EXPECT_TRUE(rita->alive());
  put(*anna, as_bytes("key"), as_bytes("value"));  // has arrived, and is not begun any more
  worker_->sessions().end_revoked(users_of({user_of("anna", Role::kWrite), rita_}));
  turn();
  EXPECT_FALSE(anna->alive()) << "a new secret";
  EXPECT_TRUE(anna->posted.empty());
  EXPECT_TRUE(rita->alive());
  EXPECT_EQ(worker_->counters().drops(DropReason::kRevoked), 1U);
}

// Checked with the users of before, and admitted after they were replaced.
TEST_F(WorkerUsers, ARevokedUserThatArrivesLateEndsAtOnce) {
  worker_->sessions().end_revoked(users_of({rita_}));
  worker_->poll_once();
  EXPECT_FALSE(connect_as(anna_)->alive());
  EXPECT_TRUE(connect_as(rita_)->alive());
}

TEST_F(WorkerUsers, ARevokedUserThatArrivesWithTheNewUsersEndsAtOnce) {
  FakeConnection* const anna = connect_as(anna_, false);
  FakeConnection* const rita = connect_as(rita_, false);
  worker_->sessions().end_revoked(users_of({rita_}));
  worker_->poll_once();
  EXPECT_FALSE(anna->alive());
  EXPECT_TRUE(rita->alive());
}

// REVOKE-1
TEST_F(WorkerUsers, ARevocationCountsTheSessionsThatItEndsAndIsThenDone) {
  FakeConnection* const first = connect_as(anna_);
  FakeConnection* const second = connect_as(anna_);
  FakeConnection* const rita = connect_as(rita_);
  int finished = 0;
  const auto revocation = std::make_shared<Revocation>("anna", 1, [&] { ++finished; });
  worker_->sessions().end_revoked(users_of({rita_}), revocation);
  EXPECT_FALSE(revocation->done());
  worker_->poll_once();
  EXPECT_TRUE(revocation->done());
  EXPECT_EQ(finished, 1);
  EXPECT_EQ(revocation->sessions(), 2U);
  EXPECT_FALSE(first->alive());
  EXPECT_FALSE(second->alive());
  EXPECT_TRUE(rita->alive());
  const auto again = std::make_shared<Revocation>("anna", 1, [] {});
  worker_->sessions().end_revoked(users_of({rita_}), again);
  worker_->poll_once();
  EXPECT_EQ(again->sessions(), 0U) << "they are ending already";
}

TEST_F(WorkerUsers, AServerWithoutUsersRevokesNobody) {
  FakeConnection* const anyone = connect_as(nullptr);
  ask(*anyone, {.opcode = Opcode::kRevoke, .sequence = 2, .value = as_bytes("anna")});
  turn();
  EXPECT_EQ(answer(*anyone, 0).code, static_cast<std::uint8_t>(Code::kUnsupported));
  EXPECT_THAT(std::string(as_text(answer(*anyone, 0).value)), ::testing::HasSubstr("--users"));
  EXPECT_EQ(answer(*anyone, 0).sequence, 2U);
}

class WorkerRevocations : public WorkerUsers {
 protected:
  WorkerRevocations() {
    Worker::Parts parts = parts_of_worker();
    parts.revocations = &revocations_;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
  }
  const std::shared_ptr<const User> admin_ = user_of("root", Role::kAdmin);
  const std::shared_ptr<const Users> users_ = users_of({anna_, rita_, admin_});
  Revocations::EndSessions end_sessions(bool in_group) {
    return [this, in_group](const std::shared_ptr<const Users>& users, std::string_view user) {
      auto revocation =
          std::make_shared<Revocation>(user, 1, [this] { worker_->wake_for_answers(); }, in_group);
      worker_->sessions().end_revoked(users, revocation);
      return revocation;
    };
  }
  Revocations revocations_{users_, std::make_shared<Authentication>(users_), end_sessions(false)};
  void revoke(FakeConnection& by, std::string_view name) {
    ask(by, {.opcode = Opcode::kRevoke, .sequence = 2, .value = as_bytes(name)});
  }
};

// The answer comes after the end of the sessions, not before.
TEST_F(WorkerRevocations, AreAnsweredWhenTheSessionsHaveEnded) {
  FakeConnection* const anna = connect_as(anna_);
  FakeConnection* const admin = connect_as(admin_);
  revoke(*admin, "anna");
  worker_->poll_once();
  EXPECT_TRUE(anna->alive());
  EXPECT_TRUE(admin->posted.empty());
  turn();
  EXPECT_FALSE(anna->alive());
  const Response response = answer(*admin, 0);
  EXPECT_EQ(response.code, 0);
  EXPECT_EQ(response.opcode, Opcode::kRevoke);
  EXPECT_EQ(response.sequence, 2U);
  EXPECT_EQ(load_le<std::uint64_t>(response.value.data()), 1U);
  EXPECT_TRUE(admin->alive());
}

TEST_F(WorkerRevocations, AreRefusedWithAReason) {
  FakeConnection* const admin = connect_as(admin_);
  FakeConnection* const anna = connect_as(anna_);
  revoke(*admin, "nobody");
  revoke(*admin, "root");
  revoke(*anna, "rita");
  turn();
  EXPECT_EQ(answer(*admin, 0).code, static_cast<std::uint8_t>(Code::kNotFound));
  EXPECT_EQ(answer(*admin, 1).code, static_cast<std::uint8_t>(Code::kInvalidArgument));
  EXPECT_THAT(std::string(as_text(answer(*admin, 1).value)), ::testing::HasSubstr("itself"));
  EXPECT_EQ(answer(*anna, 0).code, static_cast<std::uint8_t>(Code::kPermission));
  EXPECT_THAT(std::string(as_text(answer(*anna, 0).value)),
              ::testing::HasSubstr("revoke needs the role admin"));
}

class WorkerRevocationsInGroup : public WorkerRevocations {
 protected:
  WorkerRevocationsInGroup() {
    Worker::Parts parts = parts_of_worker();
    parts.revocations = &in_group_;
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
  }
  std::function<void(const Status&)> stored_;
  Revocations in_group_{
      users_, std::make_shared<Authentication>(users_), end_sessions(true),
      [this](const std::vector<RevokedSecret>&, std::function<void(const Status&)> done) {
        stored_ = std::move(done);
      }};
};

TEST_F(WorkerRevocationsInGroup, AreAnsweredWhenTheGroupHasThem) {
  FakeConnection* const anna = connect_as(anna_);
  FakeConnection* const admin = connect_as(admin_);
  revoke(*admin, "anna");
  turn();
  EXPECT_FALSE(anna->alive()) << "at once";
  EXPECT_TRUE(admin->posted.empty());
  stored_({});
  turn();
  EXPECT_EQ(answer(*admin, 0).code, 0);
  EXPECT_EQ(load_le<std::uint64_t>(answer(*admin, 0).value.data()), 1U);
}

TEST_F(WorkerRevocationsInGroup, AreAnsweredWithDoubtIfTheGroupDoesNotHaveThem) {
  FakeConnection* const admin = connect_as(admin_);
  revoke(*admin, "anna");
  turn();
  stored_(fail(Code::kIo, "etcd has not stored it"));
  turn();
  EXPECT_EQ(answer(*admin, 0).code, static_cast<std::uint8_t>(Code::kIo));
  EXPECT_EQ(answer(*admin, 0).flags, Response::kMayHaveHappened);
  EXPECT_EQ(as_text(answer(*admin, 0).value), "etcd has not stored it");
}

TEST_F(WorkerTest, AServerWithoutAGroupChangesNone) {
  FakeConnection* const client = connect();
  ask(*client, {.opcode = Opcode::kMovePrimary, .sequence = 2, .value = as_bytes("n2")});
  turn();
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kUnsupported));
}

TEST_F(WorkerTest, ALogLevelIsSetAtOnce) {
  FakeConnection* const client = connect();
  ask(*client, {.opcode = Opcode::kSetLogLevel, .sequence = 2, .value = as_bytes("loud")});
  ask(*client, {.opcode = Opcode::kSetLogLevel, .sequence = 3, .value = as_bytes("debug")});
  turn();
  EXPECT_EQ(answer(*client, 0).code, static_cast<std::uint8_t>(Code::kInvalidArgument));
  EXPECT_EQ(answer(*client, 1).code, 0);
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
  set_log_level(LogLevel::kInfo);
  EXPECT_FALSE(log_enabled(LogLevel::kDebug));
}

class WorkerInGroup : public WorkerTest {
 protected:
  WorkerInGroup() {
    Worker::Parts parts = parts_of_worker();
    parts.change_group = [this](Opcode opcode, std::string_view name) {
      asked_for_ += std::string(to_string(opcode)) + " " + std::string(name) + ";";
      task_ = std::make_shared<GroupTask>([this] { worker_->wake_for_answers(); });
      return task_;
    };
    worker_ = std::move(*Worker::create(parts, {.clients = kClients}));
  }
  std::string asked_for_;
  std::shared_ptr<GroupTask> task_;
};

TEST_F(WorkerInGroup, AChangeIsAnsweredWhenItIsDone) {
  FakeConnection* const client = connect();
  ask(*client, {.opcode = Opcode::kMovePrimary, .sequence = 2, .value = as_bytes("n2")});
  turn();
  EXPECT_EQ(asked_for_, "move_primary n2;");
  EXPECT_TRUE(client->posted.empty());
  task_->finish({});
  turn();
  EXPECT_EQ(answer(*client, 0).code, 0);
  EXPECT_EQ(answer(*client, 0).opcode, Opcode::kMovePrimary);
  ask(*client, {.opcode = Opcode::kRemoveReplica, .sequence = 3, .value = as_bytes("n3")});
  turn();
  task_->finish(fail(Code::kConflict, "it is in sync"));
  turn();
  EXPECT_EQ(answer(*client, 1).code, static_cast<std::uint8_t>(Code::kConflict));
  EXPECT_EQ(as_text(answer(*client, 1).value), "it is in sync");
}

// SERVE-11
TEST_F(WorkerTest, AfterLeaveNoRequestIsBegun) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("before"), as_bytes("x"));
  turn();
  EXPECT_FALSE(worker_->is_quiet());
  worker_->leave();
  put(*client, as_bytes("key"), as_bytes("x"));
  ping(*client, 2);
  turn();
  for (const std::size_t number : {1U, 2U})
    EXPECT_EQ(answer(*client, number).code, static_cast<std::uint8_t>(Code::kNotPrimary));
  EXPECT_TRUE(client->alive());
  EXPECT_TRUE(worker_->is_quiet());
  std::vector<std::byte> value(kMaxInlineBytes);
  EXPECT_TRUE(store_->get(as_bytes("before"), value));
  EXPECT_FALSE(store_->get(as_bytes("key"), value));
  EXPECT_EQ(queue().free_buffers(), all_buffers_);
}

TEST_F(WorkerTest, IsQuietWhenWhatWasBegunIsAnswered) {
  FakeConnection* const client = connect();
  put(*client, as_bytes("key"), as_bytes("x"), Durability::kWal);
  turn();
  worker_->leave();
  turn();
  EXPECT_FALSE(worker_->is_quiet()) << "a write waits for its mark";
  write_all();
  turn();
  EXPECT_EQ(answer(*client, 0).code, 0);
  EXPECT_TRUE(worker_->is_quiet());
}

TEST_F(WorkerUsers, TheDeviceAllowsReadersNoAtomics) {
  EXPECT_EQ(worker_->connection_options(Role::kRead).grant, rdma::Access::kRemoteRead);
  EXPECT_EQ(worker_->connection_options(Role::kWrite).grant, rdma::Access::kRemoteReadAtomic);
  EXPECT_EQ(worker_->connection_options(Role::kAdmin).grant, rdma::Access::kRemoteReadAtomic);
}

}  // namespace
}  // namespace rkv::server
