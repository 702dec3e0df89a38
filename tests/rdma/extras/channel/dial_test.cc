// Channels by address, on the address in RKV_RDMA_ADDRESS: also on iWARP, but for what
// not_on_iwarp.txt lists.
#include "rkv/rdma/dial.h"

#include <chrono>
#include <future>

#include "code_of.h"
#include "common/clock.h"
#include "rdma/extras/channel/channel_state.h"
#include "tests/rdma/core/connect/device_address.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr AccessFlags kReadable = AccessFlags::kLocalWrite | AccessFlags::kRemoteRead;

ChannelListener listener_here() {
  return need(ChannelListener::listen(device_address(0)));
}
std::string address_text(const ChannelListener& listener) {
  return device_address(listener.port()).to_string();
}
void put(const RegisteredSpan& to, std::string_view text) {
  std::memcpy(to.bytes().data(), text.data(), text.size());
}
std::string_view text_of(const RegisteredSpan& from) {
  return as_text(from.bytes());
}
MemoryRegion memory_in(const ProtectionDomain& pd, AccessFlags access = AccessFlags::kLocalWrite) {
  return need(MemoryRegion::allocate(pd, 65536, access));
}

// A client that dials on a thread of its own, since a connection has two sides.
std::future<Result<Channel>> dialling(const ChannelListener& listener,
                                      const DialOptions& options = {}) {
  return std::async(std::launch::async, [address = address_text(listener), options] {
    return dial(address, options, soon());
  });
}

struct Both {
  ChannelListener listener = listener_here();
  // The server expects a message in the first 64 bytes.
  MemoryRegion memory = memory_in(need(listener.domain()), kEverything);
  std::optional<Channel> dialled;
  std::optional<Channel> accepted;
  Channel& client;
  Channel& server;

  explicit Both(const DialOptions& of_client = {}, DialOptions of_server = {})
      : client(connect(of_client, of_server)), server(*accepted) {}

 private:
  Channel& connect(const DialOptions& of_client, DialOptions& of_server) {
    of_server.expected = memory.local(0, 64);
    auto outcome = dialling(listener, of_client);
    accepted = need(listener.accept(of_server, soon()));
    dialled = need(outcome.get());
    return *dialled;
  }
};

TEST(Dialling, TwoSidesPlayPingPong) {
  Both both;
  const MemoryRegion ours = memory_in(both.client.domain());
  put(ours.first(4), "ping");
  need(both.client.expect(ours.last(64)));
  need(both.client.send(ours.first(4), soon()));
  EXPECT_EQ(need(both.server.receive(both.memory.first(64), soon())).bytes, 4U);
  EXPECT_EQ(text_of(both.memory.first(4)), "ping");
  put(both.memory.last(4), "pong");
  need(both.server.send(both.memory.last(4), soon()));
  EXPECT_EQ(need(both.client.receive(ours.last(64), soon())).bytes, 4U);
  EXPECT_EQ(text_of(ours.last(64).first(4)), "pong");
  EXPECT_EQ(both.client.outstanding() + both.server.outstanding(), 0U);
}

// The peer's processor does nothing but wait for its client to leave.
TEST(Dialling, AClientWritesAndReadsWhatTheHelloNames) {
  ChannelListener listener = listener_here();
  const MemoryRegion theirs = memory_in(need(listener.domain()), kEverything);
  auto served = std::async(std::launch::async, [&] {
    const auto offer = theirs.remote().to_bytes();
    Channel peer = need(listener.accept(
        {.link = {.remote_access = AccessFlags::kRemoteRead | AccessFlags::kRemoteWrite},
         .hello = offer},
        soon()));
    return peer.wait_until_peer_leaves(soon());
  });
  {
    Channel channel = need(dial(address_text(listener), {}, soon()));
    const MemoryRegion ours = memory_in(channel.domain(), kReadable);
    const RemoteSpan remote =
        RemoteSpan::from_bytes(channel.peer_data().first<RemoteSpan::kWireBytes>());
    put(ours.first(7), "written");
    need(channel.write(ours.first(7), *remote.subspan(1000, 7), soon()));
    need(channel.read(ours.last(7), *remote.subspan(1000, 7), soon()));
    EXPECT_EQ(text_of(ours.last(7)), "written");
    need(channel.disconnect());
    EXPECT_TRUE(channel.broken());
    EXPECT_EQ(channel.send(ours.first(1), soon()).error().code, Code::kDisconnected);
  }
  need(served.get());
  EXPECT_EQ(text_of(theirs.local(1000, 7)), "written");
}

