// The asynchronous client against a server: callbacks, coroutines, handles, an event loop, and what
// ends operations before their time.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <stop_token>
#include <thread>

#include "common/fd.h"
#include "rkv/async_client.h"
#include "tests/support/detached.h"
#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using namespace std::chrono_literals;

AsyncClient async_client(const Server& server, ClientOptions options = {}) {
  options.server = server.address();
  if (options.transport == Transport::kAuto) options.transport = test_transport();
  std::string refusal;
  auto client = AsyncClient::connect(options, &refusal);
  if (!client) throw std::runtime_error(to_string(client.error()) + ": " + refusal);
  return std::move(*client);
}

// Runs the client as an event loop does, until nothing is in flight. Returns how often it slept.
std::size_t run_loop(AsyncClient& client) {
  const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  EXPECT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, client.descriptor(), &event), 0);
  std::size_t sleeps = 0;
  while (client.in_flight() != 0) {
    client.poll();
    if (client.in_flight() == 0 || !client.arm()) continue;
    ++sleeps;
    EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 20'000), 1) << "the descriptor never got readable";
  }
  return sleeps;
}

// An event loop on a thread of its own, until the object is destroyed.
class LoopThread {
 public:
  explicit LoopThread(AsyncClient& client) : client_(client), thread_([this] { run(); }) {}
  ~LoopThread() {
    client_.get("no key").then([this](const Result<ValueView>&) { over_ = true; });
    thread_.join();
  }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

 private:
  void run() {
    const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{.events = EPOLLIN, .data = {}};
    EXPECT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, client_.descriptor(), &event), 0);
    while (!over_) {
      client_.poll();
      if (!over_ && client_.arm()) epoll_wait(epoll.get(), &event, 1, 20'000);
    }
  }

  AsyncClient& client_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

std::vector<std::string> numbered(const std::string& name, std::size_t count) {
  std::vector<std::string> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = fmt::format("{}-{}", name, i);
  return all;
}

TEST(Async, ThousandsOfOperationsAreInFlightAndEachEndsOnceWithItsOwnResult) {
  constexpr std::size_t kCount = 4096;  // a poll() ends with the last of them begun
  Server server;
  AsyncClient client = async_client(server);
  const auto keys = numbered("key", kCount);
  std::vector<std::string> values;
  for (std::size_t i = 0; i < kCount; ++i)
    values.push_back(whole_value(i, 1 + i % 50));
  std::vector<int> puts(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    client.put(keys[i], values[i]).then([&puts, i](const Result<std::uint64_t>& version) {
      ASSERT_TRUE(version) << to_string(version.error());
      ++puts[i];
    });
  }
  EXPECT_EQ(client.in_flight(), kCount);
  EXPECT_EQ(puts, std::vector<int>(kCount, 0)) << "nothing is done before a poll()";
  run_loop(client);
  EXPECT_EQ(puts, std::vector<int>(kCount, 1));
  EXPECT_LE(client.stats().two_sided_requests, kCount / 4) << "writes travel in packs";
  for (int round = 0; round < 2; ++round) {  // from a cold cache, and from a warm one
    std::vector<int> gets(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      client.get(keys[i]).then([&, i](const Result<ValueView>& got) {
        ASSERT_TRUE(got) << to_string(got.error());
        EXPECT_EQ(got->value, values[i]);
        ++gets[i];
      });
    }
    run_loop(client);
    EXPECT_EQ(gets, std::vector<int>(kCount, 1));
  }
  EXPECT_GE(client.stats().one_sided_gets, 2 * kCount * 9 / 10);
}

