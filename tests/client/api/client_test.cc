// rkv::Client's promises: what happens to values, errors, deadlines and write outcomes when the
// server is slow, full, gone, restarted or not a server of ours.
#include "rkv/client.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/count_allocations.h"

namespace rkv {
namespace {

// ------------------------------------------------------------------------------ plain operation

TEST_F(ClientTest, GetsOneSidedly) {
  store("key", "value");
  const auto value = client().get("key");
  ASSERT_TRUE(value) << to_string(value.error());
  EXPECT_EQ(value->value, "value");
  EXPECT_EQ(value->version, Version::of(1, 1).bits);
  ASSERT_TRUE(client().get("key"));
  EXPECT_EQ(client().get("absent").error().code, Code::kNotFound);

  const ClientStats stats = client().stats();
  EXPECT_EQ(stats.gets, 3U);
  EXPECT_EQ(stats.one_sided_gets, 3U);
  EXPECT_EQ(stats.rdma_reads, 2U + 1U + 1U);
  EXPECT_EQ(stats.cache_hits, 1U);
  EXPECT_EQ(stats.missing, 1U);
  EXPECT_EQ(server_.requests, 0);
}

TEST_F(ClientTest, GetIntoCopiesOrRefuses) {
  store("key", "value");
  std::array<std::byte, 5> room;
  const auto size = client().get_into("key", room);
  ASSERT_TRUE(size);
  EXPECT_EQ(size->bytes, 5U);
  EXPECT_EQ(as_text(room), "value");
  EXPECT_EQ(client().get_into("key", std::span(room).first(4)).error().code, Code::kTooLarge);
}

// INTO-1. A value that landed on its key would make the key absent.
TEST_F(ClientTest, AKeyInTheMemoryForItsValueIsRefused) {
  store("key", "value");
  store("big", std::string(200'000, 'v'));
  auto memory = client().allocate_buffer(300'000);
  ASSERT_TRUE(memory);
  std::vector<std::byte> own(300'000);
  for (const std::string_view name : {"key", "big"}) {
    for (const std::span<std::byte> room : {memory->bytes(), std::span(own)}) {
      const auto place = room.subspan(40, 3);
      std::memcpy(place.data(), name.data(), 3);
      const std::string_view key = as_text(place);
      const auto refused = [](const Result<ValueSize>& got) {
        return !got && got.error().code == Code::kInvalidArgument;
      };
      if (room.data() != own.data()) {
        EXPECT_TRUE(refused(client().get_into(key, *memory)));
      }
      EXPECT_TRUE(refused(client().get_into(key, room)));
      EXPECT_TRUE(refused(client().get_into(key, room.subspan(42))));
      EXPECT_TRUE(refused(client().get_into(key, room.first(41))));
      EXPECT_EQ(key, name);
      EXPECT_TRUE(client().get_into(key, room.subspan(43)));
      EXPECT_FALSE(refused(client().get_into(key, room.first(40))));
    }
    EXPECT_TRUE(client().get_into(name, *memory));
  }
}

TEST_F(ClientTest, ReadsWithoutAllocating) {
  for (int i = 0; i < 100; ++i)
    store("key " + std::to_string(i), "value");
  std::vector<std::string> texts(100);
  for (std::size_t i = 0; i < texts.size(); ++i)
    texts[i] = "key " + std::to_string(i);
  const std::vector<std::string_view> keys(texts.begin(), texts.end());
  std::array<std::byte, 16> room;
  std::size_t found = 0;
  const auto all = [&] {
    for (const std::string_view key : keys)
      found += client().get_into(key, room) ? 1 : 0;
    client().multi_get_into(
        keys, [&](std::size_t, const Result<ValueView>& value) { found += value ? 1 : 0; });
  };
  all();
  const std::size_t before = testing::allocation_count();
  all();
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(found, 400U);
}

TEST_F(ClientTest, WritesWithoutAllocating) {
  std::array<std::byte, kCounterBytes> number{};
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    if (request.opcode == Opcode::kSwap)
      return Response{.flags = Response::kSwapped, .value = number};
    return Response{.version = Version::of(1, 1), .value = number};
  };
  const std::array<KeyValue, 2> items = {KeyValue{"key", "value"}, KeyValue{"other", "value"}};
  int visited = 0;
  const auto all = [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(client().put("key", "value"));
      EXPECT_TRUE(client().remove("key"));
      EXPECT_TRUE(client().incr("counter"));
      EXPECT_TRUE(client().counter_cas("counter", 1, 2));
      client().multi_put_each(items, [&](std::size_t, const auto&) { ++visited; });
    }
  };
  all();
  const std::size_t before = testing::allocation_count();
  all();
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(visited, 400);
}

TEST_F(ClientTest, LongValuesTravelBothWays) {
  const std::string value(kMaxInlineBytes, 'x');
  store("long", value);
  EXPECT_EQ(client().get("long")->value, value);
  std::string taken;
  server_.answer = [&](const Request& request) {
    taken = as_text(request.value);
    return Response{.version = Version::of(1, 9)};
  };
  const auto version = client().put("other", value);
  ASSERT_TRUE(version);
  EXPECT_EQ(*version, Version::of(1, 9).bits);
  EXPECT_EQ(taken, value);
}

TEST_F(ClientTest, ArgumentsAreCheckedBeforeAnythingIsSent) {
  const std::string long_key(kMaxKeyBytes + 1, 'k');
  const std::string long_value(kMaxValueBytes + 1, 'v');
  EXPECT_EQ(client().get("").error().code, Code::kInvalidArgument);
  EXPECT_EQ(client().get(long_key).error().code, Code::kTooLarge);
  EXPECT_EQ(client().put("", "v").error().code, Code::kInvalidArgument);
  EXPECT_EQ(client().put("k", long_value).error().code, Code::kTooLarge);
  EXPECT_EQ(client().remove(long_key).error().code, Code::kTooLarge);
  EXPECT_EQ(server_.requests, 0);
}

TEST_F(ClientTest, ADurabilityThatIsNoLevelIsRefused) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));  // its place is known
  const auto refused = [](const auto& result) {
    return !result && result.error().code == Code::kInvalidArgument;
  };
  for (const auto wrong : {static_cast<Durability>(4), static_cast<Durability>(255)}) {
    const WriteOptions write{.durability = wrong};
    const GetOptions get{.at_least = wrong};
    EXPECT_TRUE(refused(client().put("key", "value", write)));
    EXPECT_TRUE(refused(client().put("key", std::string(200'000, 'v'), write)));
    EXPECT_TRUE(refused(client().put_with("key", "value", {.durability = wrong})));
    EXPECT_TRUE(refused(client().remove("key", write)));
    EXPECT_TRUE(refused(client().incr("key", 1, write)));
    EXPECT_TRUE(refused(client().counter_cas("key", 1, 2, write)));
    EXPECT_TRUE(refused(client().get("key", get)));
    std::array<std::byte, 8> room;
    EXPECT_TRUE(refused(client().get_into("key", room, get)));
    for (const auto& each : client().multi_get(std::array<std::string_view, 1>{"key"}, get))
      EXPECT_TRUE(refused(each));
  }
  EXPECT_EQ(server_.requests, 0);
}

TEST_F(ClientTest, SpilledKeysAreAskedFor) {
  spill("key");
  server_.answer = [](const Request& request) {
    return Response{.version = Version::of(1, 5), .value = request.key};
  };
  EXPECT_EQ(client().get("key")->value, "key");
  server_.answer = [](const Request&) {
    return Response{.code = static_cast<std::uint8_t>(Code::kNotFound)};
  };
  EXPECT_EQ(client().get("key").error().code, Code::kNotFound);
  EXPECT_EQ(client().stats().two_sided_gets, 2U);
  EXPECT_EQ(client().stats().one_sided_gets, 0U);
}

TEST_F(ClientTest, OfASpilledKeyTheFirstGetAloneAsks) {
  spill("key");
  const Slot slot = server_.memory->store("key", "value");
  int asked = 0;
  server_.answer = [&](const Request&) {
    ++asked;
    return Response{.version = Version::of(1, 5), .slot = slot, .value = as_bytes("value")};
  };
  EXPECT_EQ(client().get("key")->value, "value");
  EXPECT_EQ(client().get("key")->value, "value");
  EXPECT_EQ(client().multi_get(std::vector<std::string_view>{"key"}).front()->value, "value");
  EXPECT_EQ(asked, 1);
  server_.memory->set_state(slot, RecordState::kLive, RecordState::kSuperseded);
  EXPECT_EQ(client().get("key")->value, "value");
  EXPECT_EQ(asked, 2) << "no longer live: no answer without the server";
}

TEST_F(ClientTest, PutTeachesTheCacheWhereTheRecordIs) {
  store("key", "old");
  ASSERT_TRUE(client().get("key"));
  server_.answer = [&](const Request& request) {
    const Slot slot = server_.memory->store("key", as_text(request.value));
    server_.memory->clear_slots(ScriptedMemory::home("key"));
    server_.memory->add("key", slot);
    return Response{.slot = slot};
  };
  ASSERT_TRUE(client().put("key", "new"));
  const auto reads = client().stats().rdma_reads;
  EXPECT_EQ(client().get("key")->value, "new");
  EXPECT_EQ(client().stats().rdma_reads - reads, 1U);
}

TEST_F(ClientTest, ServerAnswersPingFlushAndStats) {
  server_.answer = [](const Request& request) {
    Response response{.version = Version::of(2, 3)};
    if (request.opcode == Opcode::kStats) response.value = as_bytes("{}");
    return response;
  };
  EXPECT_TRUE(client().ping());
  EXPECT_EQ(*client().flush(), Version::of(2, 3).bits);
  EXPECT_EQ(*client().server_stats(), "{}");
}

// ----------------------------------------------------------------------------------- connecting

TEST_F(ClientTest, RefusalKeepsTheServersSentence) {
  options_.repeat_connect = false;
  server_.reject.resize(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kBusy, .text = "64 clients are connected"}, server_.reject);
  fail_connects(Code::kRejected, 1);
  const auto refused = connect();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kBusy);
  EXPECT_EQ(refusal_, "64 clients are connected");

  encode(ConnectReject{.code = Code::kPermission, .text = "no"}, server_.reject);
  fail_connects(Code::kRejected, 1);
  EXPECT_EQ(connect().error().code, Code::kRejected);
}

TEST_F(ClientTest, AnotherVersionAndStrangersAreTold) {
  server_.reject.resize(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kVersionMismatch, .text = "speaks 2"}, server_.reject);
  fail_connects(Code::kRejected, 1);
  EXPECT_EQ(connect().error().code, Code::kVersionMismatch);

  store_le<std::uint16_t>(server_.reject.data() + 4, kWireVersion + 1);  // a newer server's
  fail_connects(Code::kRejected, 1);
  const auto newer = connect();
  EXPECT_EQ(newer.error().code, Code::kVersionMismatch);
  EXPECT_EQ(to_string(newer.error()),
            "the server speaks version " + std::to_string(kWireVersion + 1) +
                " of the wire format, and this client version " + std::to_string(kWireVersion) +
                ": install the same rkv on both sides");

  server_.reject.assign(20, std::byte{'?'});
  fail_connects(Code::kRejected, 1);
  EXPECT_EQ(connect().error().code, Code::kCorrupt);

  server_.accept = std::vector<std::byte>(196, std::byte{1});
  EXPECT_EQ(connect().error().code, Code::kCorrupt);
}

// ---- a client with a user

class ClientWithUser : public ClientTest {
 protected:
  ClientWithUser() {
    options_.user = "anna";
    options_.secret = std::string(64, '1');
    options_.repeat_connect = false;
    server_.reject.resize(kConnectRejectMaxBytes);
    encode(ConnectReject{.code = Code::kUnauthenticated,
                         .text = "prove who you are",
                         .challenge = Challenge{.stamp = 5, .cookie = {}}},
           server_.reject);
  }
};

TEST_F(ClientWithUser, AServerThatAsksForNoProofIsNotUsed) {
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kUnauthenticated);
  EXPECT_NE(to_string(connected.error()).find("has no users"), std::string::npos);
  EXPECT_EQ(server_.connects, 1);
}

TEST_F(ClientWithUser, AServerThatProvesNothingIsNotUsed) {
  fail_connects(Code::kRejected, 1);
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kUnauthenticated);
  EXPECT_NE(to_string(connected.error()).find("has no users"), std::string::npos);
  EXPECT_EQ(server_.connects, 2);
}