TEST(Dialling, ReceivesAreUsedInTheOrderTheyWereExpected) {
  Both both;
  const MemoryRegion ours = memory_in(both.client.domain());
  need(both.server.expect(both.memory.local(64, 64)));
  need(both.server.expect(both.memory.local(128, 64)));
  for (const std::string_view text : {"one", "two", "three"}) {
    put(ours.first(5), text);
    need(both.client.send(ours.first(text.size()), soon()));
  }
  // Taken in another order than they came.
  EXPECT_EQ(need(both.server.receive(both.memory.local(128, 64), soon())).bytes, 5U);
  EXPECT_EQ(need(both.server.receive(both.memory.local(0, 64), soon())).bytes, 3U);
  EXPECT_EQ(need(both.server.receive(both.memory.local(64, 64), soon())).bytes, 3U);
  EXPECT_EQ(text_of(both.memory.local(0, 3)), "one");
  EXPECT_EQ(text_of(both.memory.local(64, 3)), "two");
  EXPECT_EQ(text_of(both.memory.local(128, 5)), "three");
}

TEST(Dialling, ExpectedReceivesAreLimitedAndKeepScopesOut) {
  Both both({}, {.channel = {.receives = 2}});
  need(both.server.expect(both.memory.local(64, 64)));
  EXPECT_EQ(both.server.expect(both.memory.local(128, 64)).error().code, Code::kBusy);
  EXPECT_DEATH(std::ignore = both.server.scope(soon(), [](Scope&) {}), "outstanding");
}

// It waits for its own message, not for the deadline.
TEST(Dialling, AWaitEndsWhenThePeerLeaves) {
  Both both;
  auto leaving = std::async(std::launch::async, [&] { need(both.client.disconnect()); });
  const Result<Done> got =
      both.server.receive(both.memory.first(64), Deadline::in(std::chrono::minutes(10)));
  leaving.get();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kDisconnected) << to_string(got.error());
  EXPECT_TRUE(both.server.broken());
  EXPECT_EQ(both.server.outstanding(), 0U);
  need(both.server.wait_until_peer_leaves(soon()));
  EXPECT_EQ(both.server.send(both.memory.first(1), soon()).error().code, Code::kDisconnected);
}

// Soft-iWARP takes a receive on a connection that has ended and never completes it.
TEST(Dialling, AReceiveAfterThePeerLeftEndsToo) {
  Both both;
  need(both.client.disconnect());
  const Deadline late = Deadline::in(std::chrono::minutes(10));
  const Result<Done> got = both.server.receive(both.memory.local(64, 64), late);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kDisconnected) << to_string(got.error());
  EXPECT_EQ(both.server.outstanding(), 0U);
}

// The peer's device answers no READ any more, so the reader is about to sleep when the peer leaves.
// On iWARP that device ends the connection by itself.
TEST(Dialling, PlannedReadsEndWhenThePeerLeaves) {
  Both both({}, {.link = {.remote_access = AccessFlags::kRemoteRead}});
  const MemoryRegion ours = memory_in(both.client.domain());
  std::vector<ReadRange> ranges;
  for (std::size_t i = 0; i < 100; ++i) {
    ranges.push_back(
        {.from = *both.memory.remote().subspan(i * 16, 8), .to = ours.local(i * 8, 8)});
  }
  ReadPlanLimits limits = need(both.client.read_limits());
  limits.max_sge = 1;
  const ReadPlan plan = need(ReadPlan::make(ranges, limits));
  need(both.client.read_all(plan, soon()));
  need(detail::ChannelAccess::state(both.server).wait_established(soon()));
  need(both.server.queue_pair().to_error());
  bool has_left = false;
  detail::ChannelAccess::state(both.client).faults.before_arming = [&] {
    if (!std::exchange(has_left, true)) need(both.server.disconnect());
  };
  const Status read = both.client.read_all(plan, Deadline::in(std::chrono::minutes(10)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kDisconnected) << to_string(read.error());
  EXPECT_STREQ(read.error().text, "the peer disconnected");
  EXPECT_TRUE(both.client.broken());
  need(both.client.wait_until_peer_leaves(soon()));
}

TEST(Dialling, PlannedReadsAfterThePeerLeftEndToo) {
  Both both({}, {.link = {.remote_access = AccessFlags::kRemoteRead}});
  const MemoryRegion ours = memory_in(both.client.domain());
  const std::array ranges = {
      ReadRange{.from = *both.memory.remote().first(8), .to = ours.first(8)}};
  const ReadPlan plan = need(ReadPlan::make(ranges, need(both.client.read_limits())));
  need(detail::ChannelAccess::state(both.server).wait_established(soon()));
  need(both.server.disconnect());
  const Status read = both.client.read_all(plan, Deadline::in(std::chrono::minutes(10)));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Code::kDisconnected) << to_string(read.error());
}

// A word that no device can swap is a peer's claim: it costs neither the channel nor other work.
TEST(Dialling, AMisalignedWordIsRefusedBeforeAnythingIsPosted) {
  Both both({}, {.link = {.remote_access = AccessFlags::kRemoteRead}});
  const MemoryRegion ours = memory_in(both.client.domain());
  const RemoteSpan remote = both.memory.remote();
  const auto out = both.client.scope(soon(), [&](Scope& s) {
    const std::array work = {Work::read(ours.first(8), *remote.first(8)),
                             Work::fetch_add(ours.last(8), *remote.subspan(4, 8), 1)};
    EXPECT_EQ(s.post(work).error().code, Code::kInvalidArgument);
    need(s.read(ours.first(8), *remote.first(8)).wait());
  });
  need(out.operations);
  EXPECT_FALSE(both.client.broken());
}