TEST(Async, EveryKindOfOperationEndsAsThatOfTheBlockingClient) {
  Server server;
  AsyncClient client = async_client(server);
  Client other = server.client();
  const auto run = [](auto call) { return std::move(call).start().wait(); };

  const auto version = run(client.put("key", "value"));
  ASSERT_TRUE(version) << to_string(version.error());
  const auto got = run(client.get("key"));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->value, "value");
  EXPECT_EQ(got->version, *version);
  EXPECT_EQ(other.get("key")->version, *version);

  EXPECT_EQ(run(client.put_with("key", "x", {.if_absent = true})).error().code, Code::kConflict);
  EXPECT_TRUE(run(client.put_with("key", "y", {.if_version = *version})));
  EXPECT_EQ(run(client.put_with("key", "z", {.if_version = *version})).error().code,
            Code::kConflict);
  EXPECT_EQ(run(client.remove_if_version("key", *version)).error().code, Code::kConflict);

  std::array<std::byte, 8> room{};
  const auto size = run(client.get_into("key", room));
  ASSERT_TRUE(size);
  EXPECT_EQ(size->bytes, 1U);
  EXPECT_EQ(static_cast<char>(room[0]), 'y');
  EXPECT_EQ(run(client.get_into("key", std::span(room).first(0))).error().code, Code::kTooLarge);
  EXPECT_EQ(run(client.get_counter("key")).error().code, Code::kWrongType);
  EXPECT_EQ(run(client.incr("key")).error().code, Code::kWrongType);

  EXPECT_TRUE(run(client.remove("key")));
  EXPECT_EQ(run(client.remove("key")).error().code, Code::kNotFound);
  EXPECT_EQ(run(client.get("key")).error().code, Code::kNotFound);

  EXPECT_EQ(run(client.incr("visits", 5))->number, 5);
  EXPECT_EQ(run(client.incr("visits", -7))->number, -2);
  EXPECT_EQ(run(client.get_counter("visits"))->number, -2);
  const auto swapped = run(client.counter_cas("visits", -2, 40));
  EXPECT_TRUE(swapped->done);
  const auto not_swapped = run(client.counter_cas("visits", -2, 50));
  EXPECT_FALSE(not_swapped->done);
  EXPECT_EQ(not_swapped->number, 40);

  EXPECT_EQ(run(client.touch("soon", 50ms)).error().code, Code::kNotFound);
  EXPECT_TRUE(run(client.put("soon", "gone")));
  EXPECT_TRUE(run(client.touch("soon", 50ms)));
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (run(client.get("soon"))) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(10ms);
  }

  // Bad input ends like any operation, and says what is wrong.
  EXPECT_EQ(run(client.get("")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(run(client.put("", "v")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(run(client.put(std::string(1025, 'k'), "v")).error().code, Code::kTooLarge);
  EXPECT_EQ(run(client.put("key", std::string((16U << 20U) + 1, 'v'))).error().code,
            Code::kTooLarge);
  EXPECT_EQ(run(client.put_with("key", "v", {.ttl = -1ms})).error().code, Code::kInvalidArgument);
  EXPECT_EQ(run(client.put_with("key", "v", {.if_absent = true, .if_version = 3})).error().code,
            Code::kInvalidArgument);
}

TEST(Async, LargeValuesTravelBothWays) {
  Server server({"--memory", "256MiB"});
  AsyncClient client = async_client(server);
  constexpr std::size_t kCount = 12;
  const auto keys = numbered("large", kCount);
  std::vector<std::string> values;
  for (std::size_t i = 0; i < kCount; ++i)
    values.push_back(whole_value(i, (std::size_t{64} << 10) << (i % 4)));
  for (std::size_t i = 0; i < kCount; ++i) {
    client.put(keys[i], values[i]).then([](const Result<std::uint64_t>& version) {
      EXPECT_TRUE(version) << to_string(version.error());
    });
  }
  run_loop(client);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    client.get(keys[i]).then(
        [&, i](const Result<ValueView>& got) { equal += got && got->value == values[i] ? 1 : 0; });
  }
  run_loop(client);
  EXPECT_EQ(equal, kCount);
}

Detached count_up(AsyncClient& client, std::string key, int times, int& done) {
  for (int i = 0; i < times; ++i) {
    const auto counted = co_await client.incr(key);
    EXPECT_TRUE(counted);
    const auto got = co_await client.get_counter(key);
    EXPECT_EQ(got ? got->number : 0, i + 1);
  }
  ++done;
}

TEST(Async, CoroutinesRunOnTheProgramsOwnLoop) {
  constexpr int kTasks = 50;
  Server server;
  AsyncClient client = async_client(server, {.polling = Polling::kEvent});
  int done = 0;
  for (int i = 0; i < kTasks; ++i)
    count_up(client, fmt::format("counter-{}", i), 20, done);
  const std::size_t sleeps = run_loop(client);
  EXPECT_EQ(done, kTasks);
  EXPECT_GT(sleeps, 0U) << "the loop never waited for the descriptor";
}

// The loop sleeps on its descriptor when another thread submits.
TEST(Async, ThreadsSubmitToALoopThatSleeps) {
  constexpr int kThreads = 3;
  constexpr int kEach = 300;
  Server server;
  AsyncClient client = async_client(server);
  std::array<std::atomic<int>, kThreads> ended{};
  LoopThread loop(client);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto keys = numbered(fmt::format("thread{}", t), kEach);
      for (int i = 0; i < kEach; ++i) {
        // One by one, so that the loop sleeps in between.
        client.put(keys[i], keys[i]).then([&](const Result<std::uint64_t>& version) {
          EXPECT_TRUE(version) << to_string(version.error());
          ++ended[t];
          ended[t].notify_one();
        });
        ended[t].wait(i);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  for (const std::atomic<int>& of_thread : ended)
    EXPECT_EQ(of_thread, kEach);
}

TEST(Async, AnOperationEndsByItsDeadlineAlthoughTheServerStandsStill) {
  Server server;
  AsyncClient client = async_client(server);
  ASSERT_TRUE(client.put("key", "value").start().wait());
  server.process().signal(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  // More than there are credits, so that some are sent and some wait.
  constexpr std::size_t kCount = 2000;
  const auto keys = numbered("key", kCount);
  std::size_t sent = 0;
  std::size_t not_sent = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    client.put(keys[i], "new", {.timeout = 300ms}).then([&](const Result<std::uint64_t>& version) {
      ASSERT_FALSE(version);
      EXPECT_EQ(version.error().code, Code::kTimeout) << to_string(version.error());
      ++(version.error().write == WriteOutcome::kMayHaveHappened ? sent : not_sent);
    });
  }
  run_loop(client);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(sent + not_sent, kCount);
  EXPECT_GT(sent, 0U);
  EXPECT_GT(not_sent, 0U);
  EXPECT_GE(took, 300ms);
  EXPECT_LT(took, 3s);
  server.process().signal(SIGCONT);
  const auto later = client.put("key", "later", {.timeout = 20s}).start().wait();
  EXPECT_TRUE(later) << to_string(later.error());
  EXPECT_EQ(client.get("key").start().wait()->value, "later");
}

TEST(Async, AStopTokenWithdrawsOperations) {
  Server server;
  AsyncClient client = async_client(server);
  ASSERT_TRUE(client.put("key", "value").start().wait());
  // Before the operation is submitted, and before anything was done for it.
  for (const bool before : {true, false}) {
    std::stop_source stop;
    if (before) stop.request_stop();
    auto pending = client.put("key", "withdrawn").until(stop.get_token()).start();
    if (!before) stop.request_stop();
    const auto result = pending.wait();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, Code::kCancelled);
    EXPECT_EQ(result.error().write, WriteOutcome::kNotApplied);
  }
  EXPECT_EQ(client.get("key").start().wait()->value, "value");
  // While the request is under way, from another thread.
  server.process().signal(SIGSTOP);
  std::stop_source stop;
  auto pending = client.put("key", "perhaps", {.timeout = 20s}).until(stop.get_token()).start();
  for (int i = 0; i < 100; ++i)
    client.poll();
  std::thread stopper([&] {
    std::this_thread::sleep_for(50ms);
    stop.request_stop();
  });
  const auto result = pending.wait();
  stopper.join();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kCancelled);
  EXPECT_EQ(result.error().write, WriteOutcome::kMayHaveHappened);
  server.process().signal(SIGCONT);
  EXPECT_TRUE(client.put("key", "again", {.timeout = 20s}).start().wait());
  // A token that stops when its operation has ended does nothing.
  std::stop_source late;
  EXPECT_TRUE(client.get("key").until(late.get_token()).start().wait());
  late.request_stop();
}

TEST(Async, OperationsGoOnOverTheNextConnection) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  AsyncClient client = async_client(server, {.timeout = 60s});
  constexpr std::size_t kCount = 500;
  const auto keys = numbered("key", kCount);
  for (const std::string& key : keys)
    client.put(key, key).then([](const Result<std::uint64_t>& put) { EXPECT_TRUE(put); });
  run_loop(client);
  EXPECT_EQ(server.stop(), 0);
  std::size_t equal = 0;
  for (const std::string& key : keys)
    client.get(key).then([&](const Result<ValueView>& got) {
      EXPECT_TRUE(got) << to_string(got.error());
      equal += got && got->value == key ? 1 : 0;
    });
  client.poll();
  server.start();
  run_loop(client);
  EXPECT_EQ(equal, kCount);
  EXPECT_EQ(client.stats().reconnects, 1U);
}

