// Datagram services looked up by address and port, on the address in RKV_RDMA_ADDRESS.
#include "rkv/rdma/datagram_service.h"

#include <future>
#include <string>

#include "tests/rdma/core/connect/device_address.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

using UdPair = BasicQueuePair<Ud>;

constexpr std::size_t kSlot = 4096;

// A queue pair that receives, on a device that was opened by the program or by librdmacm.
struct Node {
  ProtectionDomain pd;
  Side side;
  std::optional<UdPair> qp;

  explicit Node(const Device& device)
      : pd(need(ProtectionDomain::allocate(device))), side(pd, kEverything) {}
  PreparedQueuePair<Ud> prepared() {
    return need(UdPair::create(pd, side.queue, side.queue, {.inline_bytes = 64}));
  }
  // Activates it with four receives posted.
  void activate(PreparedQueuePair<Ud> made, std::uint32_t qkey) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      const ReceiveRequest one{.wr_id = i, .buffer = side.memory.local(i * kSlot, kSlot)};
      need(made.post_receives({&one, 1}));
    }
    qp = need(std::move(made).activate(qkey));
  }
  void activate(std::uint32_t qkey) {
    auto made = prepared();
    need(made.open(need(pd.device().first_active_port())));
    activate(std::move(made), qkey);
  }

  void send(const AddressHandle& to, std::uint32_t qp_num, std::uint32_t qkey,
            std::string_view text) {
    auto batch = qp->batch();
    batch.op(100).signaled().to(to, qp_num, qkey).send(inlined(as_bytes(text)));
    need(std::move(batch).submit());
    const WorkCompletion sent = side.completion();
    EXPECT_TRUE(sent.ok());
    EXPECT_EQ(sent.wr_id, 100U) << "something else arrived";
  }
  struct Received {
    std::string text;
    WorkCompletion completion;
    ReceivedDatagram datagram;
  };
  Received receive() {
    const WorkCompletion got = side.completion();
    EXPECT_TRUE(got.ok());
    const auto datagram =
        need(ReceivedDatagram::from(side.memory.local(got.wr_id * kSlot, kSlot), got.byte_length));
    return {std::string(as_text(datagram.payload())), got, datagram};
  }
};

// On the device as the program opens it, whose handle differs from that of a request.
Node service_node() {
  Node node(need(Device::open_first_active()));
  node.activate(kDatagramQkey);
  return node;
}

struct Asked {
  std::unique_ptr<Node> node;
  Result<DatagramPeer> peer;
  PrivateData rejection;
};

Asked ask_now(std::uint16_t port, Bytes hello, int patience_ms = kPatienceMs) {
  auto resolver = need(DatagramResolver::resolve(device_address(port), {}, soon()));
  auto node = std::make_unique<Node>(resolver.device());
  PrivateData rejection;
  auto peer = std::move(resolver).look_up(node->pd, hello, soon(patience_ms), &rejection);
  if (peer) node->activate(peer->qkey);
  return {std::move(node), std::move(peer), rejection};
}
std::future<Asked> ask_later(std::uint16_t port, std::string hello) {
  return std::async(std::launch::async,
                    [port, hello = std::move(hello)] { return ask_now(port, as_bytes(hello)); });
}

TEST(DatagramServices, AreFoundByAddressAndPort) {
  Node server = service_node();
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto client = ask_later(listener.port(), "hello");
  DatagramRequest request = need(listener.wait(soon()));
  EXPECT_EQ(request.peer_address().host(), device_address(0).host());
  EXPECT_EQ(request.private_data().size(), kLookupRequestBytes);
  EXPECT_EQ(text_of(request.private_data(), 5), "hello");
  EXPECT_EQ(request.private_data()[5], std::byte{0});
  EXPECT_EQ(need(request.qkey()), kDatagramQkey);
  need(std::move(request).accept(*server.qp, as_bytes("welcome")));
  Asked asked = client.get();
  ASSERT_TRUE(asked.peer) << to_string(asked.peer.error());
  EXPECT_EQ(asked.peer->peer_data.bytes().size(), kLookupReplyBytes);
  EXPECT_EQ(text_of(asked.peer->peer_data.bytes(), 7), "welcome");
  EXPECT_EQ(asked.peer->qp_num, server.qp->number());
  EXPECT_EQ(asked.peer->qkey, kDatagramQkey);

  // There and back to the sender. The request is answered, and no connection exists.
  asked.node->send(asked.peer->handle, asked.peer->qp_num, asked.peer->qkey, "question");
  const auto question = server.receive();
  EXPECT_EQ(question.text, "question");
  const DatagramSource source{.qp_num = asked.node->qp->number(),
                              .has_grh = asked.peer->address.global.has_value()};
  const auto back =
      need(AddressHandle::reply(server.pd, asked.peer->address.port, source, question.datagram));
  server.send(back, source.qp_num, kDatagramQkey, "answer");
  EXPECT_EQ(asked.node->receive().text, "answer");
  EXPECT_FALSE(need(listener.next()));
}

