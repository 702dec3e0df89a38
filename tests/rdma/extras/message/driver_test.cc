// Many message transports on one completion queue, on real verbs.
//
// Mutations tried: each of these changes makes a test of this program fail, or never end.
// DRIVER-1  no reservation                                       WhoDoesNotFitIsRefused...
//           entries are free before the completions are polled   WhatAnEndedTransportLeaves...
// DRIVER-2  the generation is not compared                       AReusedNumber...
// DRIVER-4  nobody is notified, or only without the descriptor   WhatAnotherTakesWakes...
//           arm() does not report an unsettled notification      WhatAnotherTakesWakes...
//           the queue is armed once only                         WhoIsNotPolled..., ASleeper...
//           events of transports are level-triggered             WhoIsNotPolled...
//           poll() never looks for the end of connections        APollerThatNeverSleeps...
#include <future>
#include <map>
#include <variant>

#include "rdma/extras/message/shared_queue.h"
#include "rkv/rdma/message/any_transport.h"
#include "rkv/rdma/message/credit_ring.h"
#include "rkv/rdma/message/read_ring.h"
#include "rkv/rdma/message/send_receive.h"
#include "rkv/rdma/message/stream.h"
#include "tests/rdma/extras/message/driven.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr SendReceiveOptions kFew = {.message_bytes = 512, .send_buffers = 2, .receive_buffers = 4};
constexpr RingOptions kSmallRing = {.ring_bytes = 4096, .slots = 4, .message_bytes = 512};

// Connects a client with queues of its own to `passive`, whose transport is accepted here.
template <class B>
Ends<typename B::Transport> meet(const B& passive) {
  B active = passive;
  active.driver = std::nullopt;
  return connect_ends(active, passive, device_address());
}

SendReceiveBuilder driven(const MessageDriverOptions& options = {}) {
  return {.options = kFew, .driver = need(MessageDriver::create(options))};
}

// Waits until poll() returns something.
std::vector<std::uint32_t> wait_ready(MessageDriver& driver) {
  std::array<std::uint32_t, 8> ready;
  const Deadline deadline = soon();
  for (;;) {
    const std::size_t count = need(driver.poll(ready));
    if (count != 0) return {ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(count)};
    if (need(driver.arm()) && !need(wait_readable(driver.fd(), deadline))) {
      ADD_FAILURE() << "nothing became ready";
      return {};
    }
  }
}

TEST(MessageDrivers, TellWhichTransportsAreReady) {
  auto builder = driven();
  MessageDriver& driver = *builder.driver;
  std::vector<Ends<SendReceiveTransport>> links;
  for (int i = 0; i < 6; ++i)
    links.push_back(meet(builder));
  EXPECT_EQ(driver.counters().transports, 6U);
  EXPECT_EQ(driver.counters().entries_reserved, 36U);
  for (const auto& link : links)
    EXPECT_EQ(link.server.fd(), driver.fd());
  std::array<std::uint32_t, 8> ready;
  while (need(driver.poll(ready)) != 0) {
  }
  for (std::size_t round = 0; round < 12; ++round) {
    auto& [client, server] = links[(round * 5) % links.size()];
    send(client, client, pattern(round, 100));
    EXPECT_EQ(wait_ready(driver), std::vector{server.queue_pair().number()});
    const auto got = receive(server);
    ASSERT_EQ(got.size(), 1U);
    expect_and_release(server, got, round);
  }
  // The end of a connection counts, and that of one side only.
  need(links[2].client.disconnect());
  const auto ended = wait_ready(driver);
  EXPECT_EQ(ended, std::vector{links[2].server.queue_pair().number()});
  for (std::size_t i = 0; i < links.size(); ++i)
    EXPECT_EQ(links[i].server.poll_disconnect(), i == 2);
}

// Without arm() too, for a thread that never sleeps.
TEST(MessageDrivers, APollerThatNeverSleepsSeesAnEnd) {
  auto builder = driven();
  auto link = meet(builder);
  need(link.client.disconnect());
  std::array<std::uint32_t, 8> ready;
  const Deadline deadline = soon();
  while (!link.server.poll_disconnect() || need(builder.driver->poll(ready)) == 0)
    ASSERT_FALSE(deadline.passed());
}

