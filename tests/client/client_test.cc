// rkv::Client's promises: what happens to values, errors, deadlines and write outcomes when the
// server is slow, full, gone, restarted or not a server of ours.
#include "rkv/client.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/client/count_allocations.h"
#include "tests/client/fake_transport.h"

namespace rkv {
namespace {

using testing::FakeServer;
using testing::FakeTransport;
using testing::ScriptedMemory;

class ClientTest : public ::testing::Test {
 protected:
  ~ClientTest() override {
    client_.reset();
    EXPECT_EQ(server_.receives_held, 0) << "a receive buffer was not given back";
    EXPECT_EQ(server_.memory->bad_reads, expected_bad_reads_);
  }
  Result<Client> connect() {
    options_.timeout = std::chrono::milliseconds(1000);
    return Client::connect(options_, std::make_shared<FakeTransport>(server_), &server_.clock,
                           &refusal_);
  }
  Client& client() {
    if (!client_) {
      auto connected = connect();
      RKV_CHECK(connected, "the fake server accepts");
      client_ = std::make_unique<Client>(std::move(*connected));
    }
    return *client_;
  }
  void store(std::string_view key, std::string_view value) {
    server_.memory->add(key, server_.memory->store(key, value));
  }
  void fail_connects(Code code, int times) {
    for (int i = 0; i < times; ++i)
      server_.connect_errors.push_back({.code = code, .text = "scripted"});
  }
  void spill(std::string_view key) {
    server_.memory->set_flags(ScriptedMemory::home(key), false, true);
  }
  static Response busy() {
    Response response;
    response.code = static_cast<std::uint8_t>(Code::kBusy);
    return response;
  }

  FakeServer server_;
  ClientOptions options_;
  std::string refusal_;
  std::unique_ptr<Client> client_;
  int expected_bad_reads_ = 0;
};

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

TEST_F(ClientTest, ReadsWithoutAllocating) {
  for (int i = 0; i < 100; ++i)
    store("key " + std::to_string(i), "value");
  std::vector<std::string> texts;
  for (int i = 0; i < 100; ++i)
    texts.push_back("key " + std::to_string(i));
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

TEST_F(ClientTest, LongValuesTravelBothWays) {
  const std::string value(kMaxValueBytes, 'x');
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
  server_.reject.resize(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kBusy, .text = "64 clients are connected"}, server_.reject);
  fail_connects(Code::kRejected, 1);
  const auto refused = connect();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kRejected);
  EXPECT_EQ(refusal_, "64 clients are connected");
}

TEST_F(ClientTest, AnotherVersionAndStrangersAreTold) {
  server_.reject.resize(kConnectRejectMaxBytes);
  encode(ConnectReject{.code = Code::kVersionMismatch, .text = "speaks 2"}, server_.reject);
  fail_connects(Code::kRejected, 1);
  EXPECT_EQ(connect().error().code, Code::kVersionMismatch);

  server_.reject.assign(20, std::byte{'?'});
  fail_connects(Code::kRejected, 1);
  EXPECT_EQ(connect().error().code, Code::kCorrupt);

  server_.accept = std::vector<std::byte>(196, std::byte{1});
  EXPECT_EQ(connect().error().code, Code::kCorrupt);
}

TEST_F(ClientTest, FirstConnectIsTriedOnce) {
  fail_connects(Code::kUnreachable, 1);
  EXPECT_EQ(connect().error().code, Code::kUnreachable);
  EXPECT_EQ(server_.connects, 1);
}

TEST_F(ClientTest, BadOptionsAreRefused) {
  options_.reads_in_flight = 0;
  EXPECT_EQ(connect().error().code, Code::kInvalidArgument);
  options_ = {};
  options_.requests_in_flight = 257;
  EXPECT_EQ(connect().error().code, Code::kInvalidArgument);
}

TEST_F(ClientTest, TornRootPageIsReadAgainAndThenGivenUp) {
  server_.memory->root[1] ^= 1;
  EXPECT_EQ(connect().error().code, Code::kCorrupt);
}

// ------------------------------------------------------------------------- time-outs and losses

TEST_F(ClientTest, UnansweredPutMayHaveHappenedAndIsNotRepeated) {
  server_.answer = [](const Request&) { return std::nullopt; };
  const Nanos before = client().stats().gets + server_.clock.now();
  const auto put = client().put("key", "value", 0, std::chrono::milliseconds(50));
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
  const auto put = client().put("key", "value", 0, std::chrono::milliseconds(500));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kBusy);
  EXPECT_EQ(put.error().write, WriteOutcome::kNotApplied);
  EXPECT_LT(server_.requests, 40) << "attempts back off";
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

