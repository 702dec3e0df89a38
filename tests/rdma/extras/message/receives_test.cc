// Receives and immediate data as coroutines, on real verbs.
#include <algorithm>
#include <string_view>
#include <thread>

#include "rkv/rdma/message/operations.h"
#include "rkv/rdma/message/task.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// Two queue pairs of one device. Sends and receives of both complete for coroutines of one thread.
struct Talk {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  std::unique_ptr<EpollExecutor> executor = need(EpollExecutor::create());
  Operations operations;
  MemoryRegion memory = need(MemoryRegion::allocate(pd, 65536, kEverything));
  std::optional<QueuePair> here;
  std::optional<QueuePair> there;
  std::optional<PostedReceive> first;  // of `there`, posted before it was connected

  explicit Talk(const OperationsOptions& options = {.outstanding = 8, .receives = 8})
      : operations(need(Operations::create(device, *executor, options))) {
    const std::uint8_t port = need(device.first_active_port());
    const GidEntry gid = need(device.routable_gid(port));
    auto a = prepare();
    auto b = prepare();
    const Endpoint of_a = need(a.endpoint(port, gid));
    const Endpoint of_b = need(b.endpoint(port, gid));
    first = need(operations.post_receive(b, buffer(0)));
    here = need(std::move(a).handshake(of_b, {.remote_access = kEverything}));
    there = need(std::move(b).handshake(of_a, {.remote_access = kEverything}));
  }
  PreparedQueuePair<> prepare() const {
    return need(QueuePair::create(pd, operations.queue(), operations.queue(),
                                  {.send_length = 64, .receive_length = 64}));
  }
  RegisteredSpan buffer(std::size_t number) const { return memory.local(4096 + number * 64, 64); }
  std::uint64_t word_of(std::size_t number) const {
    return load_le<std::uint64_t>(buffer(number).bytes().data());
  }
  // A message that holds `word`.
  RegisteredSpan message(std::uint64_t word) const {
    const RegisteredSpan out = memory.local(word % 32 * 8, 8);
    store_le(out.bytes().data(), word);
    return out;
  }
  PostedReceive post(std::size_t number) {
    return need(operations.post_receive(*there, buffer(number)));
  }
  template <class... T>
  void run_all(T... tasks) {
    need(run(*executor, soon(), tasks...));
  }
  Task<> send(std::uint64_t word) { need(co_await operations.send(*here, message(word))); }
  // Ends the queue pairs' work, so that nothing is left with the device.
  void end() {
    need(here->to_error());
    need(there->to_error());
    const auto drain = [this]() -> Task<> { need(co_await operations.drained(soon())); };
    run_all(drain());
    EXPECT_EQ(operations.outstanding(), 0U);
  }
};

// Ended with its queue pair, and not by a deadline.
bool is_flush(const Result<WorkCompletion>& got) {
  return !got && got.error().code == explain(IBV_WC_WR_FLUSH_ERR).code &&
         std::string_view(got.error().text) == explain(IBV_WC_WR_FLUSH_ERR).text;
}

TEST(Receives, ABufferIsPostedBeforeTheConnectionAndAwaitedLater) {
  Talk talk;
  EXPECT_EQ(talk.operations.outstanding(), 1U);
  const auto listen = [&]() -> Task<> {
    const WorkCompletion got = need(co_await talk.operations.receive(*talk.first, soon()));
    EXPECT_EQ(got.byte_length, 8U);
    EXPECT_EQ(got.kind, WorkKind::kReceive);
    EXPECT_FALSE(got.has_immediate);
    EXPECT_EQ(talk.word_of(0), 7U);
    EXPECT_FALSE(talk.first->pending());
  };
  talk.run_all(listen(), talk.send(7));
  EXPECT_EQ(talk.operations.outstanding(), 0U);
}

// Messages go to the buffers in the order of posting, whatever order the coroutines wait in.
TEST(Receives, AreAwaitedInAnyOrder) {
  Talk talk;
  std::vector<PostedReceive> posted;
  posted.push_back(std::move(*talk.first));
  for (std::size_t i = 1; i < 4; ++i)
    posted.push_back(talk.post(i));
  std::vector<std::size_t> order;
  const auto listen = [&](std::size_t which) -> Task<> {
    need(co_await talk.operations.receive(posted[which], soon()));
    EXPECT_EQ(talk.word_of(which), 100 + which);
    order.push_back(which);
  };
  auto last = listen(3);
  auto third = listen(2);
  auto first = listen(0);
  for (auto* one : {&last, &third, &first})
    one->start();
  for (std::uint64_t i = 0; i < 4; ++i)
    talk.run_all(talk.send(100 + i));
  need(run(*talk.executor, soon(), last, third, first));
  auto second = listen(1);  // its message is there already
  second.start();
  EXPECT_TRUE(second.done());
  EXPECT_TRUE(std::ranges::is_permutation(order, std::array<std::size_t, 4>{0, 1, 2, 3}));
  EXPECT_EQ(order.back(), 1U);
}