TEST_F(ClientWithUser, AServerWithAWrongAnswerIsNotUsed) {
  std::vector<std::byte> accept(196);
  encode(ConnectAccept{.epoch = 1,
                       .session = 1,
                       .credits = 4,
                       .max_message_bytes = kMaxMessageBytes,
                       .max_sent_bytes = 8192,
                       .root = {.address = 64, .remote_key = 1, .length = kRootPageBytes},
                       .answer = Proof{}},
         accept);
  server_.accept = accept;
  fail_connects(Code::kRejected, 1);
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kUnauthenticated);
  EXPECT_NE(to_string(connected.error()).find("does not know this user's secret"),
            std::string::npos);
}

// The proof came too late: its stamp was too old. Another attempt gets a new one.
TEST_F(ClientWithUser, ASecondChallengeIsTriedAgainLater) {
  fail_connects(Code::kRejected, 2);
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kBusy);
}

TEST_F(ClientWithUser, ARefusalIsNotTriedAgain) {
  options_.repeat_connect = true;
  encode(ConnectReject{.code = Code::kUnauthenticated, .text = "unknown"}, server_.reject);
  fail_connects(Code::kRejected, 5);
  const auto connected = connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, Code::kUnauthenticated);
  EXPECT_EQ(refusal_, "unknown");
  EXPECT_EQ(server_.connects, 1);
}