TEST(DatagramServices, OneQueuePairServesAllWhoAsk) {
  auto listener = need(DatagramListener::listen(device_address(0)));
  Node server(listener.device().value());
  server.activate(kDatagramQkey);
  auto first = ask_later(listener.port(), "1");
  auto second = ask_later(listener.port(), "2");
  for (int i = 0; i < 2; ++i) {
    DatagramRequest request = need(listener.wait(soon()));
    const std::string echo(text_of(request.private_data(), 1));
    need(std::move(request).accept(*server.qp, as_bytes(echo)));
  }
  Asked a = first.get();
  Asked b = second.get();
  ASSERT_TRUE(a.peer && b.peer);
  EXPECT_EQ(text_of(a.peer->peer_data.bytes(), 1), "1");
  EXPECT_EQ(text_of(b.peer->peer_data.bytes(), 1), "2");
  a.node->send(a.peer->handle, a.peer->qp_num, a.peer->qkey, "from 1");
  EXPECT_EQ(server.receive().text, "from 1");
  b.node->send(b.peer->handle, b.peer->qp_num, b.peer->qkey, "from 2");
  EXPECT_EQ(server.receive().text, "from 2");
}

// A queue pair created for one peer, and one created before the service is known: both on the port,
// partition and key of the connection manager.
TEST(DatagramServices, PrepareQueuePairsOfBothSides) {
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto resolver = need(DatagramResolver::resolve(device_address(listener.port()), {}, soon()));
  Node client(resolver.device());
  auto prepared = client.prepared();
  need(resolver.prepare(prepared));
  EXPECT_EQ(need(prepared.state()), IBV_QPS_INIT);
  client.activate(std::move(prepared), kDatagramQkey);
  auto found = std::async(std::launch::async,
                          [&] { return std::move(resolver).look_up(client.pd, {}, soon()); });
  DatagramRequest request = need(listener.wait(soon()));
  Node server(request.device());
  auto answering = server.prepared();
  need(request.prepare(answering));
  const ibv_qp_attr initial = need(answering.query(IBV_QP_PORT | IBV_QP_QKEY)).attributes;
  EXPECT_EQ(initial.port_num, need(server.pd.device().first_active_port()));
  EXPECT_EQ(initial.qkey, kDatagramQkey);
  server.activate(std::move(answering), need(request.qkey()));
  need(std::move(request).accept(*server.qp, {}));
  const DatagramPeer peer = need(found.get());
  client.send(peer.handle, peer.qp_num, peer.qkey, "prepared");
  EXPECT_EQ(server.receive().text, "prepared");
}

TEST(DatagramServices, DatagramsWithAnotherKeyAreDropped) {
  Node server = service_node();
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto client = ask_later(listener.port(), "");
  need(need(listener.wait(soon())).accept(*server.qp, {}));
  Asked asked = client.get();
  ASSERT_TRUE(asked.peer);
  asked.node->send(asked.peer->handle, asked.peer->qp_num, asked.peer->qkey + 1, "wrong");
  asked.node->send(asked.peer->handle, asked.peer->qp_num, asked.peer->qkey, "right");
  EXPECT_EQ(server.receive().text, "right");
}