TEST(Receives, ImmediateDataComesWithSendsAndWritesBothWays) {
  Talk talk;
  const auto one_side = [&](QueuePair& qp, PostedReceive& posted, std::size_t from,
                            std::size_t to) -> Task<> {
    const RegisteredSpan own = talk.memory.local(from, 8);
    store_le<std::uint64_t>(own.bytes().data(), from);
    need(co_await talk.operations.write_immediate(qp, own, *talk.memory.remote().subspan(to, 8),
                                                  0xABCD'0000U + static_cast<unsigned>(from),
                                                  soon()));
    const WorkCompletion written = need(co_await talk.operations.receive(posted, soon()));
    EXPECT_EQ(written.kind, WorkKind::kReceiveOfWrite);
    EXPECT_TRUE(written.has_immediate);
    EXPECT_EQ(written.immediate, 0xABCD'0000U + static_cast<unsigned>(to - 16384));
    posted = need(talk.operations.post_receive(qp, talk.buffer(from / 64)));
    need(co_await talk.operations.send_immediate(qp, own, static_cast<unsigned>(from), soon()));
    const WorkCompletion sent = need(co_await talk.operations.receive(posted, soon()));
    EXPECT_EQ(sent.kind, WorkKind::kReceive);
    EXPECT_TRUE(sent.has_immediate);
    EXPECT_EQ(sent.byte_length, 8U);
    EXPECT_EQ(sent.immediate, static_cast<unsigned>(to - 16384));
  };
  PostedReceive of_here = need(talk.operations.post_receive(*talk.here, talk.buffer(9)));
  // Each names its own offset; the peer's is the other one.
  talk.run_all(one_side(*talk.here, of_here, 64, 16384 + 128),
               one_side(*talk.there, *talk.first, 128, 16384 + 64));
  EXPECT_EQ(load_le<std::uint64_t>(talk.memory.bytes().data() + 16384 + 128), 64U);
  EXPECT_EQ(load_le<std::uint64_t>(talk.memory.bytes().data() + 16384 + 64), 128U);
}

// OPS-4.
TEST(Receives, AWaitThatEndsEarlyLosesNoMessage) {
  Talk talk;
  std::stop_source source;
  enum class Ended { kStopped, kTimedOut, kNot };
  std::vector<Ended> ended;
  const auto listen = [&](Until until) -> Task<> {
    const auto got = co_await talk.operations.receive(*talk.first, std::move(until));
    ended.push_back(got                                  ? Ended::kNot
                    : is_stopped(got.error())            ? Ended::kStopped
                    : got.error().code == Code::kTimeout ? Ended::kTimedOut
                                                         : Ended::kNot);
  };
  {
    auto stopping = listen(source.get_token());
    stopping.start();
    EXPECT_FALSE(stopping.done());
    const std::jthread stopper([&] { source.request_stop(); });
    need(run(*talk.executor, soon(), stopping));
  }
  talk.run_all(listen(soon(20)));
  EXPECT_EQ(ended, (std::vector{Ended::kStopped, Ended::kTimedOut}));
  {
    auto destroyed = listen({});
    destroyed.start();
    EXPECT_FALSE(destroyed.done());
  }
  EXPECT_EQ(talk.executor->waiters(), 0U);
  EXPECT_EQ(talk.operations.outstanding(), 1U);
  const auto listen_again = [&]() -> Task<> {
    EXPECT_EQ(need(co_await talk.operations.receive(*talk.first, soon())).byte_length, 8U);
  };
  talk.run_all(listen_again(), talk.send(11));
  EXPECT_EQ(talk.word_of(0), 11U);
}

TEST(Receives, AMessageThatIsTooLongIsAnErrorOfItsReceive) {
  Talk talk;
  const auto listen = [&]() -> Task<> {
    const auto got = co_await talk.operations.receive(*talk.first, soon());
    EXPECT_FALSE(got);
    if (!got) {
      EXPECT_STREQ(got.error().call, "receive");
    }
    EXPECT_FALSE(talk.first->pending());
  };
  const auto send = [&]() -> Task<> {
    const auto sent = co_await talk.operations.send(*talk.here, talk.memory.local(0, 128), soon());
    EXPECT_TRUE(!sent && sent.error().code != Code::kTimeout);
  };
  talk.run_all(listen(), send());
  talk.end();
}

// OPS-2: all receives are posted, and a send still has a slot.
TEST(Receives, HaveSlotsOfTheirOwn) {
  Talk talk({.outstanding = 1, .receives = 2});
  {
    const PostedReceive second = talk.post(1);
    const auto third = talk.operations.post_receive(*talk.there, talk.buffer(2));
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().code, Code::kBusy);
    talk.run_all(talk.send(1));
  }
  // The first holds its message; the second is left to the device.
  const auto still_busy = talk.operations.post_receive(*talk.there, talk.buffer(2));
  ASSERT_FALSE(still_busy);
  EXPECT_EQ(still_busy.error().code, Code::kBusy);
  EXPECT_EQ(talk.operations.outstanding(), 1U);
  talk.run_all(talk.send(2));
  const auto listen = [&]() -> Task<> {
    need(co_await talk.operations.receive(*talk.first, soon()));
    need(co_await talk.operations.drained(*talk.there, soon()));
  };
  talk.run_all(listen());
  EXPECT_EQ(talk.word_of(0), 1U);
  EXPECT_EQ(talk.word_of(1), 2U);  // a message into a buffer that nobody holds is lost
  const PostedReceive a = talk.post(3);
  const PostedReceive b = talk.post(4);
  talk.end();
}