TEST_F(ClientWithUser, UserAndSecretAreCheckedBeforeAnythingIsSent) {
  const auto wrong = [&](const char* user, const std::string& secret) {
    options_.user = user;
    options_.secret = secret;
    const auto connected = connect();
    return !connected && connected.error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(wrong("anna", ""));
  EXPECT_TRUE(wrong("anna", std::string(63, '1')));
  EXPECT_TRUE(wrong("an na", std::string(64, '1')));
  EXPECT_TRUE(wrong("", std::string(64, '1')));
  EXPECT_EQ(server_.connects, 0);
}

// The connection manager of a server that ends gives such an answer to clients that have just
// called.
TEST_F(ClientTest, ARefusalWithoutAWordIsNotTheLastWord) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  server_.reject.assign(148, std::byte{0});
  fail_connects(Code::kRejected, 1);
  server_.connection->abort();
  EXPECT_EQ(client().get("key")->value, "value");
  EXPECT_EQ(client().stats().reconnects, 1U);

  options_.repeat_connect = false;
  fail_connects(Code::kRejected, 1);
  EXPECT_EQ(connect().error().code, Code::kUnreachable);
}

TEST_F(ClientTest, BadOptionsAreRefused) {
  options_.reads_in_flight = 0;
  EXPECT_EQ(connect().error().code, Code::kInvalidArgument);
  options_ = {};
  options_.requests_in_flight = 257;
  EXPECT_EQ(connect().error().code, Code::kInvalidArgument);
}

