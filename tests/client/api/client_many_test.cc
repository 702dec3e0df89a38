// Many GETs and PUTs in flight: order, windows, credits, and what becomes of them when the
// connection ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

// ----------------------------------------------------------------------------------- many keys

// Parameter: whether READs are over at once, as over shared memory.
class ManyTest : public ClientTest, public ::testing::WithParamInterface<bool> {
 protected:
  ManyTest() { server_.reads_at_once = GetParam(); }
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
  std::vector<KeyValue> puts() const {
    std::vector<KeyValue> items(keys_.size());
    std::ranges::transform(keys_, items.begin(),
                           [](std::string_view key) { return KeyValue{.key = key, .value = "v"}; });
    return items;
  }
  std::vector<std::string> texts_;
  std::vector<std::string_view> keys_;
};

INSTANTIATE_TEST_SUITE_P(ReadsAtOnce, ManyTest, ::testing::Bool(), [](const auto& given) {
  return given.param ? "AtOnce" : "ByCompletions";
});

TEST_P(ManyTest, ResultsAreInOrderForEveryWindow) {
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

TEST_P(ManyTest, NothingIsAResultToo) {
  EXPECT_TRUE(client().multi_get({}).empty());
  EXPECT_TRUE(client().multi_put({}).empty());
}

TEST_P(ManyTest, BadKeysHaveTheirOwnStatus) {
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

TEST_P(ManyTest, MoreLongValuesThanLargeBuffers) {
  std::vector<std::string> texts;
  for (int i = 0; i < 12; ++i) {
    texts.push_back("long " + std::to_string(i));
    store(texts.back(), std::string(kMaxInlineBytes, static_cast<char>('a' + i)));
  }
  const std::vector<std::string_view> keys(texts.begin(), texts.end());
  for (int round = 0; round < 3; ++round) {
    const auto values = client().multi_get(keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(values[i]);
      ASSERT_EQ(values[i]->value, std::string(kMaxInlineBytes, static_cast<char>('a' + i)));
    }
  }
}

TEST_P(ManyTest, SpilledKeysGoToTheServerWithinTheCredits) {
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

TEST_P(ManyTest, MapIsRefreshedInTheMiddle) {
  server_.memory->extent_count = 1;
  server_.memory->write_root();
  client();
  server_.memory->extent_count = 2;
  server_.memory->write_root();
  fill(100);
  expect_right(client().multi_get(keys_));
}

TEST_P(ManyTest, LostConnectionsInTheMiddleAreSurvived) {
  fill(300);
  client();
  for (const int at : {1, 5, 33, 100, 250}) {
    server_.die_at_read = at;
    expect_right(client().multi_get(keys_));
  }
  EXPECT_EQ(client().stats().reconnects, 5U);
}

TEST_P(ManyTest, HangingReadsEndAtTheDeadline) {
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

TEST_P(ManyTest, PutsKeepWithinTheCredits) {
  server_.credits = 2;
  std::uint64_t sequence = 0;
  server_.answer = [&](const Request&) { return Response{.version = Version::of(1, ++sequence)}; };
  fill(100);
  std::vector<KeyValue> items = puts();
  items[5].key = "";
  const auto versions = client().multi_put(items);
  ASSERT_EQ(versions.size(), 100U);
  for (std::size_t i = 0; i < versions.size(); ++i)
    EXPECT_EQ(versions[i].has_value(), i != 5) << i;
  EXPECT_EQ(server_.requests, 99);
  EXPECT_LE(server_.most_unanswered, 2);
}

// Every third is longer than the server takes in a message, and stays for it to READ.
TEST_P(ManyTest, PutsTooLongToSendAreLeftToBeRead) {
  server_.max_sent_bytes = 256;
  std::map<std::string, std::string> stored;
  server_.answer = [&](const Request& request) {
    stored[std::string(as_text(request.key))] = as_text(request.value);
    return Response{};
  };
  std::vector<std::string> values;
  for (std::size_t i = 0; i < 60; ++i)
    values.push_back(std::string(i % 3 == 0 ? 300 + 2000 * i : i, static_cast<char>('a' + i % 26)));
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < values.size(); ++i)
    keys.push_back("key" + std::to_string(i));
  std::vector<KeyValue> items;
  for (std::size_t i = 0; i < values.size(); ++i)
    items.push_back({.key = keys[i], .value = values[i]});
  for (const auto& version : client().multi_put(items))
    ASSERT_TRUE(version);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(stored[keys[i]], values[i]) << i;
  EXPECT_EQ(server_.long_requests, 20);
  ASSERT_TRUE(client().put("alone", values[57]));
  EXPECT_EQ(stored["alone"], values[57]);
  EXPECT_EQ(server_.long_requests, 21);
}

TEST_P(ManyTest, BusyPutsAreSentAgainAndOthersWait) {
  int calls = 0;
  server_.answer = [&](const Request&) { return ++calls % 3 == 0 ? busy() : Response{}; };
  fill(50);
  const std::vector<KeyValue> items = puts();
  for (const auto& version : client().multi_put(items))
    EXPECT_TRUE(version);
}

TEST_P(ManyTest, PutsInFlightWhenTheConnectionEndsMayHaveHappened) {
  fill(50);
  const std::vector<KeyValue> items = puts();
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

TEST_P(ManyTest, EachPutIsVisitedOnceWhateverComesOfIt) {
  fill(50);
  std::vector<KeyValue> items = puts();
  items[7].key = "";
  client();
  server_.die_at_send = 10;
  std::vector<int> visits(items.size());
  std::size_t done = 0;
  client().multi_put_each(items, [&](std::size_t index, const Result<std::uint64_t>& version) {
    ++visits.at(index);
    done += version ? 1U : 0U;
    EXPECT_EQ(!version && version.error().code == Code::kInvalidArgument, index == 7);
  });
  EXPECT_EQ(visits, std::vector<int>(items.size(), 1));
  EXPECT_GE(done, 50U - 1 - 8) << "no more than were in flight are unknown";
}

TEST_P(ManyTest, PutsThatNobodyAnswersEndAtTheDeadline) {
  fill(30);
  const std::vector<KeyValue> items = puts();
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