// A queue pair that ends before its work has completed, as on soft-iWARP.
TEST(Receives, OfAQueuePairThatIsGoneAreForgotten) {
  Talk talk({.outstanding = 2, .receives = 2});
  PostedReceive lost = talk.post(1);
  const std::uint32_t number = talk.there->number();
  talk.there.reset();
  EXPECT_EQ(talk.operations.outstanding(), 2U);
  PostedReceive other = need([&] {
    need(talk.operations.forget(number));
    EXPECT_EQ(talk.operations.outstanding(), 0U);
    talk.first.reset();
    return talk.operations.post_receive(*talk.here, talk.buffer(2));
  }());
  const auto listen = [&]() -> Task<> {
    const auto forgotten = co_await talk.operations.receive(lost, soon());
    EXPECT_TRUE(is_flush(forgotten));
    need(talk.here->to_error());
    need(co_await talk.operations.drained(*talk.here, soon()));
  };
  talk.run_all(listen());
}

TEST(Receives, DrainingOneQueuePairDoesNotWaitForAnother) {
  Talk talk;
  PostedReceive of_here = need(talk.operations.post_receive(*talk.here, talk.buffer(5)));
  need(talk.there->to_error());
  const auto drain = [&]() -> Task<> {
    need(co_await talk.operations.drained(*talk.there, soon()));
    EXPECT_EQ(talk.operations.outstanding(), 1U);  // of the other
    EXPECT_TRUE(is_flush(co_await talk.operations.receive(*talk.first, soon())));
  };
  talk.run_all(drain());
  talk.end();
  EXPECT_TRUE(of_here.pending());  // its completion is there, and not taken
}

TEST(ReceivesDeathTest, MisuseIsNamed) {
  Talk talk;
  const auto listen = [&]() -> Task<> {
    std::ignore = co_await talk.operations.receive(*talk.first);
  };
  std::optional waiting(listen());
  waiting->start();
  auto second = listen();
  EXPECT_DEATH(second.start(), "two coroutines wait");
  EXPECT_DEATH(talk.first.reset(), "while a coroutine waits for it");
  waiting.reset();
  std::optional operations(std::move(talk.operations));
  EXPECT_DEATH(operations.reset(), "while a PostedReceive is pending");
  PostedReceive moved = std::move(*talk.first);
  EXPECT_DEATH(std::ignore = operations->receive(*talk.first), "moved-from");
  const Side other(talk.pd, kEverything);
  auto foreign = need(QueuePair::create(talk.pd, operations->queue(), other.queue, {}));
  EXPECT_DEATH(std::ignore = operations->post_receive(foreign, talk.buffer(1)),
               "complete into queue");
}

}  // namespace
}  // namespace rkv::rdma