// A thread of the server that is stopped between the words of a line looks like this.
TEST_F(ClientTest, ATornRootPageIsReadAgainUntilTheDeadline) {
  server_.memory->root[3] ^= 1;
  const Nanos start = server_.clock.now();
  EXPECT_EQ(connect().error().code, Code::kTimeout);
  EXPECT_EQ(server_.clock.now() - start, 1000 * kNanosPerMs);
  EXPECT_LT(server_.reads, 1000) << "it does not spin";

  const Nanos goes_on_at = server_.clock.now() + 900 * kNanosPerMs;
  server_.before_read = [&] {
    if (server_.clock.now() >= goes_on_at) server_.memory->write_root();
  };
  EXPECT_TRUE(connect());
}

// The fields that no writer changes are judged whatever the checksum says.
TEST_F(ClientTest, ARootPageThatNoStoppedWriterExplainsIsRefusedAtOnce) {
  const Nanos start = server_.clock.now();
  server_.memory->root[0] ^= 1;  // the magic number
  EXPECT_EQ(connect().error().code, Code::kCorrupt);
  server_.memory->root[0] ^= 1;
  server_.memory->root[2] ^= 1;  // the epoch
  EXPECT_EQ(connect().error().code, Code::kCorrupt);
  EXPECT_EQ(server_.clock.now(), start);
}