  server_.answer = [](const Request&) { return Response{.code = 200}; };
  EXPECT_EQ(client().put("key", "value").error().code, Code::kInternal);
  EXPECT_EQ(client().put("key", "value").error().write, WriteOutcome::kMayHaveHappened);
}

// ----------------------------------------------------------------------------------- many keys

class ManyTest : public ClientTest {
 protected:
  // `count` keys; every third absent.
  void fill(std::size_t count) {
    texts_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      texts_.push_back("key " + std::to_string(i));
      if (i % 3 != 0) store(texts_[i], "value " + std::to_string(i));
    }
    keys_.assign(texts_.begin(), texts_.end());
  }
  void expect_right(std::span<const Result<Value>> values) {
    ASSERT_EQ(values.size(), keys_.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i % 3 == 0) {
        ASSERT_FALSE(values[i]);
        ASSERT_EQ(values[i].error().code, Code::kNotFound);
      } else {
        ASSERT_TRUE(values[i]) << i << ": " << to_string(values[i].error());
        ASSERT_EQ(values[i]->value, "value " + std::to_string(i));
      }
    }
  }
  std::vector<std::string> texts_;
  std::vector<std::string_view> keys_;
};

TEST_F(ManyTest, ResultsAreInOrderForEveryWindow) {
  fill(300);
  for (const std::uint32_t window : {1U, 2U, 7U, 64U, 1024U}) {
    options_.reads_in_flight = window;
    client_.reset();
    expect_right(client().multi_get(keys_));
    expect_right(client().multi_get(keys_));
    EXPECT_EQ(client().stats().gets, 600U);
    EXPECT_EQ(client().stats().one_sided_gets, 600U);
  }
}

TEST_F(ManyTest, NothingIsAResultToo) {
  EXPECT_TRUE(client().multi_get({}).empty());
  EXPECT_TRUE(client().multi_put({}).empty());
}

TEST_F(ManyTest, BadKeysHaveTheirOwnStatus) {
  store("good", "value");
  const std::string too_long(kMaxKeyBytes + 1, 'k');
  const std::vector<std::string_view> keys = {"", "good", too_long, "good", ""};
  const auto values = client().multi_get(keys);
  EXPECT_EQ(values[0].error().code, Code::kInvalidArgument);
  EXPECT_TRUE(values[1]);
  EXPECT_EQ(values[2].error().code, Code::kTooLarge);
  EXPECT_TRUE(values[3]);
  EXPECT_FALSE(values[4]);
}

TEST_F(ManyTest, MoreLongValuesThanLargeBuffers) {
  std::vector<std::string> texts;
  for (int i = 0; i < 12; ++i) {
    texts.push_back("long " + std::to_string(i));
    store(texts.back(), std::string(kMaxValueBytes, static_cast<char>('a' + i)));
  }
  const std::vector<std::string_view> keys(texts.begin(), texts.end());
  for (int round = 0; round < 3; ++round) {
    const auto values = client().multi_get(keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(values[i]);
      ASSERT_EQ(values[i]->value, std::string(kMaxValueBytes, static_cast<char>('a' + i)));
    }
  }
}

TEST_F(ManyTest, SpilledKeysGoToTheServerWithinTheCredits) {
  fill(200);
  for (std::uint32_t i = 0; i < 16; ++i)
    server_.memory->set_flags({0, i}, false, true);
  server_.credits = 3;
  int refusals = 5;
  server_.answer = [&](const Request&) {
    if (refusals-- > 0) return busy();
    return Response{.code = static_cast<std::uint8_t>(Code::kNotFound)};
  };
  expect_right(client().multi_get(keys_));
  EXPECT_LE(server_.most_unanswered, 3);
  EXPECT_EQ(client().stats().two_sided_gets, 67U);
}

