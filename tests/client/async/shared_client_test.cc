// The client of many threads over the fake transport: each operation is carried out once and
// returns to its own thread, whichever thread drives; what it allocates; what it says of a server
// that has restarted.
#include "rkv/shared_client.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/client/client_fixture.h"
#include "tests/client/count_allocations.h"

namespace rkv {
namespace {

using namespace std::chrono_literals;

class SharedClientTest : public ClientTest {
 protected:
  ~SharedClientTest() override { shared_.reset(); }
  SharedClient& shared() {
    if (!shared_) {
      options_.timeout = 1000ms;
      auto made = SharedClient::connect(options_, 1, std::make_shared<AnsweringTransport>(server_),
                                        clock_, &refusal_);
      RKV_CHECK(made, "the fake server accepts");
      shared_ = std::make_unique<SharedClient>(std::move(*made));
    }
    return *shared_;
  }
  // Each sum is told in the answer, so that a repeated addition shows.
  void serve_sums() {
    server_.answer = [this](const Request& request) -> std::optional<Response> {
      store_le(number_.data(), ++sums_[std::string(as_text(request.key))]);
      if (dies_every_ != 0 && ++writes_ % dies_every_ == 0) server_.die_at_send = 2;
      return Response{.version = Version::of(1, ++sequence_), .value = number_};
    };
  }

