// A peer's access to a ring: only within its bounds and until the transport ends, by a registration
// or a memory window.
//
// Mutations tried: each of these changes makes a test here fail.
// RINGTRANS-5  disconnect() does not end the registration  NoKeyOpensTheRingAfterTheEnd
// RINGTRANS-3  a SEND that invalidates counts as a credit  AMessageThatInvalidates...
#include "rkv/rdma/message/credit_ring.h"
#include "tests/rdma/extras/message/stranger.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr RingOptions with(LeasePolicy policy) {
  RingOptions out = kRing;
  out.access = policy;
  return out;
}

// Posts one WRITE of 8 bytes; returns its status.
ibv_wc_status write_to(Stranger& stranger, QueuePair& qp, const RemoteSpan& to) {
  store_le<std::uint64_t>(stranger.memory.bytes().data(), 0x5152'5354'5556'5758);
  Batch batch = qp.batch();
  batch.write(7, OpFlags::kSignaled, stranger.memory.local(0, 8), to);
  need(std::move(batch).submit());
  std::array<WorkCompletion, 1> one;
  EXPECT_EQ(need(stranger.queue.wait(one, soon())), 1U);
  return one[0].status;
}

RemoteSpan piece(const RemoteSpan& ring, std::int64_t offset) {
  return {
      .address = ring.address + static_cast<std::uint64_t>(offset), .length = 8, .rkey = ring.rkey};
}

// Another connection into the protection domain of `transport`: access that does not end with the
// transport's own connection is still open to this one.
struct SideDoor {
  ProtectionDomain pd;
  CompletionQueue queue;
  std::optional<QueuePair> inside;
  std::optional<QueuePair> outside;

  SideDoor(const CreditRingTransport& transport, Stranger& stranger)
      // The same context: the connection manager opens a device once.
      : pd(ProtectionDomain::adopt(stranger.pd.device(),
                                   {transport.queue_pair().raw()->pd, [](ibv_pd*) {}})),
        queue(need(CompletionQueue::create(pd.device(), {.entries = 4}))) {
    const std::uint8_t port = need(pd.device().first_active_port());
    const GidEntry gid = need(pd.device().routable_gid(port));
    auto a = need(QueuePair::create(pd, queue, queue, {}));
    auto b = stranger.make();
    const Endpoint of_a = need(a.endpoint(port, gid));
    const Endpoint of_b = need(b.endpoint(port, gid));
    inside = need(std::move(a).handshake(of_b, {.remote_access = kEverything}));
    outside = need(std::move(b).handshake(of_a));
  }
};

TEST(RingAccess, OutsideTheRingIsRefused) {
  for (const std::int64_t offset : {std::int64_t{4096}, std::int64_t{-8}, std::int64_t{4092}}) {
    Visit<CreditRingBuilder> visit(TransportKind::kCreditRing,
                                   {.options = with(LeasePolicy::kDisableWindows)});
    Stranger& peer = *visit.stranger;
    EXPECT_EQ(write_to(peer, peer.link->qp, piece(peer.server->ring, 4088)), IBV_WC_SUCCESS);
    EXPECT_EQ(write_to(peer, peer.link->qp, piece(peer.server->ring, offset)),
              IBV_WC_REM_ACCESS_ERR);
  }
}

TEST(RingAccess, NoKeyOpensTheRingAfterTheEnd) {
  Visit<CreditRingBuilder> visit(TransportKind::kCreditRing,
                                 {.options = with(LeasePolicy::kDisableWindows)});
  Stranger& peer = *visit.stranger;
  const RemoteSpan ring = peer.server->ring;
  const auto word = [&](std::uint64_t offset) {
    return load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(ring.address + offset));
  };
  peer.ring(0, 108, 108);
  const auto held = receive_alone(*visit.server, 1);
  SideDoor door(*visit.server, peer);
  EXPECT_EQ(write_to(peer, *door.outside, piece(ring, 1024)), IBV_WC_SUCCESS);
  EXPECT_NE(word(1024), 0U);  // the other connection has access
  need(visit.server->disconnect());
  EXPECT_EQ(write_to(peer, *door.outside, piece(ring, 2048)), IBV_WC_REM_ACCESS_ERR);
  EXPECT_NE(write_to(peer, peer.link->qp, piece(ring, 2048)), IBV_WC_SUCCESS);
  EXPECT_EQ(word(2048), 0U);
  // Held messages may still be read, and a second disconnect() is allowed.
  ASSERT_EQ(held.size(), 1U);
  EXPECT_EQ(visit.server->view(held[0].index).size(), 100U);
  need(visit.server->disconnect());
}

// A stranger that supports windows: it takes the key from the first message.
struct WindowVisit {
  std::unique_ptr<Stranger> peer;
  std::optional<CreditRingTransport> server;
  Token token;
  RemoteSpan ring;