TEST(DatagramServices, AQueuePairWithAnotherKeyIsNotOffered) {
  Node server(need(Device::open_first_active()));
  server.activate(kDatagramQkey + 1);
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto client = ask_later(listener.port(), "");
  DatagramRequest request = need(listener.wait(soon()));
  const Status refused = std::move(request).accept(*server.qp, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_STREQ(refused.error().call, "rdma_accept");
  EXPECT_NE(std::string(refused.error().text).find("Q_Key"), std::string::npos);
  Node right = service_node();
  // NOLINTNEXTLINE(bugprone-use-after-move): refused, it is still there
  need(std::move(request).accept(*right.qp, {}));
  EXPECT_TRUE(client.get().peer);
}

TEST(DatagramServices, RefuseWithAReason) {
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto client = ask_later(listener.port(), "");
  need(need(listener.wait(soon())).reject(as_bytes("full house")));
  const Asked refused = client.get();
  ASSERT_FALSE(refused.peer);
  EXPECT_EQ(refused.peer.error().code, Code::kRejected);
  EXPECT_STREQ(refused.peer.error().call, "rdma_connect");
  EXPECT_EQ(text_of(refused.rejection.bytes(), 10), "full house");
}

TEST(DatagramServices, ARequestNobodyAnswersIsDeclined) {
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto client = ask_later(listener.port(), "");
  {
    const DatagramRequest dropped = need(listener.wait(soon()));
  }
  const Asked refused = client.get();
  ASSERT_FALSE(refused.peer);
  EXPECT_EQ(refused.peer.error().code, Code::kRejected);
}

TEST(DatagramServices, AClosedPortSaysThatNobodyListens) {
  // A listener for connections has the same number in another space.
  auto connections = need(CmListener::listen(device_address(0)));
  const Asked refused = ask_now(connections.port(), {});
  ASSERT_FALSE(refused.peer);
  EXPECT_EQ(refused.peer.error().code, Code::kUnreachable);
  EXPECT_NE(to_string(refused.peer.error()).find("listens"), std::string::npos);
  EXPECT_FALSE(need(connections.next()));
}

TEST(DatagramServices, OneThatDoesNotAnswerEndsTheWaitWithTheDeadline) {
  const auto listener = need(DatagramListener::listen(device_address(0)));
  const SteadyClock clock;
  const Nanos start = clock.now();
  const Asked asked = ask_now(listener.port(), {}, 200);
  ASSERT_FALSE(asked.peer);
  EXPECT_EQ(asked.peer.error().code, Code::kTimeout);
  EXPECT_GE(clock.now() - start, 190 * kNanosPerMs);
}

TEST(DatagramServices, TooMuchPrivateDataIsRefusedBeforeItIsSent) {
  Node server = service_node();
  auto listener = need(DatagramListener::listen(device_address(0)));
  const auto told = [](const Status& refused, const char* verb, const char* most) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_STREQ(refused.error().call, verb);
    EXPECT_NE(to_string(refused.error()).find(most), std::string::npos);
  };
  const std::string longest(kLookupRequestBytes, 'a');
  const Asked too_long = ask_now(listener.port(), as_bytes(longest + "a"));
  ASSERT_FALSE(too_long.peer);
  told(std::unexpected(too_long.peer.error()), "rdma_connect", "180");
  EXPECT_FALSE(need(listener.next()));

  auto client = ask_later(listener.port(), longest);
  DatagramRequest request = need(listener.wait(soon()));
  EXPECT_EQ(as_text(request.private_data()), longest);
  const std::string reply(kLookupReplyBytes, 'b');
  told(std::move(request).accept(*server.qp, as_bytes(reply + "b")), "rdma_accept", "136");
  // NOLINTNEXTLINE(bugprone-use-after-move): refused, it is still there
  told(std::move(request).reject(as_bytes(reply + "b")), "rdma_reject", "136");
  // NOLINTNEXTLINE(bugprone-use-after-move): refused, it is still there
  need(std::move(request).accept(*server.qp, as_bytes(reply)));
  const Asked asked = client.get();
  ASSERT_TRUE(asked.peer);
  EXPECT_EQ(as_text(asked.peer->peer_data.bytes()), reply);
}

TEST(DatagramServices, ListenOnEveryAddressWithoutADeviceYet) {
  auto listener = need(DatagramListener::listen(address_of("0.0.0.0", 0)));
  EXPECT_FALSE(listener.device());
  Node server = service_node();
  auto client = ask_later(listener.port(), "");
  need(need(listener.wait(soon())).accept(*server.qp, {}));
  EXPECT_TRUE(client.get().peer);
  EXPECT_EQ(listener.wait(soon(50)).error().code, Code::kTimeout);
}

TEST(DatagramServices, TheTypeOfServiceReachesTheAddress) {
  constexpr std::uint8_t kService = 0x68;  // DSCP 26
  Node server = service_node();
  auto listener = need(DatagramListener::listen(device_address(0)));
  auto resolver = need(DatagramResolver::resolve(device_address(listener.port()),
                                                 {.type_of_service = kService}, soon()));
  const auto pd = need(ProtectionDomain::allocate(resolver.device()));
  auto found =
      std::async(std::launch::async, [&] { return std::move(resolver).look_up(pd, {}, soon()); });
  need(need(listener.wait(soon())).accept(*server.qp, {}));
  const DatagramPeer peer = need(found.get());
  ASSERT_TRUE(peer.address.global);
  EXPECT_EQ(peer.address.global->traffic_class, kService);
}

// One channel, one thread: a listening id, a client, a server, and an id for connections on the
// same port, identified by owner.
struct Ids {
  EventChannel channel = need(EventChannel::create());
  std::shared_ptr<int> listens = std::make_shared<int>(1);
  std::shared_ptr<int> asks = std::make_shared<int>(2);
  DatagramId listener = need(DatagramId::create(channel));
  DatagramId asker = need(DatagramId::create(channel));

