// The asynchronous client over the fake transport: what it allocates, and what it does with memory
// of operations that end before their READs.
#include "rkv/async_client.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/async/async_fixture.h"
#include "tests/client/count_allocations.h"
#include "tests/support/detached.h"

namespace rkv {
namespace {

using namespace std::chrono_literals;

using testing_support::Detached;

Detached read_often(AsyncClient& client, std::string_view key, int times, int& found) {
  std::array<std::byte, 16> room;
  for (int i = 0; i < times; ++i)
    found += co_await client.get_into(key, room) ? 1 : 0;
}

TEST_F(AsyncClientTest, ReadsWithoutAllocatingOnceItHasReadAsMuch) {
  constexpr int kCount = 100;
  std::vector<std::string> keys;
  for (int i = 0; i < kCount; ++i) {
    keys.push_back("key " + std::to_string(i));
    store(keys.back(), "value");
  }
  int found = 0;
  const auto all = [&] {
    for (const std::string& key : keys)
      async().get(key).then([&found](const Result<ValueView>& got) { found += got ? 1 : 0; });
    run();
  };
  all();
  const std::size_t before = testing::allocation_count();
  all();
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(found, 2 * kCount);

  // A coroutine allocates its frame only.
  found = 0;
  read_often(async(), keys.front(), kCount, found);
  const std::size_t begun = testing::allocation_count();
  run();
  EXPECT_EQ(testing::allocation_count(), begun);
  EXPECT_EQ(found, kCount);
}

TEST_F(AsyncClientTest, WritesWithoutAllocatingOnceItHasWrittenAsMuch) {
  std::array<std::byte, kCounterBytes> number{};
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    if (request.opcode == Opcode::kSwap)
      return Response{.flags = Response::kSwapped, .value = number};
    return Response{.version = Version::of(1, 1), .value = number};
  };
  for (const std::uint16_t packed : {std::uint16_t{0}, std::uint16_t{kMaxPacked}}) {
    async_.reset();
    server_.max_packed = packed;
    int done = 0;
    const auto note = [&done](const auto& result) { done += result ? 1 : 0; };
    const auto all = [&] {
      for (int i = 0; i < 100; ++i) {
        async().put("key", "value").then(note);
        async().put_with("key", "value", {.ttl = 5ms, .if_version = 7}).then(note);
        async().remove("key").then(note);
        async().remove_if_version("key", 7).then(note);
        async().incr("counter", -3).then(note);
        async().counter_cas("counter", 1, 2).then(note);
      }
      run();
    };
    all();
    const std::size_t before = testing::allocation_count();
    all();
    EXPECT_EQ(testing::allocation_count(), before) << "packs of " << packed;
    EXPECT_EQ(done, 1200);
  }
}

// The key of an operation that has ended may be gone, and so may the operation.
TEST_F(AsyncClientTest, AGetThatIsOverdueIsForgottenAndItsMemoryUsedAgainWhenItsReadsHaveLanded) {
  options_.reads_in_flight = 2;
  store("key", "value");
  for (const bool cached : {false, true}) {
    if (cached) {
      async().get("key").then([](const Result<ValueView>& got) { EXPECT_TRUE(got); });
      run();
    }
    server_.read_latency = 50 * kNanosPerMs;
    std::vector<Error> errors;
    for (int i = 0; i < 5; ++i) {
      const auto key = std::make_unique<std::string>("key");
      async().get(*key, {.timeout = 10ms}).then([&](const Result<ValueView>& got) {
        ASSERT_FALSE(got);
        errors.push_back(got.error());
      });
      async().poll();
      server_.clock.advance(11 * kNanosPerMs);
      async().poll();
    }
    ASSERT_EQ(errors.size(), 5U);
    for (const Error& error : errors)
      EXPECT_EQ(error.code, Code::kTimeout);
    EXPECT_EQ(async().in_flight(), 0U);
    server_.clock.advance(100 * kNanosPerMs);
    server_.read_latency = 0;
    std::string value;
    async().get("key").then([&](const Result<ValueView>& got) {
      ASSERT_TRUE(got) << to_string(got.error());
      value = got->value;
    });
    run();
    EXPECT_EQ(value, "value");
    EXPECT_EQ(server_.connects, 1) << "the connection was lost for one operation's time";
  }
}

// Three READs, one after the other: the group, the record's head, the value.
TEST_F(AsyncClientTest, ALongValueIsReadStraightIntoRegisteredMemory) {
  const std::string value(200'000, 'v');
  store("key", value);
  auto memory = async().allocate_buffer(1 << 20);
  ASSERT_TRUE(memory);
  const std::size_t registered = server_.registered_bytes;
  const auto room = memory->bytes().subspan(4096, 300'000);
  auto pending = async().get_into("key", room).start();
  run();
  const auto size = pending.wait();
  ASSERT_TRUE(size) << to_string(size.error());
  EXPECT_EQ(size->bytes, value.size());
  EXPECT_EQ(as_text(room.first(value.size())), value);
  EXPECT_EQ(server_.registered_bytes, registered) << "it took memory of the client";

  // Into memory that is too short, or of the program's own, it comes by the client's.
  auto refused = async().get_into("key", room.first(199'999)).start();
  std::vector<std::byte> own(300'000);
  auto copied = async().get_into("key", own).start();
  run();
  EXPECT_EQ(refused.wait().error().code, Code::kTooLarge);
  EXPECT_EQ(copied.wait()->bytes, value.size());
  EXPECT_EQ(as_text(Bytes(own).first(value.size())), value);
  EXPECT_GT(server_.registered_bytes, registered);
}

// INTO-1. A handle has a copy of its key, which therefore lies elsewhere.
TEST_F(AsyncClientTest, AKeyInTheMemoryForItsValueIsRefused) {
  store("key", "value");
  store("big", std::string(200'000, 'v'));
  auto memory = async().allocate_buffer(300'000);
  ASSERT_TRUE(memory);
  std::vector<std::byte> own(300'000);
  for (const std::string_view name : {"key", "big"}) {
    for (const std::span<std::byte> room : {memory->bytes(), std::span(own)}) {
      std::memcpy(room.data(), name.data(), 3);
      const std::string_view key = as_text(room.first(3));
      Code code{};
      async().get_into(key, room).then([&](const Result<ValueSize>& got) {
        if (!got) code = got.error().code;
      });
      run();
      EXPECT_EQ(code, Code::kInvalidArgument);
      EXPECT_EQ(key, name);
      auto pending = async().get_into(key, room).start();
      run();
      EXPECT_TRUE(pending.wait());
    }
  }
}

TEST_F(AsyncClientTest, ADurabilityThatIsNoLevelIsRefused) {
  store("key", "value");
  const auto wrong = static_cast<Durability>(4);
  int refused = 0;
  const auto note = [&](const auto& result) {
    refused += !result && result.error().code == Code::kInvalidArgument ? 1 : 0;
  };
  async().put("key", "value", {.durability = wrong}).then(note);
  async().remove("key", {.durability = wrong}).then(note);
  async().incr("key", 1, {.durability = wrong}).then(note);
  async().counter_cas("key", 1, 2, {.durability = wrong}).then(note);
  async().get("key", {.at_least = wrong}).then(note);
  run();
  EXPECT_EQ(refused, 5);
  EXPECT_EQ(server_.requests, 0);
}

// READs may land in the memory until they have ended: so the operation ends after them. A cached
// place takes two, of the record's head and of the value.
TEST_F(AsyncClientTest, AGetIntoRegisteredMemoryEndsWhenItsReadsHaveLanded) {
  store("key", std::string(200'000, 'v'));
  auto memory = async().allocate_buffer(1 << 20);
  ASSERT_TRUE(memory);
  async().get("key").then([](const Result<ValueView>& got) { EXPECT_TRUE(got); });
  run();
  server_.read_latency = 50 * kNanosPerMs;
  for (const bool cancelled : {false, true}) {
    std::stop_source stop;
    auto pending =
        async().get_into("key", memory->bytes(), {.timeout = 70ms}).until(stop.get_token()).start();
    for (int ms = 0; ms < 60; ++ms) {  // the value's READ is under way
      async().poll();
      server_.clock.advance(kNanosPerMs);
    }
    if (cancelled) stop.request_stop();
    for (int ms = 60; ms < 90; ++ms) {
      async().poll();
      EXPECT_EQ(async().in_flight(), 1U) << "after " << ms << " ms";
      server_.clock.advance(kNanosPerMs);
    }
    server_.clock.advance(20 * kNanosPerMs);
    async().poll();
    EXPECT_EQ(async().in_flight(), 0U);
    const auto got = pending.wait();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, cancelled ? Code::kCancelled : Code::kTimeout);
    server_.clock.advance(kNanosPerSecond);
    async().poll();
  }
  EXPECT_EQ(server_.connects, 1);
}

// Or when the connection is closed, which happens when it has been silent for 2 s.
TEST_F(AsyncClientTest, AGetIntoRegisteredMemoryEndsAlthoughItsReadsNeverLand) {
  store("key", std::string(200'000, 'v'));
  async().get("key").then([](const Result<ValueView>& got) { EXPECT_TRUE(got); });
  run();
  {
    auto memory = async().allocate_buffer(1 << 20);
    ASSERT_TRUE(memory);
    for (const bool cancelled : {false, true}) {
      std::stop_source stop;
      server_.read_latency = 50 * kNanosPerMs;
      auto pending = async()
                         .get_into("key", memory->bytes(), {.timeout = 70ms})
                         .until(stop.get_token())
                         .start();
      for (int ms = 0; ms < 60; ++ms) {
        if (ms == 40) server_.reads_hang = true;
        async().poll();
        server_.clock.advance(kNanosPerMs);
      }
      if (cancelled) stop.request_stop();
      for (Nanos waited = 0; waited < 2 * kNanosPerSecond - 100 * kNanosPerMs;
           waited += 10 * kNanosPerMs) {
        EXPECT_EQ(async().in_flight(), 1U);
        async().poll();
        server_.clock.advance(10 * kNanosPerMs);
      }
      server_.clock.advance(200 * kNanosPerMs);
      run();  // a thread of the client closes the connection
      EXPECT_EQ(pending.wait().error().code, cancelled ? Code::kCancelled : Code::kTimeout);
      server_.reads_hang = false;
      server_.read_latency = 0;
      server_.clock.advance(options_.first_backoff.count() * kNanosPerMs);
      async().get("key").then([](const Result<ValueView>& got) { EXPECT_TRUE(got); });
      run();  // over the next connection
    }
  }  // nobody holds the memory
  EXPECT_EQ(server_.connects, 3);
}

// A peer over which nothing comes any more is left, so that other operations find a server.
TEST_F(AsyncClientTest, AConnectionThatStaysSilentIsLeft) {
  store("key", "value");
  server_.answer = [](const Request&) -> std::optional<Response> { return std::nullopt; };
  int ended = 0;
  async().put("key", "new", {.timeout = 100ms}).then([&](const Result<std::uint64_t>& put) {
    ASSERT_FALSE(put);
    EXPECT_EQ(put.error().code, Code::kTimeout);
    EXPECT_EQ(put.error().write, WriteOutcome::kMayHaveHappened);
    ++ended;
  });
  async().poll();
  server_.clock.advance(101 * kNanosPerMs);
  async().poll();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(server_.connects, 1);
  server_.clock.advance(3 * kNanosPerSecond);
  async().poll();
  async().poll();
  server_.clock.advance(options_.first_backoff.count() * kNanosPerMs);
  server_.answer = [](const Request&) { return Response{.version = Version::of(1, 7)}; };
  async().put("key", "new").then([&](const Result<std::uint64_t>& put) {
    ASSERT_TRUE(put) << to_string(put.error());
    ++ended;
  });
  run();
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(server_.connects, 2);
}

// A write whose answer was lost is asked about over the next connection, and each counted once.
TEST_F(AsyncClientTest, EachWriteIsCarriedOutOnceAcrossLostConnections) {
  for (const std::uint16_t packed : {std::uint16_t{0}, std::uint16_t{kMaxPacked}}) {
    server_.max_packed = packed;
    server_.remembers = true;
    server_.dies_after = true;
    std::map<std::string, int> sums;
    std::uint64_t sequence = 0;
    server_.answer = [&](const Request& request) -> std::optional<Response> {
      static std::array<std::byte, kCounterBytes> number;
      store_le(number.data(), std::int64_t{++sums[std::string(as_text(request.key))]});
      return Response{.version = Version::of(1, ++sequence), .value = number};
    };
    constexpr int kCount = 60;
    std::vector<std::string> keys;
    for (int i = 0; i < kCount; ++i)
      keys.push_back("counter" + std::to_string(i));
    int done = 0;
    for (const std::string& key : keys) {
      async().incr(key).then([&](const Result<Counter>& counter) {
        ASSERT_TRUE(counter) << to_string(counter.error());
        EXPECT_EQ(counter->number, 1);
        ++done;
      });
    }
    server_.die_at_send = 2;
    const int connects = server_.connects;
    run();
    EXPECT_EQ(done, kCount);
    EXPECT_GT(server_.connects, connects);
    for (const std::string& key : keys)
      EXPECT_EQ(sums[key], 1) << key;
    EXPECT_GT(async().stats().outcomes_recovered, 0U);
  }
}

constexpr int kThreads = 3;
constexpr int kEach = 400;

// How the operations of the test below have ended.
struct Ends {
  std::atomic<int> done = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int> late = 0;
  std::atomic<int> other = 0;
  std::vector<std::atomic<int>> of_each = std::vector<std::atomic<int>>(kThreads * kEach);
  // An operation whose time is short may be late because a connection is being made.
  void note(std::size_t index, bool is_short, const Error* error) {
    ++of_each[index];
    if (error == nullptr) {
      ++done;
    } else if (error->code == Code::kCancelled) {
      ++cancelled;
    } else {
      ++(is_short ? late : other);
    }
  }
};

// Submits the operations of one thread, withdraws some, and waits until all have ended.
void submit_all(AsyncClient& client, int thread, Ends& ends) {
  std::vector<std::stop_source> stops(kEach);
  for (std::size_t i = 0; i < kEach; ++i) {
    const std::size_t index = static_cast<std::size_t>(thread) * kEach + i;
    const bool is_short = i % 10 == 0;
    const auto note = [&ends, index, is_short](const auto& result) {
      ends.note(index, is_short, result ? nullptr : &result.error());
    };
    const std::chrono::milliseconds timeout = is_short ? 1ms : 20'000ms;
    if (i % 2 == 0) {
      client.put("key", "value", {.timeout = timeout}).until(stops[i].get_token()).then(note);
    } else {
      client.get("key", {.timeout = timeout}).until(stops[i].get_token()).then(note);
    }
    if (i % 7 == 0) stops[i].request_stop();
    if (i % 50 == 0) std::this_thread::sleep_for(1ms);
  }
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (client.in_flight() != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
}

// ASYNC-1, with all that may happen at once: threads that submit and cancel, threads that drive,
// connections that end, deadlines that pass. The fake server is used by one thread at a time, as
// the engine is.
TEST_F(AsyncClientTest, EachOperationEndsOnceUnderManyThreads) {
  const SteadyClock clock;
  options_.first_backoff = 1ms;
  server_.max_packed = kMaxPacked;
  server_.remembers = true;
  server_.dies_after = true;
  store("key", "value");
  std::uint64_t writes = 0;
  server_.answer = [&](const Request&) -> std::optional<Response> {
    if (++writes % 150 == 0) server_.die_at_send = 2;
    return Response{.version = Version::of(1, writes)};
  };
  auto made = AsyncClient::connect(options_, std::make_shared<AnsweringTransport>(server_), &clock);
  ASSERT_TRUE(made) << to_string(made.error());
  AsyncClient client = std::move(*made);

  Ends ends;
  std::atomic<bool> over = false;
  std::vector<std::thread> drivers;
  for (int i = 0; i < 2; ++i) {
    drivers.emplace_back([&, i] {
      while (!over) {
        if (i == 0) {
          client.poll();
          (void)client.arm();
        } else {
          EXPECT_TRUE(client.wait(1ms));
        }
      }
    });
  }
  std::vector<std::thread> submitters;
  for (int t = 0; t < kThreads; ++t) {
    submitters.emplace_back([&, t] { submit_all(client, t, ends); });
  }
  for (std::thread& thread : submitters)
    thread.join();
  over = true;
  for (std::thread& thread : drivers)
    thread.join();
  EXPECT_EQ(client.in_flight(), 0U);
  for (const std::atomic<int>& count : ends.of_each)
    EXPECT_EQ(count, 1);
  EXPECT_GT(ends.done, kThreads * kEach / 2);
  EXPECT_EQ(ends.other, 0);
  EXPECT_EQ(ends.done + ends.cancelled + ends.late, kThreads * kEach);
  EXPECT_GT(server_.connects, 2);
}

// ASYNC-5
TEST_F(AsyncClientTest, AServerOfAGroupIsBelievedAfterTheOperationWasSubmitted) {
  server_.in_group = true;
  store("key", "value");
  int ended = 0;
  const auto get = [&] {
    async().get("key").then([&](const Result<ValueView>& got) {
      EXPECT_TRUE(got) << to_string(got.error());
      ++ended;
    });
    run();
  };
  get();
  const int reads = server_.group_reads;
  server_.clock.advance(kNanosPerSecond);  // longer than it is believed
  get();
  EXPECT_GT(server_.group_reads, reads);
  EXPECT_EQ(ended, 2);
}

}  // namespace
}  // namespace rkv