// A GET that needs a line of the map has another way to its value.
TEST_F(ClientTest, AGetAsksTheServerWhenALineOfTheMapStaysTorn) {
  store("key", "value");
  client();
  ScriptedMemory& memory = *server_.memory;
  memory.clear_slots(ScriptedMemory::home("key"));  // it is in an extent that is not known yet
  memory.add("key", Slot::of(ScriptedMemory::hash("key").fingerprint(), 2, Location::of(2, 0)));
  memory.root[kIdentityOffset / 8 + 3] ^= 1;
  server_.answer = [](const Request& request) {
    return Response{.version = Version::of(1, 9),
                    .value = request.opcode == Opcode::kGet ? as_bytes("told") : Bytes{}};
  };
  const Nanos start = server_.clock.now();
  const auto got = client().get("key");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "told");
  const std::string_view keys[] = {"key"};
  const auto many = client().multi_get(keys);
  ASSERT_TRUE(many.front()) << to_string(many.front().error());
  EXPECT_EQ(many.front()->value, "told");
  EXPECT_LT(server_.clock.now() - start, 100 * kNanosPerMs);
}

// ------------------------------------------------------------------------- time-outs and losses

TEST_F(ClientTest, UnansweredPutMayHaveHappenedAndIsNotRepeated) {
  server_.answer = [](const Request&) { return std::nullopt; };
  client();
  const Nanos before = server_.clock.now();
  const auto put = client().put("key", "value", std::chrono::milliseconds(50));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kTimeout);
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
  EXPECT_LE(server_.clock.now() - before, 60 * kNanosPerMs);
  EXPECT_EQ(server_.requests, 1);
  EXPECT_EQ(server_.connection, nullptr) << "its buffers are quarantined by closing the link";

  store("key", "value");
  EXPECT_TRUE(client().get("key"));
  EXPECT_EQ(client().stats().reconnects, 1U);
}

TEST_F(ClientTest, PutOnALostConnectionMayHaveHappened) {
  client();
  server_.die_at_send = 1;
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kDisconnected);
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
  EXPECT_EQ(server_.requests, 1);
  EXPECT_TRUE(client().put("key", "again"));
}

TEST_F(ClientTest, PutThatFindsTheConnectionGoneIsSentOverTheNext) {
  client();
  server_.connection->abort();
  EXPECT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.requests, 1);
  EXPECT_EQ(client().stats().reconnects, 1U);
}

TEST_F(ClientTest, PutThatNeverLeftIsNotApplied) {
  client();
  server_.connection->abort();
  fail_connects(Code::kUnreachable, 1000);
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kUnreachable);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(server_.requests, 0);
  EXPECT_LT(server_.connects, 20) << "attempts back off";
}

TEST_F(ClientTest, PingOnALostConnectionIsRepeated) {
  client();
  server_.die_at_send = 1;
  EXPECT_TRUE(client().ping());
  EXPECT_EQ(server_.requests, 2);
}

TEST_F(ClientTest, AOneSidedPingIsOneReadAndNoRequest) {
  client();
  const int before = server_.reads;
  EXPECT_TRUE(client().ping_one_sided());
  EXPECT_EQ(server_.reads, before + 1);
  EXPECT_EQ(server_.requests, 0);
  server_.die_at_read = 1;
  EXPECT_TRUE(client().ping_one_sided()) << "repeated over the next connection";
  EXPECT_EQ(server_.connects, 2);
  server_.reads_hang = true;
  EXPECT_EQ(client().ping_one_sided(std::chrono::milliseconds(20)).error().code, Code::kTimeout);
}

TEST_F(ClientTest, WhatItRegistersIsKnownBefore) {
  options_.reads_in_flight = 7;
  options_.requests_in_flight = 3;
  client();
  EXPECT_EQ(server_.registered_bytes, Client::registered_bytes(options_));
  EXPECT_LT(Client::registered_bytes(options_), Client::registered_bytes(ClientOptions{}));
}

TEST_F(ClientTest, HangingReadTimesOutAndTheClientRecovers) {
  store("key", "value");
  client();
  server_.reads_hang = true;
  const auto got = client().get("key", std::chrono::milliseconds(20));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kTimeout);
  EXPECT_EQ(got.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(server_.connection, nullptr);
  server_.reads_hang = false;
  EXPECT_EQ(client().get("key")->value, "value");
}

TEST_F(ClientTest, GetSurvivesALostConnection) {
  store("key", "value");
  client();
  for (const int at : {1, 2, 1}) {
    server_.die_at_read = at;
    const auto value = client().get("key");
    ASSERT_TRUE(value) << to_string(value.error());
  }
  fail_connects(Code::kUnreachable, 3);
  server_.die_at_read = 1;
  EXPECT_TRUE(client().get("key"));
}