// Transports of all kinds on one queue. Clients and servers talk at random, and end at random.
struct Crowd {
  MessageDriver driver = need(MessageDriver::create({.entries = 1024, .transports = 64}));
  SendReceiveBuilder plain{.options = kFew, .driver = driver};
  CreditRingBuilder credits{.options = kSmallRing, .driver = driver};
  ReadRingBuilder reads{.options = kSmallRing, .driver = driver};

  struct Talker {
    AnyMessageTransport self;
    std::uint64_t base;
    std::uint64_t peer_base;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  struct Link {
    std::optional<Talker> client;
    std::optional<Talker> server;
  };
  std::vector<Link> links;
  std::uint64_t made = 0;
  std::uint64_t delivered = 0;

  template <class B>
  Link connect(const B& builder) {
    auto ends = meet(builder);
    const std::uint64_t base = ++made << 32;
    const std::uint64_t answers = base | std::uint64_t{1} << 31;
    Link out;
    out.client.emplace(AnyMessageTransport(std::move(ends.client)), base, answers);
    out.server.emplace(AnyMessageTransport(std::move(ends.server)), answers, base);
    return out;
  }
  Link connect() {
    switch (made % 3) {
      case 0:
        return connect(plain);
      case 1:
        return connect(credits);
      default:
        return connect(reads);
    }
  }
  // Every message that arrives is the next one of this link's other end. Sends as far as possible.
  void step(Talker& one, Random& random) {
    need(one.self.poll_sends());
    for (std::uint64_t burst = random.below(4); burst != 0; --burst)
      one.sent += fill(one.self, one.base + one.sent, 1 + mix64(one.sent) % 300, 1);
    for (const Received& got : receive(one.self, 1 + random.below(4))) {
      expect_and_release(one.self, std::span(&got, 1), one.peer_base + one.received++);
      ++delivered;
    }
  }
};

TEST(MessageDrivers, ManyPeersTalkAtRandomAndEndAtRandom) {
  Crowd crowd;
  Random random(23);
  for (int i = 0; i < 24; ++i)
    crowd.links.push_back(crowd.connect());
  for (int round = 0; round < 60; ++round) {
    for (int steps = 0; steps < 40; ++steps) {
      auto& link = crowd.links[random.below(crowd.links.size())];
      auto& side = random.below(2) == 0 ? link.client : link.server;
      crowd.step(*side, random);
    }
    // One link ends with everything under way, either side first, and another one takes its place.
    auto& link = crowd.links[random.below(crowd.links.size())];
    (random.below(2) == 0 ? link.client : link.server).reset();
    link = {};
    link = crowd.connect();
  }
  // Those that are left still deliver everything.
  const Deadline deadline = soon(kLongPatienceMs);
  for (auto& link : crowd.links) {
    for (auto* pair : {&link.client, &link.server}) {
      auto& from = **pair;
      auto& to = pair == &link.client ? *link.server : *link.client;
      while (to.received != from.sent) {
        ASSERT_FALSE(deadline.passed());
        need(from.self.poll_sends());
        for (const Received& got : receive(to.self))
          expect_and_release(to.self, std::span(&got, 1), to.peer_base + to.received++);
      }
    }
  }
  EXPECT_GT(crowd.delivered, 100U);
  EXPECT_EQ(crowd.driver.counters().transports, 24U);
  crowd.links.clear();
  EXPECT_EQ(crowd.driver.counters().transports, 0U);
  EXPECT_EQ(crowd.driver.counters().entries_reserved, 0U);
}

// DRIVER-1.
TEST(MessageDrivers, WhoDoesNotFitIsRefusedAndFitsWhenAnotherHasEnded) {
  for (const MessageDriverOptions& options :
       {MessageDriverOptions{.entries = 13, .transports = 8},
        MessageDriverOptions{.entries = 1024, .transports = 2}}) {
    const auto builder = driven(options);
    std::optional first(meet(builder));
    const auto second = meet(builder);
    auto listener = need(builder.listen(device_address()));
    auto client = std::async(std::launch::async, [to = listener.address()] {
      return SendReceiveBuilder{.options = kFew}.connect(to, soon());
    });
    const auto third = builder.accept(listener, soon());
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().code, Code::kBusy);
    EXPECT_FALSE(client.get());
    first.reset();
    auto fits = meet(builder);
    send(fits.client, fits.server, pattern(1, 10));
    expect_and_release(fits.server, receive_exactly(fits.server, fits.client, 1), 1);
  }
}

