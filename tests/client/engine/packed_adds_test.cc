// Additions to counters without cells travel in packs: each has its own result, and none is made
// twice.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/count_allocations.h"

namespace rkv {
namespace {

class PackedAdditions : public ClientTest {
 protected:
  PackedAdditions() {
    server_.max_packed = kMaxPacked;
    server_.answer = [this](const Request& request) { return serve(request); };
  }

  Response serve(const Request& request) {
    Response response{.version = Version::of(1, ++sequence_)};
    if (request.opcode == Opcode::kOpenCounter) {
      store_le(answer_.data(), kNoCell);
      response.value = answer_;
    } else if (request.opcode == Opcode::kAdd) {
      std::int64_t& number = numbers_[std::string(as_text(request.key))];
      number += load_le<std::int64_t>(request.value.data());
      store_le(answer_.data(), number);
      response.value = answer_;
    }
    return response;
  }

  // From the next connection on, the server has two cells.
  void grant_cells() {
    const RemoteWindow cells{.address = 4096, .remote_key = 5, .length = 16};
    server_.accept.emplace(196);
    encode(ConnectAccept{.epoch = server_.memory->epoch,
                         .session = 1,
                         .credits = 4,
                         .max_message_bytes = kMaxMessageBytes,
                         .max_sent_bytes = kMaxMessageBytes,
                         .root = server_.memory->window(),
                         .counters = cells,
                         .max_packed = kMaxPacked},
           *server_.accept);
  }
  // Opens so many counters; forgets what the server was asked for that.
  void open(std::size_t count, std::size_t key_bytes = 1) {
    for (std::size_t i = 0; i < count; ++i) {
      std::string key = std::to_string(i);
      if (key.size() < key_bytes) key += std::string(key_bytes - key.size(), '.');
      auto counter = client().open_counter(key);
      RKV_CHECK(counter && !counter->is_one_sided(), "a counter without a cell");
      counters_.push_back(std::move(*counter));
    }
    server_.requests = 0;
    server_.log.clear();
  }
  // The i-th addition adds i + 1 to a counter; the counters take turns.
  std::vector<CounterAddition> additions(std::size_t count) {
    std::vector<CounterAddition> all;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back({.counter = &counters_[i % counters_.size()],
                     .summand = static_cast<std::int64_t>(i) + 1});
    return all;
  }
  // The results are those of as many calls of incr().
  static void expect_running_numbers(std::span<const CounterAddition> all,
                                     std::span<const Result<Counter>> results) {
    std::map<std::string, std::int64_t> sums;
    ASSERT_EQ(results.size(), all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(results[i]) << i << ": " << to_string(results[i].error());
      EXPECT_EQ(results[i]->number, sums[all[i].counter->key()] += all[i].summand) << i;
    }
  }
  void expect_none_sent_twice() {
    auto log = server_.log;
    std::erase(log, "pack ");  // its operations follow it
    std::ranges::sort(log);
    EXPECT_EQ(std::ranges::adjacent_find(log), log.end());
  }

  std::vector<OneSidedCounter> counters_;
  std::map<std::string, std::int64_t> numbers_;
  std::array<std::byte, kCounterBytes> answer_{};
  std::uint64_t sequence_ = 0;
};

TEST_F(PackedAdditions, TakeFewRequests) {
  open(64);
  const auto all = additions(64);
  const std::uint64_t before = client().stats().two_sided_requests;
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.packs, 2);
  EXPECT_EQ(server_.requests, 2);
  EXPECT_EQ(client().stats().two_sided_requests - before, 2U);
  EXPECT_EQ(client().stats().atomics, 0U);
}

TEST_F(PackedAdditions, AreAsManyAsTheServerTakes) {
  server_.max_packed = 8;
  open(20);
  const auto all = additions(20);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.requests, 3);
}

TEST_F(PackedAdditions, OfAServerThatKnowsNoneGoOneByOne) {
  server_.max_packed = 0;
  open(40);
  const auto all = additions(100);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.packs, 0);
  EXPECT_EQ(server_.requests, 100);
}

TEST_F(PackedAdditions, ToTheSameCountersKeepTheirOrder) {
  open(3);
  const auto all = additions(1000);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.requests, server_.packs);
}

// More than one call takes at once, and those that are too large for any cell.
TEST_F(PackedAdditions, OfAnySummandAreMade) {
  open(5);
  auto all = additions(1500);
  for (std::size_t i = 0; i < all.size(); i += 7)
    all[i].summand = -(std::int64_t{1} << 40);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_LE(server_.requests, 1500 / 16);
}

TEST_F(PackedAdditions, ThatAreTooLongForOnePackTakeSeveral) {
  server_.max_sent_bytes = 2048;  // the transport checks it
  open(10, 900);
  const auto all = additions(30);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.packs, 15);
  EXPECT_EQ(server_.requests, 15);
  EXPECT_EQ(server_.long_requests, 0);
}