TEST_F(ManyTest, MapIsRefreshedInTheMiddle) {
  server_.memory->extent_count = 1;
  server_.memory->write_root();
  client();
  server_.memory->extent_count = 2;
  server_.memory->write_root();
  fill(100);
  expect_right(client().multi_get(keys_));
}

TEST_F(ManyTest, LostConnectionsInTheMiddleAreSurvived) {
  fill(300);
  client();
  for (const int at : {1, 5, 33, 100, 250}) {
    server_.die_at_read = at;
    expect_right(client().multi_get(keys_));
  }
  EXPECT_EQ(client().stats().reconnects, 5U);
}

TEST_F(ManyTest, HangingReadsEndAtTheDeadline) {
  fill(100);
  client();
  server_.reads_hang = true;
  const Nanos before = server_.clock.now();
  const auto values = client().multi_get(keys_, std::chrono::milliseconds(30));
  for (const auto& value : values)
    ASSERT_EQ(value.error().code, Code::kTimeout);
  EXPECT_LE(server_.clock.now() - before, 40 * kNanosPerMs);
  server_.reads_hang = false;
  expect_right(client().multi_get(keys_));
}

TEST_F(ManyTest, PutsKeepWithinTheCredits) {
  server_.credits = 2;
  std::uint64_t sequence = 0;
  server_.answer = [&](const Request&) { return Response{.version = Version::of(1, ++sequence)}; };
  fill(100);
  std::vector<KeyValue> items;
  for (const std::string_view key : keys_)
    items.push_back({.key = key, .value = key});
  items[5].key = "";
  const auto versions = client().multi_put(items);
  ASSERT_EQ(versions.size(), 100U);
  for (std::size_t i = 0; i < versions.size(); ++i)
    EXPECT_EQ(versions[i].has_value(), i != 5) << i;
  EXPECT_EQ(server_.requests, 99);
  EXPECT_LE(server_.most_unanswered, 2);
}

TEST_F(ManyTest, BusyPutsAreSentAgainAndOthersWait) {
  int calls = 0;
  server_.answer = [&](const Request&) { return ++calls % 3 == 0 ? busy() : Response{}; };
  fill(50);
  std::vector<KeyValue> items;
  for (const std::string_view key : keys_)
    items.push_back({.key = key, .value = "v"});
  for (const auto& version : client().multi_put(items))
    EXPECT_TRUE(version);
}

TEST_F(ManyTest, PutsInFlightWhenTheConnectionEndsMayHaveHappened) {
  fill(50);
  std::vector<KeyValue> items;
  for (const std::string_view key : keys_)
    items.push_back({.key = key, .value = "v"});
  client();
  server_.die_at_send = 10;
  const auto versions = client().multi_put(items);
  int unknown = 0;
  for (const auto& version : versions) {
    if (version) continue;
    ++unknown;
    EXPECT_EQ(version.error().write, WriteOutcome::kMayHaveHappened);
  }
  EXPECT_GE(unknown, 1);
  EXPECT_LE(unknown, 8) << "no more than were in flight";
  // Nothing that may have happened was sent twice.
  auto log = server_.log;
  std::ranges::sort(log);
  EXPECT_EQ(std::ranges::adjacent_find(log), log.end());
}

TEST_F(ManyTest, PutsThatNobodyAnswersEndAtTheDeadline) {
  fill(30);
  std::vector<KeyValue> items;
  for (const std::string_view key : keys_)
    items.push_back({.key = key, .value = "v"});
  server_.answer = [](const Request&) { return std::nullopt; };
  const auto versions = client().multi_put(items, std::chrono::milliseconds(20));
  int unknown = 0;
  for (const auto& version : versions) {
    ASSERT_FALSE(version);
    EXPECT_EQ(version.error().code, Code::kTimeout);
    if (version.error().write == WriteOutcome::kMayHaveHappened) ++unknown;
  }
  EXPECT_EQ(unknown, 8) << "as many as there were credits";
}

}  // namespace
}  // namespace rkv