TEST(Dialling, WhatCameBeforeThePeerLeftIsReceived) {
  for (int round = 0; round < 5; ++round) {
    Both both;
    {
      Channel client = std::move(*both.dialled);
      const MemoryRegion ours = memory_in(client.domain());
      put(ours.first(4), "last");
      need(client.send(ours.first(4), soon()));
    }
    const Result<Done> got = both.server.receive(both.memory.first(64), soon());
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(text_of(both.memory.first(4)), "last");
    EXPECT_EQ(both.server.receive(both.memory.first(64), soon()).error().code, Code::kDisconnected);
  }
}

TEST(Dialling, ARefusalCarriesItsReason) {
  ChannelListener listener = listener_here();
  auto refusing = std::async(std::launch::async, [&] {
    ChannelRequest request = need(listener.next(soon()));
    EXPECT_EQ(as_text(request.peer_data().first(4)), "me 1");
    return std::move(request).reject(as_bytes("not today"));
  });
  PrivateData reason;
  const Result<Channel> refused =
      dial(address_text(listener), {.hello = as_bytes("me 1")}, soon(), &reason);
  need(refusing.get());
  EXPECT_EQ(code_of(refused), Code::kRejected);
  EXPECT_EQ(as_text(reason.bytes().first(9)), "not today");
}

TEST(Dialling, MistakesAreNamed) {
  EXPECT_EQ(code_of(dial("no port", {}, soon())), Code::kInvalidArgument);
  EXPECT_EQ(code_of(ChannelListener::listen("127.0.0.1")), Code::kInvalidArgument);
  ChannelListener listener = listener_here();
  const std::string address = address_text(listener);
  EXPECT_EQ(code_of(dial(address, {.channel = {.sends = 0}}, soon())), Code::kInvalidArgument);
  const std::vector<std::byte> too_long(200);
  EXPECT_EQ(code_of(dial(address, {.hello = too_long}, soon())), Code::kInvalidArgument);
  EXPECT_EQ(code_of(listener.next(soon(20))), Code::kTimeout);
  const Result<ChannelListener> taken = ChannelListener::listen(address);
  EXPECT_EQ(code_of(taken), Code::kConflict);
}

TEST(Dialling, NobodyThereIsToldBeforeTheDeadline) {
  std::string address;
  {
    const ChannelListener gone = listener_here();
    address = address_text(gone);
  }
  const Deadline deadline = Deadline::in(std::chrono::minutes(10));
  EXPECT_EQ(code_of(dial(address, {}, deadline)), Code::kUnreachable);
}

TEST(Dialling, AllClientsOfOneDeviceShareAListenersDomain) {
  ChannelListener listener = need(ChannelListener::listen("0.0.0.0:0"));
  EXPECT_EQ(code_of(listener.domain()), Code::kInvalidArgument);
  std::vector<Channel> served;
  std::vector<Channel> clients;
  for (int i = 0; i < 2; ++i) {
    auto dialled = dialling(listener);
    served.push_back(need(listener.accept({}, soon())));
    clients.push_back(need(dialled.get()));
  }
  EXPECT_EQ(served[0].domain().raw(), served[1].domain().raw());
  EXPECT_NE(clients[0].domain().raw(), clients[1].domain().raw());
}

// A client that never sends the last message of its handshake.
TEST(HalfOpen, ClientsHoldUpNobody) {
  ChannelListener listener = listener_here();
  EventChannel events = need(EventChannel::create());
  CmId half = need(CmId::create(events));
  need(half.resolve_address(device_address(listener.port()), nullptr, kPatienceMs));
  EXPECT_EQ(need(events.wait(soon())).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  need(half.resolve_route(kPatienceMs));
  EXPECT_EQ(need(events.wait(soon())).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
  const ProtectionDomain pd = need(ProtectionDomain::allocate(half.device()));
  const CompletionQueue queue = need(CompletionQueue::create(half.device(), {}));
  PreparedQueuePair<> qp = need(QueuePair::create(pd, queue, queue, {}));
  need(half.to_init(qp, {}));
  need(half.connect(qp, {}, {}, {}));

  Channel slow = need(listener.accept({}, soon()));  // returns although that client never finishes
  auto dialled = dialling(listener);
  Channel server = need(listener.accept({}, soon()));
  Channel client = need(dialled.get());
  const MemoryRegion theirs = memory_in(server.domain());
  const MemoryRegion ours = memory_in(client.domain());
  need(server.expect(theirs.first(64)));
  put(ours.first(5), "quick");
  need(client.send(ours.first(5), soon()));
  EXPECT_EQ(need(server.receive(theirs.first(64), soon())).bytes, 5U);

  EXPECT_EQ(slow.send(theirs.first(5), soon(200)).error().code, Code::kDisconnected);
  EXPECT_TRUE(slow.broken());
}

}  // namespace
}  // namespace rkv::rdma