TEST_F(PackedAdditions, ThatAreTooLongForAnyPackGoByThemselves) {
  server_.max_sent_bytes = 640;
  open(4, 900);
  const auto all = additions(8);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.packs, 0);
  EXPECT_EQ(server_.long_requests, server_.requests + 4) << "as when they were opened";
}

TEST_F(PackedAdditions, HaveTheirOwnResults) {
  open(50);
  server_.answer = [this](const Request& request) -> std::optional<Response> {
    if (std::stoul(std::string(as_text(request.key))) % 7 != 3) return serve(request);
    return Response{.code = static_cast<std::uint8_t>(Code::kWrongType),
                    .value = as_bytes("no counter")};
  };
  const auto results = client().multi_incr(additions(50));
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i % 7 != 3) {
      ASSERT_TRUE(results[i]) << i;
      EXPECT_EQ(results[i]->number, static_cast<std::int64_t>(i) + 1);
    } else {
      EXPECT_EQ(results[i].error().code, Code::kWrongType);
      EXPECT_EQ(results[i].error().write, WriteOutcome::kNotApplied);
    }
  }
  EXPECT_EQ(server_.requests, 2);
}

TEST_F(PackedAdditions, RefusedInAPackAreSentAlone) {
  open(64);
  std::map<std::string, int> asked;
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    const std::string key(as_text(request.key));
    if (++asked[key] == 1 && key.back() == '5') return std::nullopt;  // refused_alone()
    return serve(request);
  };
  const auto all = additions(64);
  expect_running_numbers(all, client().multi_incr(all));
  for (const auto& [key, times] : asked)
    EXPECT_EQ(times, key.back() == '5' ? 2 : 1) << key;
  EXPECT_EQ(server_.requests - server_.packs, 6) << "5, 15, ... 55";
}

TEST_F(PackedAdditions, RefusedAsBusyAreMadeLater) {
  open(64);
  int calls = 0;
  server_.answer = [&](const Request& request) {
    Response response = ++calls % 5 == 0 ? busy() : serve(request);
    if (response.code != 0) response.retry_after_ms = 3;
    return std::optional(response);
  };
  const auto all = additions(64);
  const Nanos begun = server_.clock.now();
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_GE(server_.clock.now() - begun, 6 * kNanosPerMs) << "each pack had busy results";
  EXPECT_EQ(server_.packs, 2);
}

TEST_F(PackedAdditions, OfAServerThatStaysBusyEndByTheDeadline) {
  open(64);
  server_.answer = [](const Request&) { return std::optional(busy()); };
  const Nanos begun = server_.clock.now();
  for (const auto& result : client().multi_incr(additions(64), std::chrono::milliseconds(300))) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().write, WriteOutcome::kNotApplied);
  }
  EXPECT_LE(server_.clock.now() - begun, 300 * kNanosPerMs);
}

// The second of four packs is made, and its answer lost.
TEST_F(PackedAdditions, InFlightWhenTheConnectionEndsMayHaveHappened) {
  open(128);
  server_.die_at_send = 2;
  const auto results = client().multi_incr(additions(128));
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (i / kMaxPacked != 1) {
      EXPECT_TRUE(results[i]) << i;
      continue;
    }
    ASSERT_FALSE(results[i]) << i;
    EXPECT_EQ(results[i].error().code, Code::kDisconnected);
    EXPECT_EQ(results[i].error().write, WriteOutcome::kMayHaveHappened);
  }
  expect_none_sent_twice();
  EXPECT_EQ(client().stats().reconnects, 1U);
}

TEST_F(PackedAdditions, ThatWereNotSentWhenTheConnectionEndedAreMade) {
  open(64);
  server_.connection->abort();
  const auto all = additions(64);
  expect_running_numbers(all, client().multi_incr(all));
  expect_none_sent_twice();
  EXPECT_EQ(client().stats().reconnects, 1U);
}

// Additions that the first server had no time for go to a server that takes other packs.
TEST_F(PackedAdditions, GoOneByOneToTheNextServer) {
  open(128);
  server_.die_at_send = 1;
  server_.before_connect = [this] { server_.max_packed = 0; };
  std::size_t unknown = 0;
  for (const auto& result : client().multi_incr(additions(128)))
    unknown += result ? 0U : 1U;
  EXPECT_EQ(unknown, kMaxPacked);
  EXPECT_EQ(std::ranges::count(server_.log, "pack "), 1);
  EXPECT_EQ(server_.requests, 1 + 128 - static_cast<int>(kMaxPacked));
  expect_none_sent_twice();
}

TEST_F(PackedAdditions, ThatNobodyAnswersEndAtTheDeadline) {
  open(128);
  server_.latency = 3600 * kNanosPerSecond;
  const auto results = client().multi_incr(additions(128), std::chrono::milliseconds(20));
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_FALSE(results[i]) << i;
    EXPECT_EQ(results[i].error().write,
              i < kMaxPacked ? WriteOutcome::kMayHaveHappened : WriteOutcome::kNotApplied);
  }
  EXPECT_EQ(results[0].error().code, Code::kTimeout);
  EXPECT_EQ(server_.packs, 1);
}