// The queue has just the entries of one transport. Each one ends with messages that nobody polled.
TEST(MessageDrivers, WhatAnEndedTransportLeavesTakesNoEntries) {
  const auto builder = driven({.entries = 6, .transports = 1});
  for (std::uint64_t round = 0; round < 12; ++round) {
    auto link = meet(builder);
    EXPECT_EQ(fill(link.client, round, 100, 2), 2U);
    flush(link.client, link.client);  // the server's device has both
  }
  auto link = meet(builder);
  send(link.client, link.client, pattern(1, 10));
  expect_and_release(link.server, receive_alone(link.server, 1), 1);
}

// DRIVER-4: in whatever way the other one takes the completion.
TEST(MessageDrivers, WhatAnotherTakesWakesWhoSleeps) {
  for (const bool by_arming : {false, true}) {
    auto builder = driven();
    MessageDriver& driver = *builder.driver;
    auto a = meet(builder);
    auto b = meet(builder);
    need(a.server.poll_sends());
    const Deadline deadline = soon();
    while (!need(b.server.arm(Interest::kMessages)))
      ASSERT_FALSE(deadline.passed());
    const std::uint64_t before = driver.counters().polled;
    send(b.client, b.client, pattern(3, 40));
    while (driver.counters().polled == before) {
      ASSERT_FALSE(deadline.passed());
      if (by_arming) {
        std::ignore = need(a.server.arm(Interest::kMessages));
      } else {
        EXPECT_TRUE(receive(a.server).empty());
      }
    }
    EXPECT_TRUE(need(wait_readable(b.server.fd(), soon())));
    // The transport that is armed next says that its thread must not sleep yet.
    EXPECT_FALSE(need(a.server.arm(Interest::kMessages)));
    expect_and_release(b.server, receive(b.server), 3);
  }
}

// A transport that slept and that nobody polls any more does not keep the thread awake.
TEST(MessageDrivers, WhoIsNotPolledKeepsNobodyAwake) {
  auto builder = driven();
  auto a = meet(builder);
  auto b = meet(builder);
  const Deadline deadline = soon();
  while (!need(b.server.arm(Interest::kMessages)))
    ASSERT_FALSE(deadline.passed());
  for (std::uint64_t i = 0; i < 2; ++i) {
    send(b.client, b.client, pattern(i, 40));
    const std::uint64_t before = builder.driver->counters().polled;
    while (builder.driver->counters().polled == before) {
      ASSERT_FALSE(deadline.passed());
      EXPECT_TRUE(receive(a.server).empty());
    }
  }
  std::array<std::uint32_t, 4> ready;
  while (need(builder.driver->poll(ready)) != 0) {
  }
  need(b.client.disconnect());
  // The end of `b` is noted, and nobody looks at it.
  while (need(builder.driver->poll(ready)) == 0) {
    ASSERT_FALSE(deadline.passed());
    std::ignore = need(a.server.arm(Interest::kMessages));
  }
  EXPECT_EQ(ready[0], b.server.queue_pair().number());
  static const SteadyClock clock;
  int quiet = 0;
  while (quiet < 3) {
    ASSERT_FALSE(deadline.passed());
    const bool may_sleep = need(a.server.arm(Interest::kMessages));
    quiet = may_sleep && !need(wait_readable(a.server.fd(), Deadline(clock, 0))) ? quiet + 1 : 0;
  }
  EXPECT_TRUE(b.server.poll_disconnect());
  EXPECT_EQ(receive(b.server).size(), 2U);
}

