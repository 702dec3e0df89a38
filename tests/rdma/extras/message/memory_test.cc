// The transport in memory, the transport with faults, and the scenarios of every transport on both.
//
// Mutations tried: each of these changes makes a test here fail, or never end.
// STREAM-1  the held message is read before the stash         AFullStash...
// STREAM-2  nothing is received while a write is blocked      TwoThatWriteBeforeTheyRead...
//           the stash has no limit                            AFullStash...
// STREAM-4  the transport is not polled again after its end   WhatComesJustBeforeTheEnd...
// STREAM-3  a shutdown does not wait for the sends in flight  AShutdownWaits...
// STREAM-5  a stream still counts a destroyed waiter          all streams
// EXEC-1    a waiter's destructor leaves it in the list       ACoroutineThatIsDestroyed...
// EXEC-2    poll() continues with a destroyed waiter          WhatIsResumedMayChange...
//           only sleeping tasks check the deadline            TheDeadlineCounts...
// EXEC-3    wake() writes nothing                             AStopFromAnotherThread...
// EXEC-4    arm()'s error ends the loop                       WhoCannotBeWaitedFor...
// MSG-5     a message does not wake an armed end              ASleeperIsWoken
#include <cstdio>
#include <functional>
#include <stdexcept>

#include "rkv/rdma/message/memory_transport.h"
#include "tests/rdma/extras/message/faulty_transport.h"
#include "tests/rdma/extras/message/stream_scenarios.h"
#include "tests/rdma/extras/message/transport_scenarios.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr MemoryOptions kTiny = {.message_bytes = 512, .send_buffers = 2, .receive_buffers = 4};

