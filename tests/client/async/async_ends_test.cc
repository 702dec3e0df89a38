// The ends of operations that nobody awaits any more, or too many at once, or that find no memory.
#include <gtest/gtest.h>

#include <chrono>
#include <coroutine>
#include <ctime>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "rkv/async_client.h"
#include "rkv/shared_client.h"
#include "tests/client/async/async_fixture.h"
#include "tests/client/count_allocations.h"
#include "tests/support/detached.h"

namespace rkv {
namespace {

using namespace std::chrono_literals;
using testing::ShortOfMemory;
using testing_support::Detached;

// A coroutine that its owner destroys, as those of scopes and task groups do.
class Task {
 public:
  struct promise_type {
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() { destroy(); }
  void destroy() {
    if (handle_) std::exchange(handle_, nullptr).destroy();
  }
  bool done() const { return handle_.done(); }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// All that the operation uses lies in the frame.
Task reads(AsyncClient& client, std::string key, int& resumed) {
  std::vector<std::byte> room(64);
  (void)co_await client.get_into(key, room);
  ++resumed;
}
Task writes(AsyncClient& client, std::string key, int& resumed) {
  const std::string value(600, 'v');
  (void)co_await client.put(key, value);
  ++resumed;
}

class AsyncEndsTest : public AsyncClientTest {
 protected:
  // 40 characters: not within a string's own bytes.
  static std::string key(int number) {
    return "a key that is long enough: number " + std::to_string(100'000 + number);
  }
  std::vector<Task> tasks(int count) {
    std::vector<Task> made;
    for (int i = 0; i < count; ++i)
      made.push_back(i % 2 == 0 ? reads(async(), key(i), resumed_)
                                : writes(async(), key(i), resumed_));
    return made;
  }
  int resumed_ = 0;
};

TEST_F(AsyncEndsTest, ACoroutineThatIsDestroyedWhileItWaitsIsForgotten) {
  constexpr int kTasks = 40;
  options_.reads_in_flight = 2;  // so that most of them wait in the client
  for (int i = 0; i < kTasks; ++i)
    store(key(i), "value");
  int answers = 0;
  server_.answer = [&](const Request&) -> std::optional<Response> {
    if (++answers % 2 == 0) return std::nullopt;
    return Response{.version = Version::of(1, 1)};
  };
  server_.latency = server_.read_latency = 10 * kNanosPerMs;
  for (const int polls : {0, 1, 2, 8}) {
    resumed_ = 0;
    std::vector<Task> waiting = tasks(kTasks);
    for (int i = 0; i < polls; ++i) {
      async().poll();
      server_.clock.advance(3 * kNanosPerMs);
    }
    int left = 0;
    for (Task& task : waiting) {
      left += task.done() ? 0 : 1;
      task.destroy();
    }
    EXPECT_GT(left, 0);
    const int before = resumed_;
    while (async().in_flight() != 0) {
      async().poll();
      server_.clock.advance(kNanosPerMs);
    }
    EXPECT_EQ(resumed_, before) << "a coroutine went on that is destroyed";
    server_.clock.advance(50 * kNanosPerMs);
    async().poll();
  }
  server_.latency = server_.read_latency = 0;
  server_.clock.advance(options_.first_backoff.count() * kNanosPerMs);
  const std::string first = key(0);
  async().get(first).then(
      [](const Result<ValueView>& got) { EXPECT_TRUE(got) << to_string(got.error()); });
  run();
}

// A callback runs amid the work of a poll(): the others are under way, in packs and in batches.
TEST_F(AsyncEndsTest, ACallbackMayDestroyCoroutinesThatWait) {
  constexpr int kTasks = 40;
  server_.max_packed = kMaxPacked;
  for (int i = 0; i < kTasks; ++i)
    store(key(i), "value");
  for (const bool at_once : {false, true}) {
    server_.reads_at_once = at_once;
    for (int when = 0; when < 6; ++when) {
      resumed_ = 0;
      std::vector<Task> waiting;
      const auto destroy_all = [&waiting](const auto&) { waiting.clear(); };
      const std::string too_long(2000, 'k');
      const std::string first = key(0);
      if (when == 0) async().get(too_long).then(destroy_all);
      if (when == 1) async().put(too_long, "value").then(destroy_all);
      waiting = tasks(when);
      if (when == 2) async().put("key", "value").then(destroy_all);
      if (when == 3) async().get(first).then(destroy_all);
      for (Task& task : tasks(kTasks))
        waiting.push_back(std::move(task));
      if (when == 4) async().put("key", "value").then(destroy_all);
      if (when == 5) async().get(first).then(destroy_all);
      run();
      EXPECT_LE(resumed_, kTasks + when);
      EXPECT_TRUE(waiting.empty());
    }
  }
}

TEST_F(AsyncEndsTest, CloseLeavesNoOperationAlthoughEachCallbackTriesAgain) {
  int begun = 0;
  int ended = 0;
  int refused = 0;
  std::function<void()> again = [&] {
    const bool accepted = async().get("absent").then([&](const Result<ValueView>& got) {
      ++ended;
      if (!got && got.error().code != Code::kNotFound) again();
    });
    ++(accepted ? begun : refused);
  };
  again();
  again();
  ASSERT_TRUE(async().close());
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(async().in_flight(), 0U);
  async().poll();
  EXPECT_EQ(ended, 2);
  ASSERT_TRUE(async().close());
}

Detached gets_one(AsyncClient& client, std::optional<Code>& code) {
  const auto got = co_await client.get("key");
  if (!got) code = got.error().code;
}

TEST_F(AsyncEndsTest, AClosedClientRefusesAtOnce) {
  ASSERT_TRUE(async().close());
  std::stop_source stop;
  bool is_called = false;
  EXPECT_FALSE(
      async().put("key", "value").until(stop.get_token()).then([&](const Result<std::uint64_t>&) {
        is_called = true;
      }));
  auto pending = async().get("key").until(stop.get_token()).start();
  stop.request_stop();
  EXPECT_TRUE(pending.ready());
  EXPECT_EQ(pending.wait().error().code, Code::kInvalidArgument);
  std::optional<Code> code;
  gets_one(async(), code);
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_EQ(async().in_flight(), 0U);
  EXPECT_EQ(async().poll(), 0U);
  EXPECT_FALSE(is_called);
}

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class ManyEndsTest : public AsyncEndsTest {
 protected:
  static constexpr int kMany = 16'000;
  // Begins GETs that do not end by themselves.
  void begin(int count, std::vector<std::stop_source>& stops) {
    async();
    server_.read_latency = 1'000 * kNanosPerSecond;
    stops = std::vector<std::stop_source>(static_cast<std::size_t>(count));
    ended_ = 0;
    for (std::stop_source& stop : stops) {
      async()
          .get("key", {.timeout = 500s})
          .until(stop.get_token())
          .then([this](const Result<ValueView>&) { ++ended_; });
    }
    async().poll();
  }
  void leave() {
    run();
    server_.clock.advance(2'000 * kNanosPerSecond);
    async_.reset();
    server_.read_latency = 0;
  }
  // Each is withdrawn, and polled for.
  double withdraw_each(int count) {
    std::vector<std::stop_source> stops;
    begin(count, stops);
    const double began = processor_seconds();
    for (std::stop_source& stop : stops) {
      stop.request_stop();
      async().poll();
    }
    const double took = processor_seconds() - began;
    EXPECT_EQ(ended_, count);
    leave();
    return took;
  }
  // Each has its own deadline, in the order of their beginning or against it.
  double time_out_each(int count, bool in_order) {
    async();
    server_.read_latency = 1'000 * kNanosPerSecond;
    ended_ = 0;
    for (int i = 0; i < count; ++i) {
      const std::chrono::milliseconds timeout(1 + (in_order ? i : count - i));
      async().get("key", {.timeout = timeout}).then([this](const Result<ValueView>&) { ++ended_; });
    }
    async().poll();
    const double began = processor_seconds();
    for (int i = 0; i <= count; ++i) {
      server_.clock.advance(kNanosPerMs);
      async().poll();
    }
    const double took = processor_seconds() - began;
    EXPECT_EQ(ended_, count);
    leave();
    return took;
  }
  // Four times as many may take four times as long, and some more on a busy machine.
  template <class Take>
  static void expect_linear(Take take) {
    double ratio = 0;
    for (int tries = 0; tries < 5; ++tries) {
      const double few = take(kMany / 4);
      const double many = take(kMany);
      ratio = many / few;
      if (ratio < 8) return;
    }
    ADD_FAILURE() << "four times as many operations took " << ratio << " times as long";
  }
  int ended_ = 0;
};

TEST_F(ManyEndsTest, WithdrawnOperationsCostNoLookAtTheOthers) {
  expect_linear([this](int count) { return withdraw_each(count); });
}

TEST_F(ManyEndsTest, OverdueOperationsCostNoLookAtTheOthers) {
  for (const bool in_order : {true, false})
    expect_linear([&](int count) { return time_out_each(count, in_order); });
}

TEST_F(ManyEndsTest, ManyAreWithdrawnAtOnceInAShortTime) {
  std::vector<std::stop_source> stops;
  begin(kMany, stops);
  const double began = processor_seconds();
  for (std::stop_source& stop : stops)
    stop.request_stop();
  async().poll();
  EXPECT_LT(processor_seconds() - began, 0.2);
  EXPECT_EQ(ended_, kMany);
  leave();
}

Detached gets_value(AsyncClient& client, std::string_view key, Result<Value>& got) {
  got = co_await client.get(key);
}

// Lack of memory for a value is the error of its operation, and of no other.
TEST_F(AsyncEndsTest, AValueThatFindsNoMemoryIsItsOperationsError) {
  store("short", "value");
  store("long", std::string(100'000, 'v'));
  const auto expect = [](const Result<Value>& got, bool is_long) {
    ASSERT_EQ(got.has_value(), !is_long);
    if (!got) {
      EXPECT_EQ(got.error().code, Code::kOutOfMemory);
    }
  };
  constexpr std::size_t kLeast = 90'000;
  async();  // connecting allocates
  client();
  auto shared = SharedClient::connect(options_, 1, std::make_shared<AnsweringTransport>(server_),
                                      &server_.clock);
  ASSERT_TRUE(shared);
  int called = 0;
  for (const std::string_view name : {"long", "short", "long"}) {
    const bool is_long = name == "long";
    const ShortOfMemory short_of_memory(kLeast);
    async().get(name).then([&](const Result<Value>& got) {
      expect(got, is_long);
      ++called;
    });
    auto pending = async().get(name).start();
    Result<Value> awaited = fail(Code::kInternal, nullptr);
    gets_value(async(), name, awaited);
    run();
    expect(pending.wait(), is_long);
    expect(awaited, is_long);
  }
  EXPECT_EQ(called, 3);

  const std::vector<std::string_view> names{"short", "long", "short"};
  for (const bool is_short_of_memory : {true, false}) {
    std::optional<ShortOfMemory> short_of_memory;
    if (is_short_of_memory) short_of_memory.emplace(kLeast);
    expect(shared->get("long"), is_short_of_memory);
    expect(client().get("long"), is_short_of_memory);
    for (const auto& all : {shared->multi_get(names), client().multi_get(names)}) {
      expect(all[0], false);
      expect(all[1], is_short_of_memory);
      expect(all[2], false);
    }
  }
}

}  // namespace
}  // namespace rkv