  WindowVisit() {
    const CreditRingBuilder builder{.options = with(LeasePolicy::kRequireWindows)};
    CmListener listener = need(builder.listen(device_address()));
    auto dialled = std::async(std::launch::async, [&] { dial(listener.address()); });
    server.emplace(need(builder.accept(listener, soon())));
    dialled.get();
    token = need(detail::decode(peer->link->peer_data.bytes(), TransportKind::kCreditRing));
    peer->await();
    ring = token.ring;
    ring.rkey = load_le<std::uint32_t>(peer->memory.bytes().data() + 32768);
  }

 private:
  void dial(const SocketAddress& to) {
    Connector connector = need(Connector::resolve(to, {}, soon()));
    peer = std::make_unique<Stranger>(connector.device());
    auto qp = need(QueuePair::create(peer->pd, peer->queue, peer->queue,
                                     {.operations = kAllSendOps | kWindowOps}));
    need(connector.prepare(qp, {.remote_access = kEverything}));
    const std::array<ReceiveRequest, 1> receive = {
        {{.wr_id = 1, .buffer = peer->memory.local(32768, 8)}}};
    need(qp.post_receives(receive));
    peer->link.emplace(need(std::move(connector).connect(
        std::move(qp), {.remote_access = kEverything},
        detail::encode(peer->token(TransportKind::kCreditRing)), soon())));
  }
};

TEST(RingAccess, AWindowIsGoodForItsConnectionOnly) {
  WindowVisit visit;
  Stranger& peer = *visit.peer;
  EXPECT_TRUE(visit.server->uses_window());
  EXPECT_TRUE(visit.token.key_follows);
  EXPECT_EQ(visit.token.ring.rkey, 0U);
  SideDoor door(*visit.server, peer);
  EXPECT_EQ(write_to(peer, peer.link->qp, piece(visit.ring, 1024)), IBV_WC_SUCCESS);
  EXPECT_EQ(write_to(peer, *door.outside, piece(visit.ring, 1024)), IBV_WC_REM_ACCESS_ERR);
  need(visit.server->disconnect());
  EXPECT_NE(write_to(peer, peer.link->qp, piece(visit.ring, 2048)), IBV_WC_SUCCESS);
}

// As long as a credit, and it invalidates the window.
TEST(RingAccess, AMessageThatInvalidatesEndsTheConnection) {
  WindowVisit visit;
  Stranger& peer = *visit.peer;
  Batch batch = peer.link->qp.batch();
  batch.op(2).signaled().invalidate(visit.ring.rkey).send(peer.memory.local(16384, 8));
  need(std::move(batch).submit());
  peer.await();
  expect_corrupt(*visit.server, "neither a record nor a credit");
}

TEST(RingAccess, AKeyThatIsNoneOrNeverComesEndsTheConnection) {
  const CreditRingBuilder builder{.options = kRing};
  const auto code = [&](std::function<void(Stranger&)> say) {
    Visit<CreditRingBuilder> visit(TransportKind::kCreditRing, builder, std::move(say));
    return *visit.accepted ? std::optional<Code>() : visit.accepted->error().code;
  };
  std::array<std::byte, 8> key{};
  EXPECT_EQ(code([&](Stranger& peer) { peer.say(key); }), std::nullopt);
  EXPECT_EQ(code([&](Stranger& peer) { peer.say(Bytes(key).first(4)); }), Code::kCorrupt);
  EXPECT_EQ(code([&](Stranger&) {}), Code::kTimeout);
  key[6] = std::byte{1};
  EXPECT_EQ(code([&](Stranger& peer) { peer.say(key); }), Code::kCorrupt);
}

void talk(LeasePolicy active, LeasePolicy passive) {
  auto ends = connect_ends(CreditRingBuilder{.options = with(active)},
                           CreditRingBuilder{.options = with(passive)}, device_address());
  const Device device = need(Device::open_first_active());
  const WindowSupport support = need(window_support(device));
  const auto windows = [&](LeasePolicy policy) {
    return policy == LeasePolicy::kRequireWindows ||
           (policy == LeasePolicy::kAuto && support.type_two && support.trustworthy);
  };
  EXPECT_EQ(ends.client.uses_window(), windows(active));
  EXPECT_EQ(ends.server.uses_window(), windows(passive));
  for (std::uint64_t i = 0; i < 20; ++i) {
    send(ends.client, ends.server, pattern(i, 400));
    expect_and_release(ends.server, receive_exactly(ends.server, ends.client, 1), i);
    send(ends.server, ends.client, pattern(i, 300));
    expect_and_release(ends.client, receive_exactly(ends.client, ends.server, 1), i);
  }
}

TEST(RingAccess, EachSideChoosesForItself) {
  constexpr std::array<LeasePolicy, 3> kPolicies = {
      LeasePolicy::kAuto, LeasePolicy::kRequireWindows, LeasePolicy::kDisableWindows};
  for (const LeasePolicy active : kPolicies) {
    for (const LeasePolicy passive : kPolicies) {
      talk(active, passive);
    }
  }
}

}  // namespace
}  // namespace rkv::rdma