  const SteadyClock steady_;
  const Clock* clock_ = &server_.clock;
  std::unique_ptr<SharedClient> shared_;
  std::array<std::byte, kCounterBytes> number_{};
  std::map<std::string, std::int64_t> sums_;
  std::uint64_t sequence_ = 0;
  std::uint64_t writes_ = 0;
  std::uint64_t dies_every_ = 0;
};

TEST_F(SharedClientTest, OperationsOnOneKeyReturnWhatAClientReturns) {
  store("key", "value");
  const auto got = shared().get("key");
  ASSERT_TRUE(got) << to_string(got.error());
  EXPECT_EQ(got->value, "value");
  EXPECT_EQ(shared().get("absent").error().code, Code::kNotFound);

  std::array<std::byte, 3> room;
  EXPECT_EQ(shared().get_into("key", room).error().code, Code::kTooLarge);
  EXPECT_EQ(SharedClient::needed_bytes(), 5U);
  std::array<std::byte, 8> enough;
  ASSERT_TRUE(shared().get_into("key", enough));
  EXPECT_EQ(as_text(Bytes(enough).first(5)), "value");

  serve_sums();
  EXPECT_EQ(shared().incr("counter")->number, 1);
  EXPECT_EQ(shared().decr("counter")->number, 2) << "the fake server counts its answers";
  EXPECT_TRUE(shared().put("key", "new"));
  EXPECT_TRUE(shared().remove("key"));
  EXPECT_EQ(shared().put_with("key", "new", {.if_absent = true, .if_version = 7}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(shared().put("", "no key").error().code, Code::kInvalidArgument);
}

// INTO-1
TEST_F(SharedClientTest, MemoryForValuesHoldsNoKeyAndOverlapsNoOther) {
  store("key", "value");
  store("big", std::string(200'000, 'v'));
  auto memory = shared().allocate_buffer(1 << 20);
  ASSERT_TRUE(memory);
  std::vector<std::byte> own(1 << 20);
  for (const std::string_view name : {"key", "big"}) {
    for (const std::span<std::byte> all : {memory->bytes(), std::span(own)}) {
      std::memcpy(all.data() + 700'000, name.data(), 3);
      const std::string_view inside = as_text(all.subspan(700'000, 3));
      EXPECT_EQ(shared().get_into(inside, all).error().code, Code::kInvalidArgument);
      const std::array<std::span<std::byte>, 3> apart = {all.subspan(500'000, 200'000),
                                                         all.first(0), all.first(300'000)};
      const auto codes = [&](const std::array<std::string_view, 3>& keys,
                             std::array<std::span<std::byte>, 3> buffers) {
        std::vector<Code> found;
        for (const auto& got : shared().multi_get_buffers(keys, buffers))
          found.push_back(got ? Code{} : got.error().code);
        return found;
      };
      using Codes = std::vector<Code>;
      const Codes refused(3, Code::kInvalidArgument);
      const Codes ended = {Code{}, Code::kNotFound, Code{}};
      EXPECT_EQ(codes({name, "absent", inside}, apart), ended);
      // The key of one in the memory of another.
      EXPECT_EQ(codes({inside, "absent", name},
                      {all.first(200'000), all.first(0), all.subspan(699'999, 200'000)}),
                refused);
      EXPECT_EQ(codes({inside, "absent", name},
                      {all.subspan(702, 200'000), all.first(0), all.subspan(700'002, 200'000)}),
                refused);
      EXPECT_EQ(inside, name);
      // Memory of one in that of another.
      EXPECT_EQ(codes({name, "absent", name}, {apart[0], all.first(10), all.first(300'000)}),
                refused);
      EXPECT_EQ(codes({name, "absent", name}, {apart[0], all.subspan(499'999, 2), apart[2]}),
                refused);
    }
  }
}

TEST_F(SharedClientTest, ReadsWithoutAllocating) {
  store("key", "value");
  std::array<std::byte, 16> room;
  const auto all = [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(shared().get_into("key", room));
    }
  };
  all();
  const std::size_t before = testing::allocation_count();
  all();
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST_F(SharedClientTest, WritesWithoutAllocating) {
  server_.answer = [this](const Request& request) -> std::optional<Response> {
    if (request.opcode == Opcode::kSwap)
      return Response{.flags = Response::kSwapped, .value = number_};
    return Response{.version = Version::of(1, 1), .value = number_};
  };
  const auto all = [&] {
    for (int i = 0; i < 100; ++i) {
      EXPECT_TRUE(shared().put("key", "value"));
      EXPECT_TRUE(shared().remove("key"));
      EXPECT_TRUE(shared().incr("counter"));
      EXPECT_TRUE(shared().counter_cas("counter", 1, 2));
    }
  };
  all();
  const std::size_t before = testing::allocation_count();
  all();
  EXPECT_EQ(testing::allocation_count(), before);
}

TEST_F(SharedClientTest, ManyKeysEndInTheOrderOfTheArguments) {
  constexpr std::size_t kCount = 1000;  // more than are under way at once
  constexpr std::size_t kStored = 40;
  std::vector<std::string> names;
  std::vector<std::string_view> keys;
  for (std::size_t i = 0; i < kStored; ++i) {
    names.push_back("key " + std::to_string(i));
    if (i % 3 != 0) store(names[i], "value " + std::to_string(i));
  }
  for (std::size_t i = 0; i < kCount; ++i)
    keys.push_back(names[i % kStored]);
  const auto got = shared().multi_get(keys);
  ASSERT_EQ(got.size(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i % kStored % 3 == 0) {
      ASSERT_FALSE(got[i]);
      EXPECT_EQ(got[i].error().code, Code::kNotFound);
    } else {
      ASSERT_TRUE(got[i]) << to_string(got[i].error());
      EXPECT_EQ(got[i]->value, "value " + std::to_string(i % kStored));
    }
  }
  EXPECT_TRUE(shared().multi_get({}).empty());

  serve_sums();
  std::vector<KeyValue> items;
  for (const std::string_view key : keys)
    items.push_back({.key = key, .value = "new"});
  const auto put = shared().multi_put(items);
  ASSERT_EQ(put.size(), kCount);
  for (const auto& version : put)
    EXPECT_TRUE(version);
  for (const std::string& name : names)
    EXPECT_EQ(sums_[name], kCount / kStored);
}

TEST_F(SharedClientTest, ManyPutsExpireEachInItsOwnTime) {
  std::map<std::string, std::uint64_t> asked;
  server_.answer = [&](const Request& request) -> std::optional<Response> {
    asked[std::string(as_text(request.key))] = request.ttl_ms;
    return Response{.version = Version::of(1, ++sequence_)};
  };
  const std::vector<KeyValue> items = {
      {.key = "plain", .value = "v"},
      {.key = "short", .value = "v", .ttl = 5ms},
      {.key = "both", .value = "v", .expires_at_ms = 1, .ttl = 5ms}};
  const auto put = shared().multi_put(items);
  EXPECT_TRUE(put[0] && put[1]);
  EXPECT_EQ(put[2].error().code, Code::kInvalidArgument);
  EXPECT_EQ(asked, (std::map<std::string, std::uint64_t>{{"plain", 0}, {"short", 5}}));
}

// The server is faster than the shortest time that an operation can be given.
TEST_F(SharedClientTest, ManyKeysShareOneTimeAndNoneIsSentAfterIt) {
  options_.requests_in_flight = 1;
  server_.answer = [this](const Request&) -> std::optional<Response> {
    server_.clock.advance(kNanosPerMs / 2);
    return Response{.version = Version::of(1, ++sequence_)};
  };
  const std::vector<KeyValue> items(2000, {.key = "key", .value = "value"});
  const Nanos begin = server_.clock.now();
  const auto put = shared().multi_put(items, 20ms);
  EXPECT_LT(server_.clock.now() - begin, 35 * kNanosPerMs);
  std::size_t done = 0;
  for (const auto& version : put) {
    if (version) {
      ++done;
      continue;
    }
    EXPECT_EQ(version.error().code, Code::kTimeout);
    EXPECT_EQ(version.error().write, WriteOutcome::kNotApplied);
  }
  EXPECT_GT(done, 0U);
  EXPECT_LT(done, 80U);  // some rounds are made before the clock is looked at
}

TEST_F(SharedClientTest, AVisitorThatUsesTheClientIsRefused) {
  store("key", "value");
  const std::array<std::string_view, 2> keys = {"key", "absent"};
  int visited = 0;
  shared().multi_get_into(keys, [&](std::size_t, const Result<ValueView>&) {
    ++visited;
    EXPECT_EQ(shared().get("key").error().code, Code::kInvalidArgument);
    for (const auto& each : shared().multi_get(keys))
      EXPECT_EQ(each.error().code, Code::kInvalidArgument);
  });
  EXPECT_EQ(visited, 2);
}

// WAIT-1 and SHARED-1, with connections that end under the threads: each addition is made once, and
// its answer comes to the thread that asked.
TEST_F(SharedClientTest, EachOperationOfManyThreadsIsCarriedOutOnceAndReturnsToItsThread) {
  constexpr int kThreads = 6;
  constexpr int kEach = 300;
  clock_ = &steady_;
  options_.first_backoff = 1ms;
  options_.timeout = 20'000ms;
  server_.max_packed = kMaxPacked;
  server_.remembers = true;
  server_.dies_after = true;
  dies_every_ = 150;
  serve_sums();
  std::vector<std::string> values;
  for (int t = 0; t < kThreads; ++t) {
    values.push_back("value of " + std::to_string(t));
    store("key" + std::to_string(t), values.back());
  }
  shared();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::string key = "key" + std::to_string(t);
      const std::string counter = "counter" + std::to_string(t);
      for (int i = 1; i <= kEach; ++i) {
        const auto sum = shared().incr(counter, 1, 20'000ms);
        ASSERT_TRUE(sum) << to_string(sum.error());
        EXPECT_EQ(sum->number, i);
        const auto got = shared().get(key, 20'000ms);
        ASSERT_TRUE(got) << to_string(got.error());
        EXPECT_EQ(got->value, values[static_cast<std::size_t>(t)]);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (int t = 0; t < kThreads; ++t)
    EXPECT_EQ(sums_["counter" + std::to_string(t)], kEach);
  EXPECT_GT(server_.connects, 2);
  EXPECT_GT(shared().stats().outcomes_recovered, 0U);
}

}  // namespace
}  // namespace rkv