// DRIVER-2.
TEST(SharedQueues, AReusedNumberDoesNotGetThePredecessorsCompletions) {
  const Device device = need(Device::open_first_active());
  const auto shared = need(detail::SharedQueue::create({.entries = 64, .transports = 4}));
  constexpr std::uint32_t kNumber = 0x00ABCDEF;
  auto old = need(shared->admit(device, 2, 2));
  need(old->join(kNumber));
  const std::array<WorkCompletion, 2> late = {{{.wr_id = old->send_id(7), .qp_num = kNumber},
                                               {.wr_id = old->receive_id(8), .qp_num = kNumber}}};
  const auto other = need(shared->admit(device, 2, 2));
  need(other->join(kNumber + 1));
  old.reset();
  const auto fresh = need(shared->admit(device, 2, 2));
  need(fresh->join(kNumber));
  shared->route(late);
  EXPECT_EQ(shared->counters().strays, 2U);
  std::array<WorkCompletion, 4> got;
  EXPECT_EQ(need(fresh->poll_sends(got)), 0U);
  EXPECT_EQ(need(fresh->poll_receives(got)), 0U);
  EXPECT_EQ(need(other->poll_receives(got)), 0U);
  const std::array<WorkCompletion, 2> own = {
      {{.wr_id = fresh->send_id(0xFFFF'FFFE), .qp_num = kNumber},
       {.wr_id = fresh->receive_id(3), .qp_num = kNumber}}};
  shared->route(own);
  ASSERT_EQ(need(fresh->poll_sends(got)), 1U);
  EXPECT_EQ(got[0].wr_id, 0xFFFF'FFFEU);
  ASSERT_EQ(need(fresh->poll_receives(got)), 1U);
  EXPECT_EQ(got[0].wr_id, 3U);
  EXPECT_EQ(shared->counters().strays, 2U);
}

TEST(SharedQueues, AreOfOneDevice) {
  const Device device = need(Device::open_first_active());
  const Device again = need(Device::open_first_active());  // another context
  const auto shared = need(detail::SharedQueue::create({.entries = 64, .transports = 4}));
  const auto seat = need(shared->admit(device, 2, 2));
  const auto refused = shared->admit(again, 2, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
}

TEST(MessageDrivers, OptionsOutOfRangeAndWindowsAreRefused) {
  EXPECT_FALSE(MessageDriver::create({.entries = 0}));
  EXPECT_FALSE(MessageDriver::create({.transports = 0}));
  EXPECT_FALSE(MessageDriver::create({.transports = 65'001}));
  CreditRingBuilder builder{.options = kSmallRing, .driver = need(MessageDriver::create())};
  EXPECT_FALSE(meet(builder).server.uses_window());
  builder.options.access = LeasePolicy::kRequireWindows;
  auto listener = need(builder.listen(device_address()));
  const auto refused = builder.connect(listener.address(), soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

// Streams of one executor on two drivers, one for each side: each sleep arms all of them.
TEST(MessageDrivers, StreamsOfOneThreadShareAQueue) {
  const CreditRingBuilder passive{.options = kSmallRing, .driver = need(MessageDriver::create())};
  const CreditRingBuilder active{.options = kSmallRing, .driver = need(MessageDriver::create())};
  const auto executor = need(EpollExecutor::create());
  constexpr std::size_t kStreams = 6;
  constexpr std::size_t kBytes = 20'000;
  std::vector<Stream<CreditRingTransport>> servers;
  std::vector<Stream<CreditRingTransport>> clients;
  for (std::size_t i = 0; i < kStreams; ++i) {
    auto ends = connect_ends(active, passive, device_address());
    servers.emplace_back(std::move(ends.server), *executor);
    clients.emplace_back(std::move(ends.client), *executor);
  }
  std::vector<std::vector<std::byte>> buffers(kStreams, std::vector<std::byte>(1000));
  const auto echo = [&](std::size_t i) -> Task<> {
    EXPECT_EQ(need(co_await copy_stream(servers[i], servers[i], MutableBytes(buffers[i]))), kBytes);
  };
  const auto ask = [&](std::size_t i) -> Task<> {
    const auto bytes = pattern(i, kBytes);
    std::vector<std::byte> answer(kBytes);
    for (std::size_t done = 0; done < kBytes;) {
      const auto part = Bytes(bytes).subspan(done, std::min<std::size_t>(1 + done, kBytes - done));
      need(co_await clients[i].write(part, soon(kLongPatienceMs)));
      for (const std::size_t end = done + part.size(); done != end;) {
        const auto into = MutableBytes(answer).subspan(done, end - done);
        done += need(co_await clients[i].read(into, soon(kLongPatienceMs)));
      }
    }
    EXPECT_EQ(answer, bytes);
    need(co_await clients[i].shutdown(soon(kLongPatienceMs)));
  };
  std::vector<Task<>> tasks;
  for (std::size_t i = 0; i < kStreams; ++i) {
    tasks.push_back(echo(i));
    tasks.push_back(ask(i));
  }
  for (Task<>& task : tasks)
    task.start();
  for (Task<>& task : tasks)
    need(run(*executor, soon(kLongPatienceMs), task));
}

}  // namespace
}  // namespace rkv::rdma