  Ids() {
    listener.set_owner(listens);
    asker.set_owner(asks);
    need(listener.bind(device_address(0)));
    need(listener.listen(8));
  }
  CmEvent next(rdma_cm_event_type type, const std::shared_ptr<int>& owner) {
    CmEvent event = need(channel.wait(soon()));
    EXPECT_EQ(event.type(), type) << event.name() << " " << event.status();
    EXPECT_EQ(event.owner(), owner) << event.name();
    return event;
  }
  CmEvent request(Bytes hello) {
    const auto there = device_address(listener.local_address().port());
    need(asker.resolve_address(there, nullptr, kPatienceMs));
    EXPECT_TRUE(next(RDMA_CM_EVENT_ADDR_RESOLVED, asks).is_datagram());
    need(asker.resolve_route(kPatienceMs));
    next(RDMA_CM_EVENT_ROUTE_RESOLVED, asks);
    need(asker.look_up(hello));
    return next(RDMA_CM_EVENT_CONNECT_REQUEST, listens);
  }
};

TEST(DatagramIds, ShareAChannelWithOthersInAnEventLoop) {
  Ids ids;
  CmId connections = need(CmId::create(ids.channel));
  const auto third = std::make_shared<int>(3);
  connections.set_owner(third);
  need(connections.resolve_address(device_address(ids.listener.local_address().port()), nullptr,
                                   kPatienceMs));
  EXPECT_FALSE(ids.next(RDMA_CM_EVENT_ADDR_RESOLVED, third).is_datagram());
  Node server = service_node();
  {
    CmEvent request = ids.request(as_bytes("hello"));
    EXPECT_TRUE(request.is_datagram());
    EXPECT_DEATH(std::ignore = request.take_request(), "not a connection request");
    EXPECT_DEATH(std::ignore = request.datagram_service(), "needs an event that answers a look-up");
    EXPECT_EQ(as_text(request.private_data().first(5)), "hello");
    DatagramId answers = request.take_datagram_request();
    need(answers.accept(*server.qp, as_bytes("welcome")));
  }
  const CmEvent answer = ids.next(RDMA_CM_EVENT_ESTABLISHED, ids.asks);
  EXPECT_EQ(as_text(answer.private_data().first(7)), "welcome");
  const DatagramService service = answer.datagram_service();
  EXPECT_EQ(service.qp_num, server.qp->number());
  EXPECT_EQ(service.qkey, kDatagramQkey);
  Node client(ids.asker.device());
  client.activate(service.qkey);
  const auto handle = need(AddressHandle::create(client.pd, service.address));
  client.send(handle, service.qp_num, service.qkey, "by hand");
  EXPECT_EQ(server.receive().text, "by hand");
}

TEST(DatagramIds, ARequestThatNobodyTakesIsDeclined) {
  Ids ids;
  {
    const CmEvent dropped = ids.request({});
  }
  const CmEvent declined = ids.next(RDMA_CM_EVENT_UNREACHABLE, ids.asks);
  EXPECT_EQ(declined.error().code, Code::kRejected);
}

TEST(PortSpaces, OfIpOverInfinibandAreNotOnRoce) {
  const auto told = [](const auto& refused, const char* verb) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported) << to_string(refused.error());
    EXPECT_STREQ(refused.error().call, verb);
    EXPECT_NE(to_string(refused.error()).find("InfiniBand device"), std::string::npos);
  };
  told(DatagramListener::listen(device_address(0), {}, DatagramPorts::kIpoib), "rdma_bind_addr");
  told(DatagramResolver::resolve(device_address(1), {.ports = DatagramPorts::kIpoib}, soon()),
       "rdma_resolve_addr");
}

TEST(PortSpaces, OfInfinibandMakeConnectionsApartFromTcps) {
  EventChannel channel = need(EventChannel::create());
  CmId listener = need(CmId::create(channel, ConnectionPorts::kIb));
  need(listener.bind(device_address(0)));
  need(listener.listen(8));
  const SocketAddress there = listener.local_address();
  const auto tcp = need(CmListener::listen(there)).port();
  EXPECT_EQ(tcp, there.port()) << "the same number in another space";
  const auto ask = [&](ConnectionPorts ports) {
    CmId id = need(CmId::create(channel, ports));
    need(id.resolve_address(there, nullptr, kPatienceMs));
    EXPECT_EQ(need(channel.wait(soon())).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
    need(id.resolve_route(kPatienceMs));
    EXPECT_EQ(need(channel.wait(soon())).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
    const auto pd = need(ProtectionDomain::allocate(id.device()));
    Side side(pd, kEverything);
    auto qp = need(QueuePair::create(pd, side.queue, side.queue, {}));
    need(id.to_init(qp, {}));
    need(id.connect(qp, {}, {}, {}));
    return need(channel.wait(soon())).type();
  };
  EXPECT_EQ(ask(ConnectionPorts::kTcp), RDMA_CM_EVENT_REJECTED) << "nobody listens there any more";
  EXPECT_EQ(ask(ConnectionPorts::kIb), RDMA_CM_EVENT_CONNECT_REQUEST);
}

}  // namespace
}  // namespace rkv::rdma