TEST_F(ClientTest, GetGivesUpWhenRepeatingWillNotHelp) {
  client();
  fail_connects(Code::kPermission, 1);
  server_.die_at_read = 1;
  EXPECT_EQ(client().get("key").error().code, Code::kPermission);
}

TEST_F(ClientTest, RefusedReadDropsTheMap) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  // The same epoch, elsewhere in memory: what the client knows is void.
  auto moved = std::make_unique<ScriptedMemory>();
  moved->add("key", moved->store("key", "moved"));
  auto old = std::exchange(server_.memory, std::move(moved));
  const auto value = client().get("key");
  ASSERT_TRUE(value) << to_string(value.error());
  EXPECT_EQ(value->value, "moved");
  expected_bad_reads_ = 1;
}

TEST_F(ClientTest, NewEpochEmptiesEverything) {
  store("key", "old");
  ASSERT_TRUE(client().get("key"));
  EXPECT_EQ(client().stats().cached_groups, 1U);
  auto old = std::exchange(server_.memory, std::make_unique<ScriptedMemory>(0xBEEF));
  server_.connection->abort();
  EXPECT_EQ(client().get("key").error().code, Code::kNotFound);
  EXPECT_EQ(client().stats().cached_groups, 1U) << "the new epoch's group alone";
  store("key", "new");
  EXPECT_EQ(client().get("key")->value, "new");
}

TEST_F(ClientTest, AnswerToNoRequestEndsTheConnection) {
  client();
  server_.answer_garbage = true;
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
}

// ------------------------------------------------------------------------------------ busy, errors

TEST_F(ClientTest, BusyIsAskedAgainUntilTheDeadline) {
  int refusals = 3;
  server_.answer = [&](const Request&) { return refusals-- > 0 ? busy() : Response{}; };
  EXPECT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.requests, 4);
  EXPECT_EQ(client().stats().busy_answers, 3U);

  server_.answer = [](const Request&) { return busy(); };
  const auto put = client().put("key", "value", std::chrono::milliseconds(500));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kBusy);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_LT(server_.requests, 40) << "attempts back off";
}

// A clock that goes on by itself, 600 us a look.
class GoingClock final : public Clock {
 public:
  Nanos now() const override { return now_ += 600'000; }
  mutable Nanos now_ = 1;
};

// No time is left when the counter turns out to be counted by requests: that is not the default
// time-out.
TEST_F(ClientTest, ACounterIsReadWithinItsDeadline) {
  const GoingClock clock;
  options_.timeout = std::chrono::milliseconds(60'000);
  auto client = Client::connect(options_, std::make_shared<AnsweringTransport>(server_), &clock);
  ASSERT_TRUE(client) << to_string(client.error());
  std::array<std::byte, kCellAnswerBytes> none;
  store_le(none.data(), kNoCell);
  spill("n");
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    if (request.opcode == Opcode::kGet) return std::nullopt;
    return Response{.value = none};
  };
  auto counter = client->open_counter("n");
  ASSERT_TRUE(counter) << to_string(counter.error());
  EXPECT_FALSE(counter->is_one_sided());
  const Nanos begun = clock.now_;
  EXPECT_EQ(client->get_counter(*counter, std::chrono::milliseconds(1)).error().code,
            Code::kTimeout);
  EXPECT_LT(clock.now_ - begun, 10'000 * kNanosPerMs);
}

TEST_F(ClientTest, ServersErrorsKeepTheirCodeAndSentence) {
  server_.answer = [](const Request&) {
    return Response{.code = static_cast<std::uint8_t>(Code::kOutOfMemory),
                    .value = as_bytes("all extents are full")};
  };
  const auto put = client().put("key", "value");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kOutOfMemory);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(client().last_refusal(), "all extents are full");

  // As common/WIRE.md has it: the record on disk is read before it is changed.
  server_.answer = [](const Request&) {
    return Response{.code = static_cast<std::uint8_t>(Code::kCorrupt)};
  };
  EXPECT_EQ(client().put("key", "value").error().code, Code::kCorrupt);
  EXPECT_EQ(client().put("key", "value").error().write, WriteOutcome::kNotApplied);

  server_.answer = [](const Request&) { return Response{.code = 200}; };
  EXPECT_EQ(client().put("key", "value").error().code, Code::kInternal);
  EXPECT_EQ(client().put("key", "value").error().write, WriteOutcome::kMayHaveHappened);
}

}  // namespace
}  // namespace rkv
