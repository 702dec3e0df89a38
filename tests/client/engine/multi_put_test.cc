// Many PUTs in packs: each item is visited once, with its own result.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace rkv {
namespace {

class PackedPuts : public ClientTest {
 protected:
  PackedPuts() {
    server_.max_packed = kMaxPacked;
    server_.answer = [this](const Request& request) -> std::optional<Response> {
      stored_[std::string(as_text(request.key))] = as_text(request.value);
      return Response{.version = Version::of(1, ++sequence_)};
    };
  }
  std::vector<KeyValue> items(std::size_t count, std::size_t value_bytes = 20) {
    for (std::size_t i = keys_.size(); i < count; ++i) {
      keys_.push_back("key" + std::to_string(i));
      values_.push_back(std::string(value_bytes, static_cast<char>('a' + i % 26)));
    }
    std::vector<KeyValue> all;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back({.key = keys_[i], .value = values_[i]});
    return all;
  }
  void expect_stored(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(stored_[keys_[i]], values_[i]) << i;
  }

  std::map<std::string, std::string> stored_;
  std::map<std::string, int> asked_;
  std::vector<std::string> keys_;
  std::vector<std::string> values_;
  std::uint64_t sequence_ = 0;
};

TEST_F(PackedPuts, TakeFewRequests) {
  const auto all = items(1000);
  for (const auto& version : client().multi_put(all))
    ASSERT_TRUE(version);
  expect_stored(1000);
  EXPECT_EQ(sequence_, 1000U);
  EXPECT_LE(server_.requests, 1000 / 16);
  EXPECT_LE(server_.most_unanswered, server_.credits);
}

TEST_F(PackedPuts, EachExpiresInItsOwnTime) {
  for (const std::uint16_t packed : {std::uint16_t{0}, std::uint16_t{kMaxPacked}}) {
    server_.max_packed = packed;
    client_.reset();
    std::map<std::string, std::pair<std::uint64_t, bool>> asked;
    server_.answer = [&](const Request& request) -> std::optional<Response> {
      asked[std::string(as_text(request.key))] = {request.ttl_ms, request.until};
      return Response{.version = Version::of(1, ++sequence_)};
    };
    using std::chrono::milliseconds;
    const milliseconds longest(std::int64_t{1} << 42);
    const std::vector<KeyValue> all = {
        {.key = "plain", .value = "v"},
        {.key = "time", .value = "v", .expires_at_ms = 1'700'000'000'000},
        {.key = "both", .value = "v", .expires_at_ms = 1'700'000'000'000, .ttl = milliseconds(5)},
        {.key = "negative", .value = "v", .ttl = milliseconds(-1)},
        {.key = "too long", .value = "v", .ttl = longest + milliseconds(1)},
        {.key = "longest", .value = "v", .ttl = longest},
        {.key = "short", .value = "v", .ttl = milliseconds(5)}};
    const auto put = client().multi_put(all);
    for (const std::size_t i : {0, 1, 5, 6})
      EXPECT_TRUE(put[i]) << all[i].key;
    for (const std::size_t i : {2, 3, 4}) {
      ASSERT_FALSE(put[i]) << all[i].key;
      EXPECT_EQ(put[i].error().code, Code::kInvalidArgument);
    }
    using Asked = decltype(asked);
    EXPECT_EQ(asked, (Asked{{"plain", {0, false}},
                            {"time", {1'700'000'000'000, true}},
                            {"longest", {std::uint64_t{1} << 42, false}},
                            {"short", {5, false}}}));
  }
}

TEST_F(PackedPuts, OfALevelThatIsNoneAreNotSent) {
  const auto wrong = static_cast<Durability>(4);
  for (const auto& put : client().multi_put(items(3), WriteOptions{.durability = wrong})) {
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code, Code::kInvalidArgument);
  }
  EXPECT_EQ(server_.requests, 0);
}

TEST_F(PackedPuts, OfAServerThatKnowsNoneGoOneByOne) {
  server_.max_packed = 0;
  for (const auto& version : client().multi_put(items(100)))
    ASSERT_TRUE(version);
  expect_stored(100);
  EXPECT_EQ(server_.packs, 0);
}

// Also those that are too long for the memory of a request, for a SEND or for a message.
TEST_F(PackedPuts, OfAnyLengthArrive) {
  for (std::size_t i = 0; i < 200; ++i) {
    keys_.push_back("key" + std::to_string(i));
    values_.push_back(std::string(i * i % 9000, 'v'));
  }
  const auto all = items(200);
  for (const auto& version : client().multi_put(all))
    ASSERT_TRUE(version);
  expect_stored(200);
  EXPECT_GT(server_.packs, 5);
}

TEST_F(PackedPuts, HaveTheirOwnResults) {
  server_.answer = [this](const Request& request) -> std::optional<Response> {
    const std::size_t number = std::stoul(std::string(as_text(request.key)).substr(3));
    if (number % 7 == 3) {
      return Response{.code = static_cast<std::uint8_t>(Code::kOutOfMemory),
                      .value = as_bytes("no memory")};
    }
    ++sequence_;
    return Response{.version = Version::of(1, number + 1)};
  };
  auto all = items(100);
  all[50].key = "";
  const auto versions = client().multi_put(all);
  for (std::size_t i = 0; i < versions.size(); ++i) {
    if (i == 50) {
      EXPECT_EQ(versions[i].error().code, Code::kInvalidArgument);
    } else if (i % 7 == 3) {
      EXPECT_EQ(versions[i].error().code, Code::kOutOfMemory);
      EXPECT_EQ(versions[i].error().write, WriteOutcome::kNotApplied);
    } else {
      ASSERT_TRUE(versions[i]) << i;
      EXPECT_EQ(*versions[i], Version::of(1, i + 1).bits);
    }
  }
}