// The whole pack is refused, once.
TEST_F(PackedAdditions, AwaitRoomForTheirAnswer) {
  open(32);
  bool refused = false;
  server_.change_answer = [&](std::vector<std::byte>& message) {
    if (std::exchange(refused, true)) return;
    message.resize(kResponseHeaderBytes);
    message[1] = static_cast<std::byte>(Code::kBusy);
    store_le(message.data() + 4, std::uint32_t{0});
    numbers_.clear();  // it was not begun
  };
  const auto all = additions(32);
  expect_running_numbers(all, client().multi_incr(all));
  EXPECT_EQ(server_.packs, 2);
}

// Each byte of an answer changed once: every addition has a result, and none is sent again whose
// fate is unknown.
TEST_F(PackedAdditions, SurviveAnswersThatLie) {
  open(8);
  auto all = additions(8);
  std::size_t length = 0;
  server_.change_answer = [&](std::vector<std::byte>& message) { length = message.size(); };
  (void)client().multi_incr(all);
  ASSERT_EQ(length, kResponseHeaderBytes + 8 * (kPackedResultBytes + kCounterBytes));
  std::size_t failed = 0;
  for (std::size_t at = 0; at < length; ++at) {
    bool changed = false;
    server_.change_answer = [&](std::vector<std::byte>& message) {
      if (!std::exchange(changed, true)) message.at(at) ^= std::byte{0x81};
    };
    numbers_.clear();
    const auto results = client().multi_incr(all);
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(numbers_[counters_[i].key()], all[i].summand) << at << ": made once";
      if (results[i]) continue;
      ++failed;
      EXPECT_EQ(results[i].error().write, WriteOutcome::kMayHaveHappened) << at;
    }
  }
  EXPECT_GT(failed, 100U);
  server_.change_answer = {};
  for (const auto& result : client().multi_incr(all))
    EXPECT_TRUE(result);
}

// Beside the two cells that the fake server has, and whose numbers it invents.
TEST_F(PackedAdditions, GoBesideAdditionsInCells) {
  grant_cells();
  std::uint64_t next_cell = 0;
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    Response response = serve(request);
    if (request.opcode == Opcode::kOpenCounter && next_cell < 2)
      store_le(answer_.data(), next_cell++);
    return response;
  };
  server_.atomic_result = [] { return cell_word(1000); };
  std::vector<OneSidedCounter> counters;
  for (int i = 0; i < 10; ++i)
    counters.push_back(*client().open_counter(std::to_string(i)));
  std::vector<CounterAddition> all;
  for (int i = 0; i < 30; ++i)
    all.push_back({.counter = &counters[static_cast<std::size_t>(i % 10)], .summand = i});
  server_.requests = 0;
  const auto results = client().multi_incr(all);
  std::map<int, std::int64_t> sums;
  for (int i = 0; i < 30; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    ASSERT_TRUE(result) << i;
    EXPECT_EQ(result->number, i % 10 < 2 ? 1000 + i : sums[i % 10] += i) << i;
  }
  EXPECT_EQ(client().stats().atomics, 6U);
  EXPECT_EQ(server_.requests, 1);
}

// Only a server that has cells may have one for the counter later.
TEST_F(PackedAdditions, AskAgainForCellsThatThereMayBe) {
  for (const bool may_be : {false, true}) {
    if (may_be) grant_cells();
    client_.reset();
    counters_.clear();
    open(32);
    server_.clock.advance(3600 * kNanosPerSecond);
    const auto all = additions(32);
    numbers_.clear();
    expect_running_numbers(all, client().multi_incr(all));
    EXPECT_EQ(server_.requests, may_be ? 32 + 1 : 1);
  }
}

TEST_F(PackedAdditions, AreAcknowledgedWrites) {
  open(4);
  server_.change_answer = [](std::vector<std::byte>& message) {
    if (message[0] != static_cast<std::byte>(Opcode::kPack)) return;
    store_le(message.data() + 40, Version::of(1, 1000).bits);  // the wal mark
  };
  for (const auto& result : client().multi_incr(additions(4))) {
    ASSERT_TRUE(result);
    EXPECT_EQ(result->durability, Durability::kWal);
    EXPECT_NE(result->version, 0U);
  }
  const auto before =
      std::exchange(server_.memory, std::make_unique<ScriptedMemory>(ScriptedMemory::kEpoch + 1));
  server_.connection->abort();
  server_.change_answer = {};
  EXPECT_EQ(client().flush().error().code, Code::kStale) << "they may be lost";
}

// The fake server allocates for each message, not for each operation.
TEST_F(PackedAdditions, DoNotAllocate) {
  open(kMaxPacked);
  server_.log.reserve(1000);
  const auto allocations = [&](std::size_t count) {
    const auto all = additions(count);
    (void)client().multi_incr(all);
    const std::size_t before = testing::allocation_count();
    (void)client().multi_incr(all);
    return testing::allocation_count() - before;
  };
  EXPECT_EQ(allocations(kMaxPacked), allocations(2));
  EXPECT_EQ(server_.requests, 4);
}

}  // namespace
}  // namespace rkv