TEST(Async, AServerThatIsGoneFailsOperationsByTheirDeadlines) {
  Server server;
  AsyncClient client = async_client(server);
  server.kill();
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Error> errors;
  for (int i = 0; i < 20; ++i) {
    client.get("key", {.timeout = 500ms}).then([&](const Result<ValueView>& got) {
      errors.push_back(got.error());
    });
  }
  run_loop(client);
  EXPECT_EQ(errors.size(), 20U);
  for (const Error& error : errors)
    EXPECT_TRUE(error.code == Code::kUnreachable || error.code == Code::kDisconnected)
        << to_string(error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
}

TEST(Async, ACallbackMaySubmitButNeitherWaitsNorCloses) {
  Server server;
  AsyncClient client = async_client(server);
  int ended = 0;
  client.put("a", "1").then([&](const Result<std::uint64_t>& put) {
    EXPECT_TRUE(put);
    EXPECT_EQ(client.wait().error().code, Code::kInvalidArgument);
    EXPECT_EQ(client.close().error().code, Code::kInvalidArgument);
    EXPECT_EQ(client.poll(), 0U);
    EXPECT_FALSE(client.arm());
    ++ended;
    client.get("a").then([&](const Result<ValueView>& got) {
      EXPECT_EQ(got->value, "1");
      ++ended;
    });
  });
  run_loop(client);
  EXPECT_EQ(ended, 2);
}

// A loop sleeps on the descriptor while another thread waits for an operation of its own. Neither
// takes the other's wake-up.
TEST(Async, AThreadWaitsBesideALoop) {
  Server server;
  AsyncClient client = async_client(server);
  std::atomic<int> ended = 0;
  LoopThread loop(client);
  for (int round = 0; round < 300; ++round) {
    EXPECT_TRUE(client.put("mine", "value").start().wait());
    client.get("mine").then([&](const Result<ValueView>& got) {
      EXPECT_TRUE(got);
      ++ended;
      ended.notify_one();
    });
    ended.wait(round);  // the loop alone can end it
  }
}

Detached leave_a_handle(AsyncClient& client, std::array<bool, 2>& ended) {
  {
    const std::string key = "not awaited";
    auto left = client.put(key, std::string(1000, 'x')).start();
    ended[0] = static_cast<bool>(co_await client.put("awaited", "value"));
  }
  ended[1] = static_cast<bool>(co_await client.put("awaited", "again"));
}

TEST(Async, AHandleThatIsLeftWithdrawsItsOperation) {
  Server server;
  AsyncClient client = async_client(server);
  std::array<bool, 2> ended{};
  leave_a_handle(client, ended);
  run_loop(client);
  EXPECT_TRUE(ended[0] && ended[1]);
  std::optional<Pending<Value>> outlives;
  {
    AsyncClient closed = async_client(server);
    outlives.emplace(closed.get("awaited").start());
  }
  EXPECT_TRUE(outlives->ready());
  EXPECT_EQ(outlives->wait().error().code, Code::kDisconnected);
}

TEST(Async, CloseEndsWhatIsInFlightAndRefusesWhatComesLater) {
  Server server;
  AsyncClient client = async_client(server);
  ASSERT_TRUE(client.put("key", "value").start().wait());
  server.process().signal(SIGSTOP);
  std::vector<Error> errors;
  const auto note = [&](const Result<std::uint64_t>& put) { errors.push_back(put.error()); };
  client.put("sent", "value").then(note);
  for (int i = 0; i < 100; ++i)
    client.poll();
  client.put("not sent", "value").then(note);
  EXPECT_TRUE(client.close());
  ASSERT_EQ(errors.size(), 2U);
  const auto sent = [](const Error& error) {
    return error.write == WriteOutcome::kMayHaveHappened;
  };
  EXPECT_EQ(std::ranges::count_if(errors, sent), 1);
  EXPECT_EQ(std::ranges::find_if(errors, sent)->code, Code::kDisconnected);
  EXPECT_FALSE(client.put("late", "value").then(note));
  EXPECT_EQ(client.poll(), 0U);
  EXPECT_EQ(errors.size(), 2U);
  EXPECT_EQ(client.get("key").start().wait().error().code, Code::kInvalidArgument);
  EXPECT_EQ(client.in_flight(), 0U);
  EXPECT_TRUE(client.close());
  server.process().signal(SIGCONT);
}

TEST(Async, AValueThatIsNotDurableYetIsAwaited) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  AsyncClient client = async_client(server);
  constexpr std::size_t kCount = 200;
  const auto keys = numbered("key", kCount);
  for (const std::string& key : keys)
    client.put(key, key, {.durability = Durability::kMemory})
        .then([](const Result<std::uint64_t>& put) { EXPECT_TRUE(put); });
  run_loop(client);
  std::size_t synced = 0;
  for (const std::string& key : keys)
    client.get(key, {.at_least = Durability::kSync}).then([&](const Result<ValueView>& got) {
      ASSERT_TRUE(got) << to_string(got.error());
      EXPECT_EQ(got->durability, Durability::kSync);
      ++synced;
    });
  run_loop(client);
  EXPECT_EQ(synced, kCount);
}

}  // namespace
}  // namespace rkv::testing_support