TEST_F(PackedPuts, RefusedInAPackAreSentAlone) {
  server_.answer = [this](const Request& request) -> std::optional<Response> {
    const std::string key(as_text(request.key));
    const bool first = ++asked_[key] == 1;
    if (first && key.back() == '5') return std::nullopt;  // refused_alone()
    stored_[key] = as_text(request.value);
    return Response{.version = Version::of(1, ++sequence_)};
  };
  for (const auto& version : client().multi_put(items(64)))
    ASSERT_TRUE(version);
  expect_stored(64);
  for (const auto& [key, times] : asked_)
    EXPECT_EQ(times, key.back() == '5' ? 2 : 1) << key;
  EXPECT_EQ(server_.requests - server_.packs, 6) << "5, 15, ... 55";
}

TEST_F(PackedPuts, RefusedAsBusyAreSentAgain) {
  int calls = 0;
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    if (++calls % 5 == 0) return busy();
    EXPECT_TRUE(stored_.emplace(as_text(request.key), as_text(request.value)).second)
        << "a PUT that was done is not sent again";
    return Response{.version = Version::of(1, ++sequence_)};
  };
  for (const auto& version : client().multi_put(items(200)))
    ASSERT_TRUE(version);
  expect_stored(200);
}

TEST_F(PackedPuts, InFlightWhenTheConnectionEndsMayHaveHappened) {
  const auto all = items(500);
  client();
  server_.die_at_send = 6;
  std::vector<int> visits(all.size());
  std::size_t unknown = 0;
  client().multi_put_each(all, [&](std::size_t index, const Result<std::uint64_t>& version) {
    ++visits.at(index);
    if (version) return;
    ++unknown;
    EXPECT_EQ(version.error().write, WriteOutcome::kMayHaveHappened);
  });
  EXPECT_EQ(visits, std::vector<int>(all.size(), 1));
  EXPECT_GE(unknown, 1U);
  EXPECT_LE(unknown, std::size_t{server_.credits} * kMaxPacked);
  auto log = server_.log;
  std::erase(log, "pack ");  // its operations follow it
  std::ranges::sort(log);
  EXPECT_EQ(std::ranges::adjacent_find(log), log.end())
      << "nothing that may have happened is sent twice";
}

// The next server knows no packs: what was packed and not sent is taken apart.
TEST_F(PackedPuts, GoOneByOneToTheNextServer) {
  const auto all = items(3000);
  client();
  server_.die_at_send = 3;
  server_.before_connect = [this] { server_.max_packed = 0; };
  std::size_t done = 0;
  for (const auto& version : client().multi_put(all))
    done += version ? 1U : 0U;
  EXPECT_GE(done, 3000U - server_.credits * kMaxPacked);
  EXPECT_LE(server_.packs, server_.credits);
}

TEST_F(PackedPuts, ThatNobodyAnswersEndAtTheDeadline) {
  server_.answer = [](const Request&) { return Response{}; };
  client();
  server_.change_answer = [](std::vector<std::byte>&) {};
  server_.latency = 3600 * kNanosPerSecond;
  std::size_t unknown = 0;
  for (const auto& version : client().multi_put(items(2000), std::chrono::milliseconds(20))) {
    ASSERT_FALSE(version);
    EXPECT_EQ(version.error().code, Code::kTimeout);
    unknown += version.error().write == WriteOutcome::kMayHaveHappened ? 1U : 0U;
  }
  EXPECT_GE(unknown, std::size_t{server_.credits});
  EXPECT_LE(unknown, std::size_t{server_.credits} * kMaxPacked);
}

// Each byte of each answer changed once: every item is visited once, and nothing hangs.
TEST_F(PackedPuts, SurviveAnswersThatLie) {
  const auto all = items(16);
  std::size_t length = 0;
  server_.change_answer = [&](std::vector<std::byte>& message) { length = message.size(); };
  (void)client().multi_put(all);
  ASSERT_GT(length, kResponseHeaderBytes + 8 * kPackedResultBytes - 1);
  std::size_t failed = 0;
  for (std::size_t at = 0; at < length; ++at) {
    bool changed = false;
    server_.change_answer = [&](std::vector<std::byte>& message) {
      if (!changed && at < message.size()) message[at] ^= std::byte{0x81};
      changed = true;
    };
    std::vector<int> visits(all.size());
    client().multi_put_each(all, [&](std::size_t index, const Result<std::uint64_t>& version) {
      ++visits.at(index);
      failed += version ? 0U : 1U;
    });
    EXPECT_EQ(visits, std::vector<int>(all.size(), 1)) << at;
  }
  EXPECT_GT(failed, 100U);
  server_.change_answer = {};
  for (const auto& version : client().multi_put(all))
    EXPECT_TRUE(version);
}

}  // namespace
}  // namespace rkv
