// A client's reports about writes that a server acknowledged before it started again (ACK-1,
// ACK-2), and about requests to open a counter that were not answered.
#include <gtest/gtest.h>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

class RestartedTest : public ClientTest {
 protected:
  RestartedTest() {
    server_.answer = [this](const Request& request) {
      Response response{.version = Version::of(boot_, 5), .sync_mark = Version::of(boot_, synced_)};
      response.wal_mark = response.sync_mark;
      if (request.opcode == Opcode::kFlush) synced_ = 5;
      if (request.opcode == Opcode::kOpenCounter)
        response.value = std::as_bytes(std::span(kNoCells));
      return std::optional(response);
    };
  }
  // Another process answers from now on.
  void restart() {
    ++boot_;
    synced_ = 0;
    dead_.push_back(std::exchange(
        server_.memory, std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + boot_)));
    server_.connection->abort();
  }
  Code flushed() {
    const auto flushed = client().flush();
    return flushed ? Code{0} : flushed.error().code;
  }
  int count(std::string_view opcode) const {
    int found = 0;
    for (const std::string& line : server_.log)
      found += line.starts_with(opcode) ? 1 : 0;
    return found;
  }

  static constexpr std::array<std::uint64_t, 1> kNoCells = {kNoCell};
  std::uint16_t boot_ = 1;
  std::uint64_t synced_ = 0;
  std::vector<std::unique_ptr<ScriptedMemory>> dead_;
};

TEST_F(RestartedTest, AFlushDoesNotPromiseWhatTheServerMayHaveLost) {
  ASSERT_TRUE(client().put("key", "value"));
  restart();
  const auto flushed = client().flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().code, Code::kStale);
  EXPECT_EQ(flushed.error().write, WriteOutcome::kNotApplied);
  EXPECT_EQ(count("flush"), 0) << "nothing was sent";
  EXPECT_TRUE(client().flush()) << "said once";
}

TEST_F(RestartedTest, ItIsSaidHoweverTheClientHasCometoTheNewServer) {
  ASSERT_TRUE(client().put("key", "value"));
  restart();
  ASSERT_TRUE(client().ping());
  EXPECT_EQ(flushed(), Code::kStale);
}

TEST_F(RestartedTest, ABackupIsNotMadeWithoutThem) {
  const KeyValue items[] = {{"key", "value"}};
  ASSERT_TRUE(client().multi_put(items).front());
  restart();
  EXPECT_EQ(client().backup("monday").error().code, Code::kStale);
  EXPECT_EQ(count("backup"), 0);
  EXPECT_TRUE(client().backup("monday"));
}

// Opening a counter creates it.
TEST_F(RestartedTest, ACounterThatWasCreatedIsMissed) {
  ASSERT_TRUE(client().open_counter("counter"));
  restart();
  EXPECT_EQ(flushed(), Code::kStale);

  ASSERT_TRUE(client().open_counter("counter"));
  ASSERT_TRUE(client().flush());
  restart();
  EXPECT_EQ(flushed(), Code{0}) << "it was on disk";

  restart();
  ASSERT_TRUE(client().open_counter("counter", {.create = false}));
  restart();
  EXPECT_EQ(flushed(), Code{0}) << "nothing was written";
}

TEST_F(RestartedTest, WhatIsOnDiskIsNotLost) {
  ASSERT_TRUE(client().put("key", "value"));
  ASSERT_TRUE(client().flush());
  restart();
  EXPECT_EQ(flushed(), Code{0});

  ASSERT_TRUE(client().put("key", "value", WriteOptions{.durability = Durability::kSync}));
  restart();
  EXPECT_EQ(flushed(), Code{0});

  ASSERT_TRUE(client().put("key", "value"));
  synced_ = 5;
  ASSERT_TRUE(client().ping()) << "whose answer says that it is synced by now";
  restart();
  EXPECT_EQ(flushed(), Code{0});
}

TEST_F(RestartedTest, WhoWroteNothingIsToldNothing) {
  store("key", "value");
  ASSERT_TRUE(client().get("key"));
  restart();
  EXPECT_EQ(flushed(), Code{0});
}

TEST_F(RestartedTest, AnotherConnectionToTheSameServerLosesNothing) {
  ASSERT_TRUE(client().put("key", "value"));
  server_.connection->abort();
  EXPECT_EQ(flushed(), Code{0});
}

TEST_F(RestartedTest, SeveralRestartsAreOne) {
  ASSERT_TRUE(client().put("key", "value"));
  restart();
  ASSERT_TRUE(client().put("key", "again"));
  restart();
  EXPECT_EQ(flushed(), Code::kStale);
  EXPECT_EQ(flushed(), Code{0});
}

// ---- counters that are opened

class OpenTest : public ClientTest {
 protected:
  OpenTest() {
    server_.answer = [this](const Request& request) -> std::optional<Response> {
      if (request.opcode != Opcode::kOpenCounter) return Response{};
      if (request.value[0] == std::byte{1}) there_ = true;
      if (!there_) return Response{.code = static_cast<std::uint8_t>(Code::kNotFound)};
      return Response{.version = Version::of(1, 1), .value = std::as_bytes(std::span(kNone))};
    };
  }
  int opened() const {
    int found = 0;
    for (const std::string& line : server_.log)
      found += line.starts_with(to_string(Opcode::kOpenCounter)) ? 1 : 0;
    return found;
  }

  static constexpr std::array<std::uint64_t, 1> kNone = {kNoCell};
  bool there_ = false;
};

TEST_F(OpenTest, ACounterIsMadeOrNotAsAsked) {
  EXPECT_EQ(client().open_counter("counter", {.create = false}).error().code, Code::kNotFound);
  EXPECT_FALSE(there_);
  EXPECT_TRUE(client().open_counter("counter"));
  EXPECT_TRUE(client().open_counter("counter", {.create = false}));
}

// The request was carried out, the answer lost.
TEST_F(OpenTest, AfterALostAnswerTheCounterIsLookedFor) {
  client();
  there_ = true;
  server_.die_at_send = 1;
  EXPECT_TRUE(client().open_counter("counter"));
  EXPECT_EQ(opened(), 2);
}

// The same, and somebody removed it before the client was back: made again it would be there
// although its removal came after its making.
TEST_F(OpenTest, ACounterThatWasRemovedMeanwhileIsNotMadeAgain) {
  client();
  server_.die_at_send = 1;
  const auto counter = client().open_counter("counter");
  ASSERT_FALSE(counter);
  EXPECT_EQ(counter.error().code, Code::kDisconnected);
  EXPECT_EQ(counter.error().write, WriteOutcome::kMayHaveHappened);
  EXPECT_FALSE(there_);
  EXPECT_TRUE(client().open_counter("counter")) << "asked for by the caller it is made";
}

}  // namespace
}  // namespace rkv
