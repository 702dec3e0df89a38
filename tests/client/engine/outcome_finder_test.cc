// Writes that lose their answers with the connection: each is carried out once, and its caller gets
// the first outcome.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

// A server that counts how often it carries out each key's write.
class LostAnswers : public ClientTest {
 protected:
  LostAnswers() {
    server_.remembers = true;
    server_.answer = [this](const Request& request) -> std::optional<Response> {
      const int times = ++times_[std::string(as_text(request.key))];
      Response response{.version = Version::of(1, ++version_)};
      if (request.condition == Condition::kIfAbsent && times > 1) {
        response.code = static_cast<std::uint8_t>(Code::kConflict);
      }
      if (request.opcode == Opcode::kAdd) {
        store_le(number_.data(), sum_ += load_le<std::int64_t>(request.value.data()));
        response.value = number_;
      }
      return response;
    };
  }
  // The next message loses its answer; before or after it is carried out.
  void lose(bool carried_out) {
    client();
    server_.die_at_send = 1;
    server_.dies_after = carried_out;
  }

  std::map<std::string, int> times_;
  std::uint64_t version_ = 0;
  std::int64_t sum_ = 0;
  std::array<std::byte, kCounterBytes> number_{};
};

TEST_F(LostAnswers, APutThatWasCarriedOutIsNotSentAgain) {
  lose(true);
  const auto put = client().put("key", "value");
  ASSERT_TRUE(put) << to_string(put.error());
  EXPECT_EQ(*put, Version::of(1, 1).bits);
  EXPECT_EQ(times_["key"], 1);
  ASSERT_EQ(server_.questions.size(), 1U);
  EXPECT_EQ(server_.questions.front().session, 1U) << "the session that has ended";
  const ClientStats stats = client().stats();
  EXPECT_EQ(stats.outcomes_asked, 1U);
  EXPECT_EQ(stats.outcomes_recovered, 1U);
  EXPECT_EQ(stats.outcomes_unknown, 0U);
}

TEST_F(LostAnswers, APutThatWasNotCarriedOutIsSentAgain) {
  lose(false);
  const auto put = client().put("key", "value");
  ASSERT_TRUE(put) << to_string(put.error());
  EXPECT_EQ(times_["key"], 1);
  EXPECT_EQ(server_.requests, 2);
  EXPECT_EQ(client().stats().outcomes_asked, 1U);
  EXPECT_EQ(client().stats().outcomes_recovered, 0U);
}

TEST_F(LostAnswers, AConditionalPutDoesNotConflictWithItself) {
  lose(true);
  EXPECT_TRUE(client().put_if_absent("lock", "me"));
  EXPECT_EQ(client().put_if_absent("lock", "me").error().code, Code::kConflict);
}

TEST_F(LostAnswers, AnAdditionIsMadeOnce) {
  for (const bool carried_out : {true, false, true}) {
    lose(carried_out);
    ASSERT_TRUE(client().incr("n", 5));
  }
  const auto counter = client().incr("n", 5);
  ASSERT_TRUE(counter);
  EXPECT_EQ(counter->number, 20);
  EXPECT_EQ(times_["n"], 4);
}

TEST_F(LostAnswers, ALargeValueIsStoredOnce) {
  const std::string value(kMaxInlineBytes + 1, 'v');
  for (const bool carried_out : {true, false}) {
    lose(carried_out);
    ASSERT_TRUE(client().put("large", value));
  }
  EXPECT_EQ(times_["large"], 2);
}

// A forgetful server, one that has restarted, and one that knows no such question.
TEST_F(LostAnswers, WhatNobodyKnowsMayHaveHappened) {
  for (const int kind : {0, 1, 2}) {
    lose(true);
    server_.remembers = kind == 1;
    server_.knows_outcomes = kind != 2;
    std::unique_ptr<ScriptedMemory> old;
    if (kind == 1) {
      server_.before_connect = [&] {
        if (old == nullptr)
          old = std::exchange(server_.memory, std::make_unique<ScriptedMemory>(0xBEEF));
      };
    }
    const std::size_t asked = server_.questions.size();
    const auto put = client().put("key", "value");
    ASSERT_FALSE(put) << kind;
    EXPECT_EQ(put.error().code, Code::kDisconnected);
    EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened) << kind;
    EXPECT_EQ(server_.questions.size() - asked, kind == 0 ? 1U : 0U) << kind;
    EXPECT_EQ(client().stats().outcomes_unknown, static_cast<std::uint64_t>(kind) + 1);
    server_.before_connect = nullptr;
    server_.knows_outcomes = true;
    const int connects = server_.connects;
    EXPECT_TRUE(client().put("other", "value")) << "the connection goes on";
    EXPECT_EQ(server_.connects, connects);
  }
  EXPECT_EQ(times_["key"], 3) << "nothing is sent twice";
}