struct InMemory {
  using Builder = MemoryBuilder;
  static Builder usual() { return shared(); }
  static Builder tiny() {
    Builder out = shared();
    out.options = kTiny;
    return out;
  }
  static SocketAddress address() { return {}; }
  static const Builder& shared() {
    static const Builder network;
    return network;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, TransportScenarios, InMemory);
INSTANTIATE_TYPED_TEST_SUITE_P(Memory, StreamScenarios, InMemory);

// Receives one message at a time; the other faults break assumptions of the scenarios.
struct Moody {
  using Builder = FaultyBuilder<MemoryBuilder>;
  static constexpr Faults kFaults = {.receive_at_a_time = 1};
  static Builder usual() { return {InMemory::usual(), kFaults}; }
  static Builder tiny() { return {InMemory::tiny(), kFaults}; }
  static SocketAddress address() { return {}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, TransportScenarios, Moody);
static_assert(TransportBuilder<Moody::Builder>);

// A stream tolerates more: sends that are refused without a reason, and truncated messages.
struct Hostile {
  using Builder = FaultyBuilder<MemoryBuilder>;
  static constexpr Faults kFaults = {
      .refuse_one_in = 3, .short_accept_bytes = 100, .receive_at_a_time = 1};
  static Builder usual() { return {InMemory::usual(), kFaults}; }
  static Builder tiny() { return {InMemory::tiny(), kFaults}; }
  static SocketAddress address() { return {}; }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Faulty, StreamScenarios, Hostile);

// For each connection and message count of a cut: the stream informs the reader, and no call hangs.
TEST(Faults, AConnectionThatIsCutIsTheEndOfBothStreams) {
  for (std::uint64_t after = 0; after < 12; ++after) {
    for (const bool sending : {true, false}) {
      auto [here, there] = MemoryTransport::pair(kTiny);
      Faults faults;
      (sending ? faults.disconnect_after_sends : faults.disconnect_after_receives) = after;
      const auto executor = need(EpollExecutor::create());
      Stream client(FaultyTransport(std::move(here), sending ? faults : Faults{}), *executor);
      Stream server(FaultyTransport(std::move(there), sending ? Faults{} : faults), *executor);
      const auto bytes = pattern(1, 50000);
      std::size_t received = 0;
      const auto write = [&]() -> Task<> {
        const auto count = co_await client.write(bytes);
        EXPECT_FALSE(count);
      };
      const auto read = [&]() -> Task<> {
        std::vector<std::byte> into(50000);
        for (Result<std::size_t> count = 1U; count && *count != 0;) {
          count = co_await server.read(MutableBytes(into).subspan(received));
          received += count.value_or(0);
        }
        EXPECT_TRUE(is_pattern(Bytes(into).first(received), 1));
      };
      auto writing = write();
      auto reading = read();
      need(run(*executor, soon(), writing, reading));
      EXPECT_LT(received, bytes.size());
      EXPECT_TRUE(!sending || received == after * kTiny.message_bytes) << received;
    }
  }
}

// A peer that writes and leaves between two polls of this side.
struct LateTransport : MemoryTransport {
  std::function<void()> before_look;
  explicit LateTransport(MemoryTransport inner) : MemoryTransport(std::move(inner)) {}
  bool poll_disconnect() {
    if (before_look) std::exchange(before_look, nullptr)();
    return MemoryTransport::poll_disconnect();
  }
};

TEST(Streams, WhatComesJustBeforeTheEndIsRead) {
  auto [here, there] = MemoryTransport::pair(kTiny);
  LateTransport late(std::move(here));
  late.before_look = [&peer = there] {
    EXPECT_EQ(need(peer.send_copy(pattern(1, 20))), 20U);
    need(peer.disconnect());
  };
  Stream stream(std::move(late));
  std::array<std::byte, 64> buffer;
  EXPECT_EQ(need(stream.try_read(buffer)), 20U);
  EXPECT_EQ(need(stream.try_read(buffer)), std::nullopt);  // no poll since the message
  EXPECT_FALSE(need(stream.arm(Interest::kMessages)));
  EXPECT_EQ(need(stream.try_read(buffer)), 0U);
}

// A transport whose release() fails, as when its connection breaks.
struct BrittleTransport : MemoryTransport {
  explicit BrittleTransport(MemoryTransport inner) : MemoryTransport(std::move(inner)) {}
  Status release(std::uint32_t index) {
    std::ignore = MemoryTransport::release(index);
    return fail(Code::kDisconnected, "broken");
  }
};

TEST(Streams, WhatWasReadIsDeliveredThoughItsReleaseFails) {
  auto [here, there] = MemoryTransport::pair(kTiny);
  EXPECT_EQ(need(there.send_copy(pattern(1, 20))), 20U);
  Stream stream(BrittleTransport(std::move(here)));
  std::array<std::byte, 64> buffer;
  EXPECT_EQ(need(stream.try_read(buffer)), 20U);
  EXPECT_TRUE(is_pattern(Bytes(buffer).first(20), 1));
}

// STREAM-3: the end comes only when the peer has the last write.
struct SlowTransport : MemoryTransport {
  std::size_t held_back = 0;  // sends that count as in flight
  explicit SlowTransport(MemoryTransport inner) : MemoryTransport(std::move(inner)) {}
  Result<std::size_t> poll_sends() {
    held_back += MemoryTransport::sends_in_flight();
    RKV_ASSIGN_OR_RETURN(const std::size_t reaped, MemoryTransport::poll_sends());
    return reaped - reaped;
  }
  std::size_t sends_in_flight() const { return held_back + MemoryTransport::sends_in_flight(); }
};

TEST(Streams, AShutdownWaitsForItsWritesAndForNothingElse) {
  auto [here, there] = MemoryTransport::pair(kTiny);
  Stream stream(SlowTransport(std::move(here)));
  EXPECT_EQ(need(stream.try_write(pattern(1, 20))), 20U);
  for (int i = 0; i < 100; ++i)
    ASSERT_FALSE(need(stream.try_shutdown()));
  EXPECT_FALSE(there.poll_disconnect());
  // Messages that arrive meanwhile are received, so that the peer can continue (STREAM-2), and may
  // be read afterwards.
  EXPECT_EQ(need(there.send_copy(pattern(2, 30))), 30U);
  EXPECT_FALSE(need(stream.try_shutdown()));
  EXPECT_EQ(stream.stashed(), 30U);
  stream.transport().held_back = 0;
  EXPECT_TRUE(need(stream.try_shutdown()));
  EXPECT_TRUE(there.poll_disconnect());
  std::array<std::byte, 64> buffer;
  EXPECT_EQ(need(stream.try_read(buffer)), 30U);
}

TEST(MessagesDeathTest, AStreamOutlivesWhoWaitsForIt) {
  auto [here, there] = MemoryTransport::pair(kTiny);
  InlineExecutor executor;
  std::optional<Stream<MemoryTransport>> stream(std::in_place, std::move(here), executor);
  std::array<std::byte, 8> buffer;
  const auto read = [&]() -> Task<> { std::ignore = co_await stream->read(buffer); };
  auto reading = read();
  reading.start();
  EXPECT_DEATH(stream.reset(), "while a coroutine waits");
}

// Cannot be awaited: its queue does not arm, or epoll refuses its kind of descriptor.
struct SleeplessTransport : MemoryTransport {
  int file = -1;
  SleeplessTransport(MemoryTransport inner, int fd) : MemoryTransport(std::move(inner)), file(fd) {}
  Result<bool> arm(Interest interest) {
    if (file < 0) return fail(Code::kInternal, "no event from this one");
    return MemoryTransport::arm(interest);
  }
  int fd() const { return file; }
};

TEST(Executors, WhoCannotBeWaitedForIsToldAndTheOthersGoOn) {
  std::FILE* const file = std::tmpfile();
  for (const int fd : {-1, fileno(file)}) {
    auto [here, there] = MemoryTransport::pair(kTiny);
    auto [left, right] = MemoryTransport::pair(kTiny);
    const auto executor = need(EpollExecutor::create());
    Stream sleepless(SleeplessTransport(std::move(here), fd), *executor);
    Stream sound(std::move(left), *executor);
    std::array<std::byte, 8> mine;
    std::array<std::byte, 8> theirs;
    std::optional<Error> told;
    const auto fails = [&]() -> Task<> {
      const auto count = co_await sleepless.read(mine);
      if (!count) told = count.error();
      EXPECT_EQ(need(right.send_copy(pattern(1, 8))), 8U);  // only now the other coroutine can
                                                            // continue
    };
    const auto works = [&]() -> Task<> {
      const auto count = co_await sound.read(theirs);
      EXPECT_EQ(count.value_or(0), 8U);
    };
    auto working = works();
    auto failing = fails();
    need(run(*executor, soon(), working, failing));
    ASSERT_TRUE(told.has_value());
    EXPECT_NE(to_string(*told).find(fd < 0 ? "no event" : "epoll_ctl"), std::string::npos);
  }
  std::fclose(file);
}

// Three readers sleep on one executor, two of them with a deadline soon. Returns whether the
// earlier of these ended while the later was still to come.
bool ends_before_the_later_deadline() {
  const auto executor = need(EpollExecutor::create());
  std::vector<Stream<MemoryTransport>> streams;
  std::vector<MemoryTransport> peers;
  for (int i = 0; i < 3; ++i) {
    auto [here, there] = MemoryTransport::pair(kTiny);
    streams.emplace_back(std::move(here), *executor);
    peers.push_back(std::move(there));
  }
  const std::array deadlines = {soon(600'000), soon(60), soon(30)};
  std::array<std::byte, 8> into;
  std::vector<std::size_t> ended;
  bool in_time = false;
  const auto wait = [&](std::size_t which) -> Task<> {
    const auto count = co_await streams[which].read(into, deadlines.at(which));
    EXPECT_EQ(count ? Code::kInternal : count.error().code, Code::kTimeout);
    EXPECT_TRUE(!count && !is_stopped(count.error()));
    EXPECT_TRUE(deadlines.at(which).passed()) << which;
    if (which == 2) in_time = !deadlines[1].passed();
    ended.push_back(which);
  };
  auto never = wait(0);
  auto late = wait(1);
  auto early = wait(2);
  for (auto* one : {&never, &late, &early})
    one->start();
  const Deadline patience = soon();
  while (executor->poll(), ended.size() != 2) {
    if (need(executor->arm()) && !need(wait_readable(executor->fd(), patience))) {
      throw std::runtime_error("the descriptor slept over a deadline");
    }
  }
  EXPECT_FALSE(never.done());
  if (in_time) {
    EXPECT_EQ(ended, (std::vector<std::size_t>{2, 1}));
  }
  return in_time;
}

// In a loop of the program: the executor's descriptor becomes readable at each waiter's deadline,
// in whatever order they wait. A thread that was stalled gets past both deadlines at once, and
// tries again.
TEST(Executors, TheDescriptorKeepsTheDeadlinesOfWaiters) {
  const Deadline patience = soon();
  while (!ends_before_the_later_deadline())
    ASSERT_FALSE(patience.passed()) << "each time woken for the later deadline alone";
}

// A reader and a writer sleep on one descriptor: an event for one must not be lost for the other.
TEST(Streams, AReaderAndAWriterSleepTogether) {
  for (int round = 0; round < 20; ++round) {
    auto [here, there] = MemoryTransport::pair(kTiny);
    const auto executor = need(EpollExecutor::create());
    Stream client(std::move(here), *executor);
    Stream server(std::move(there), *executor);
    const auto bytes = pattern(7, 40000);
    const auto write = [&](auto& to) -> Task<> {
      const auto count = co_await to.write(bytes);
      EXPECT_EQ(count.value_or(0), bytes.size());
    };
    const auto read = [&](auto& from) -> Task<> {
      std::vector<std::byte> into(bytes.size());
      for (std::size_t done = 0; done < into.size();) {
        const auto most = std::min<std::size_t>(1 + done % 977, into.size() - done);
        const auto count = co_await from.read(MutableBytes(into).subspan(done, most));
        if (count.value_or(0) == 0) co_return;
        done += *count;
      }
      EXPECT_EQ(into, bytes);
    };
    auto a = write(client);
    auto b = read(client);
    auto c = write(server);
    auto d = read(server);
    need(run(*executor, soon(), a, b, c, d));
  }
}

TEST(Streams, AStopFromAnotherThreadWakesASleeper) {
  auto [here, there] = MemoryTransport::pair();
  const auto executor = need(EpollExecutor::create());
  Stream stream(std::move(here), *executor);
  std::stop_source source;
  std::array<std::byte, 8> buffer;
  const auto read = [&]() -> Task<> {
    const auto count = co_await stream.read(buffer, source.get_token());
    EXPECT_TRUE(!count && is_stopped(count.error()));
  };
  auto reading = read();
  reading.start();
  ASSERT_TRUE(need(executor->arm()));  // nothing is ready: from now on the descriptor wakes a
                                       // sleeper
  const std::jthread stopper([&] { source.request_stop(); });
  EXPECT_TRUE(need(wait_readable(executor->fd(), soon())));
  EXPECT_EQ(executor->poll(), 1U);
  EXPECT_TRUE(reading.done());
}

TEST(Tasks, MayBeMovedWhileTheyWait) {
  auto [here, there] = MemoryTransport::pair();
  InlineExecutor executor;
  Stream stream(std::move(here), executor);
  std::array<std::byte, 8> buffer;
  bool resumed = false;
  const auto read = [&]() -> Task<> {
    const auto count = co_await stream.read(buffer);
    resumed = true;
    EXPECT_EQ(count.value_or(0), 8U);
  };
  auto first = read();
  first.start();
  Task<> second = std::move(first);
  second.start();  // already started: a second start would resume it too early
  EXPECT_FALSE(resumed);
  Task<> third = read();
  third = std::move(second);
  third.start();
  EXPECT_FALSE(resumed);
  EXPECT_EQ(need(there.send_copy(pattern(1, 8))), 8U);
  need(run(executor, soon(), third));
}

// Can continue at any attempt.
struct Turn final : Waiter {
  Executor& executor;
  explicit Turn(Executor& from) : executor(from) {}
  bool await_ready() const { return false; }
  void await_suspend(std::coroutine_handle<> continuation) { enlist(executor, continuation); }
  void await_resume() const {}
  int fd() const override { return -1; }
  Result<bool> arm() override { return false; }
  void fail(const Error& /*error*/) override {}
  bool attempt() override { return true; }
};

TEST(Tasks, TheDeadlineCountsForTheBusyToo) {
  InlineExecutor executor;
  std::uint64_t turns = 0;
  const auto spin = [&]() -> Task<> {
    for (; turns < 50'000'000; ++turns)
      co_await Turn(executor);
  };
  auto spinning = spin();
  const auto late = run(executor, soon(20), spinning);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_GT(turns, 0U);
}

// EXEC-2: a resumed coroutine destroys others in the list, before and after itself, polls again,
// and
//     adds new ones.
TEST(Executors, WhatIsResumedMayChangeTheListAtWill) {
  for (std::size_t round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    const std::size_t killer = round / 2;
    const bool nested = round % 2 == 0;
    InlineExecutor executor;
    std::vector<std::optional<Task<>>> tasks(5);
    std::optional<Task<>> added;
    std::size_t resumed = 0;
    const auto plain = [&]() -> Task<> {
      co_await Turn(executor);
      ++resumed;
    };
    const auto kill = [&]() -> Task<> {
      co_await Turn(executor);
      for (std::size_t i = 0; i < tasks.size(); ++i)
        if (i != killer && (i + 1 == killer || i > killer)) tasks[i].reset();
      added.emplace(plain());
      added->start();
      if (nested) executor.poll();  // inside of poll()
      EXPECT_EQ(added->done(), nested);
    };
    for (std::size_t i = 0; i < tasks.size(); ++i)
      tasks[i].emplace(i == killer ? kill() : plain());
    for (auto& task : tasks)
      task->start();
    EXPECT_GE(executor.poll(), 1U);
    EXPECT_EQ(executor.poll(), nested ? 0U : 1U);
    EXPECT_EQ(executor.waiters(), 0U);
    EXPECT_EQ(resumed, killer + 1);  // those before it, and the added one
  }
}

TEST(MessagesDeathTest, ATaskThatWasMovedFromSaysSo) {
  InlineExecutor executor;
  const auto turn = [&]() -> Task<> { co_await Turn(executor); };
  auto first = turn();
  const auto second = std::move(first);
  EXPECT_DEATH(first.start(), "moved from");               // NOLINT(bugprone-use-after-move)
  EXPECT_DEATH(std::ignore = first.done(), "moved from");  // NOLINT(bugprone-use-after-move)
}

TEST(MessagesDeathTest, WhatHoldsATransportAndWasMovedFromSaysSo) {
  auto [here, there] = MemoryTransport::pair();
  AnyMessageTransport any(std::move(here));
  const auto taken = std::move(any);
  expect_moved_from(any);  // NOLINT(bugprone-use-after-move)
  auto [left, right] = MemoryTransport::pair(kTiny);
  Stream stream(SlowTransport(std::move(left)));
  std::array<std::byte, 4> buffer;
  EXPECT_EQ(need(stream.try_write(buffer)), 4U);
  EXPECT_EQ(need(right.send_copy(pattern(1, 20))), 20U);
  EXPECT_FALSE(need(stream.try_shutdown()));
  EXPECT_EQ(stream.stashed(), 20U);  // the stash moves with the stream
  const Stream<SlowTransport> moved = std::move(stream);
  const char* const says = "stream was moved from";
  // NOLINTBEGIN(bugprone-use-after-move)
  EXPECT_DEATH(std::ignore = stream.try_read(buffer), says);
  EXPECT_DEATH(std::ignore = stream.try_write(buffer), says);
  EXPECT_DEATH(std::ignore = stream.try_shutdown(), says);
  EXPECT_DEATH(std::ignore = stream.close(), says);
  EXPECT_DEATH(std::ignore = stream.arm(Interest::kMessages), says);
  EXPECT_DEATH(std::ignore = stream.fd(), says);
  EXPECT_DEATH(std::ignore = stream.transport(), says);
  EXPECT_EQ(stream.stashed(), 0U);
  EXPECT_EQ(moved.stashed(), 20U);
  // NOLINTEND(bugprone-use-after-move)
  const MemoryBuilder builder;
  auto listener = need(builder.listen({}));
  const auto open = std::move(listener);
  EXPECT_DEATH(std::ignore = listener.address(), "listener was moved from");
  EXPECT_DEATH(std::ignore = builder.accept(listener, soon()), "listener was moved from");
}

TEST(Faults, RefusalsAreAsManyAsAsked) {
  auto [here, there] = MemoryTransport::pair({.send_buffers = 8192, .receive_buffers = 8192});
  FaultyTransport client(std::move(here), {.refuse_one_in = 4});
  std::size_t taken = 0;
  for (int i = 0; i < 4000; ++i)
    taken += need(client.send_copy(pattern(1, 1)));
  EXPECT_EQ(taken + client.refusals(), 4000U);
  EXPECT_NEAR(static_cast<double>(client.refusals()), 1000, 150);
}

TEST(MessagesDeathTest, AMessageIsReleasedOnce) {
  auto [here, there] = MemoryTransport::pair();
  EXPECT_EQ(need(here.send_copy(pattern(1, 10))), 10U);
  const auto got = receive(there);
  ASSERT_EQ(got.size(), 1U);
  need(there.release(got[0].index));
  EXPECT_DEATH(std::ignore = there.release(got[0].index), "not held");
  EXPECT_DEATH(std::ignore = there.view(got[0].index), "not held");
}

TEST(MemoryTransports, OptionsOutOfRangeAreNamed) {
  const MemoryBuilder builder({.message_bytes = 0});
  const auto made = builder.connect({}, soon());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
  EXPECT_NE(to_string(made.error()).find("message_bytes"), std::string::npos);
}

}  // namespace
}  // namespace rkv::rdma