// The question names the session of the write, however many connections come in between.
TEST_F(LostAnswers, AQuestionThatIsLostIsAskedAgain) {
  lose(true);
  int losses = 3;
  server_.before_connect = [&] { server_.die_at_send = losses-- > 0 ? 1 : 0; };
  ASSERT_TRUE(client().put("key", "value"));
  EXPECT_EQ(times_["key"], 1);
  ASSERT_EQ(server_.questions.size(), 1U) << "the others never arrived";
  EXPECT_EQ(server_.questions.front().session, 1U);
  EXPECT_EQ(client().stats().reconnects, 4U);
}

TEST_F(LostAnswers, AWriteIsAskedAboutUntilItsDeadlineOnly) {
  lose(true);
  server_.says_nothing = true;
  const Nanos before = server_.clock.now();
  const auto put = client().put("key", "value", std::chrono::milliseconds(50));
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
  EXPECT_LE(server_.clock.now() - before, 60 * kNanosPerMs);
  server_.says_nothing = false;
  EXPECT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.questions.size(), 1U) << "the call that has ended does not ask any more";
}

TEST_F(LostAnswers, AServerThatHasNoRoomForTheAnswerIsAskedAgain) {
  lose(true);
  int busy = 2;
  server_.change_answer = [&](std::vector<std::byte>& message) {
    if (message[0] != std::byte{static_cast<std::uint8_t>(Opcode::kOutcome)} || busy-- <= 0) return;
    message[1] = std::byte{static_cast<std::uint8_t>(Code::kBusy)};
    std::fill_n(message.begin() + 32, 8, std::byte{0});
  };
  EXPECT_TRUE(client().put("key", "value"));
  EXPECT_EQ(server_.questions.size(), 3U);
  EXPECT_EQ(client().stats().outcomes_asked, 1U);
}

TEST_F(LostAnswers, EachPutOfManyIsCarriedOutOnce) {
  server_.credits = 4;
  server_.max_packed = kMaxPacked;
  std::vector<std::string> keys;
  for (int i = 0; i < 600; ++i)
    keys.push_back("key" + std::to_string(i));
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = "value"});
  const std::string large(kMaxInlineBytes + 1, 'v');
  items[100].value = items[400].value = large;
  client();
  for (const bool carried_out : {true, false}) {
    for (int at = 1; at < 14; ++at) {
      times_.clear();
      server_.die_at_send = at;
      server_.dies_after = carried_out;
      server_.latency = at % 3 * kNanosPerMs;  // others are under way then
      for (const auto& version : client().multi_put(items))
        ASSERT_TRUE(version) << at << " " << to_string(version.error());
      for (const std::string& key : keys)
        ASSERT_EQ(times_[key], 1) << at << " " << key;
    }
  }
  EXPECT_GT(client().stats().outcomes_recovered, 10U);
  EXPECT_EQ(client().stats().outcomes_unknown, 0U);
}

// Each byte of each answer about a lost pack changed once: every item is visited once, and the
// call ends.
TEST_F(LostAnswers, OutcomesThatLieAreNotBelieved) {
  server_.max_packed = kMaxPacked;
  std::vector<KeyValue> items;
  const std::vector<std::string> keys = {"a", "b", "c"};
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = "value"});
  for (std::size_t at = 0; at < kResponseHeaderBytes + 3 * kPackedResultBytes; ++at) {
    lose(true);
    server_.change_answer = [&](std::vector<std::byte>& message) {
      const bool is_outcome = message[0] == std::byte{static_cast<std::uint8_t>(Opcode::kOutcome)};
      if (is_outcome && at < message.size()) message[at] ^= std::byte{0x55};
    };
    std::vector<int> visits(items.size());
    client().multi_put_each(
        items, [&](std::size_t index, const Result<std::uint64_t>&) { ++visits.at(index); },
        {.timeout = std::chrono::milliseconds(100)});
    ASSERT_EQ(visits, std::vector<int>(items.size(), 1)) << at;
    server_.change_answer = nullptr;
  }
}

// REQ-5: unanswered requests have different lanes, all below the credits, and sequences rise.
TEST_F(LostAnswers, RequestsInFlightHaveLanesOfTheirOwn) {
  server_.credits = 4;
  std::vector<std::string> keys;
  for (int i = 0; i < 200; ++i)
    keys.push_back("key" + std::to_string(i));
  std::vector<KeyValue> items;
  for (const std::string& key : keys)
    items.push_back({.key = key, .value = "value"});
  client();
  for (const Nanos latency : {Nanos{0}, kNanosPerMs}) {
    server_.latency = latency;
    for (const auto& version : client().multi_put(items))
      ASSERT_TRUE(version);
  }
  std::uint64_t last = 0;
  std::vector<int> lanes(4);
  for (const std::uint64_t sequence : server_.sequences) {
    EXPECT_GT(sequence, last);
    last = sequence;
    ASSERT_LT(lane_of(sequence), 4U);
    ++lanes[lane_of(sequence)];
  }
  EXPECT_GT(*std::ranges::min_element(lanes), 10);
}

}  // namespace
}  // namespace rkv
