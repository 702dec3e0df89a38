// The connection manager by hand: both sides in one thread's event loop, options of ids, addresses
// that appear late, and waits that end at their deadline.
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <optional>
#include <string>

#include "rkv/rdma/connect.h"
#include "tests/rdma/core/connect/device_address.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

struct Half {
  ProtectionDomain pd;
  Side side;
  PreparedQueuePair<> prepared;

  explicit Half(const Device& device)
      : pd(need(ProtectionDomain::allocate(device))),
        side(pd, kEverything),
        prepared(need(QueuePair::create(pd, side.queue, side.queue, {.inline_bytes = 64}))) {}
  QueuePair ready() { return need(std::move(prepared).into_queue_pair()); }
};

// The next event of the channel, which must have this type and the id that `owner` names.
CmEvent next(EventChannel& channel, rdma_cm_event_type type, const std::shared_ptr<int>& owner) {
  CmEvent event = need(channel.wait(soon()));
  EXPECT_EQ(event.type(), type) << event.name();
  EXPECT_EQ(event.owner(), owner) << event.name();
  return event;
}

constexpr ConnectionParameters kOpen = {.remote_access = AccessFlags::kRemoteWrite};

// One channel, one thread: a listening id and the two ends of a connection, identified by owner.
struct ByHand {
  EventChannel channel = need(EventChannel::create());
  std::shared_ptr<int> listens = std::make_shared<int>(1);
  std::shared_ptr<int> calls = std::make_shared<int>(2);
  std::shared_ptr<int> answers = std::make_shared<int>(3);
  CmId listener = need(CmId::create(channel));
  CmId caller = need(CmId::create(channel));
  std::optional<CmId> answerer;
  std::optional<Half> client;
  std::optional<Half> server;

  ByHand() {
    listener.set_owner(listens);
    caller.set_owner(calls);
    need(listener.bind(device_address(0)));
    need(listener.listen(8));
  }

  // Runs until the request, which contains `hello`, is at the listening id.
  CmEvent call(Bytes hello, ReadDepths depths) {
    const auto there = device_address(listener.local_address().port());
    need(caller.resolve_address(there, nullptr, kPatienceMs));
    next(channel, RDMA_CM_EVENT_ADDR_RESOLVED, calls);
    need(caller.resolve_route(kPatienceMs));
    next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, calls);
    client.emplace(caller.device());
    need(caller.to_init(client->prepared, kOpen));
    need(caller.connect(client->prepared, kOpen, depths, hello));
    return next(channel, RDMA_CM_EVENT_CONNECT_REQUEST, listens);
  }
  void answer(CmEvent request, ReadDepths depths, Bytes welcome) {
    answerer = request.take_request();
    answerer->set_owner(answers);
    server.emplace(answerer->device());
    need(answerer->to_init(server->prepared, kOpen));
    need(answerer->to_ready(server->prepared, kOpen, depths));
    need(answerer->accept(server->prepared, kOpen, depths, welcome));
  }
};

// A caller that names a depth gets an error if the peer grants none; a caller that leaves it to the
// device sees 0.
TEST(ByHandConnections, APeerThatGrantsNoReadsIsNamed) {
  for (const std::uint8_t asked : {std::uint8_t{0}, std::uint8_t{4}}) {
    ByHand both;
    auto dialled = std::async(std::launch::async, [&]() -> Result<ReadDepths> {
      Connector connector = need(
          Connector::resolve(device_address(both.listener.local_address().port()), {}, soon()));
      Half half(connector.device());
      RKV_ASSIGN_OR_RETURN(const CmConnection made,
                           std::move(connector).connect(std::move(half.prepared),
                                                        {.reads_as_initiator = asked}, {}, soon()));
      return made.depths;
    });
    both.answer(next(both.channel, RDMA_CM_EVENT_CONNECT_REQUEST, both.listens), {}, {});
    const auto agreed = dialled.get();
    EXPECT_EQ(agreed.has_value(), asked == 0);
    if (agreed) {
      EXPECT_EQ(*agreed, ReadDepths{});
    } else {
      EXPECT_EQ(agreed.error().code, Code::kUnsupported);
      EXPECT_NE(to_string(agreed.error()).find("responder_resources"), std::string::npos);
    }
  }
}

// Nothing blocks, so one thread is both sides.
TEST(ByHandConnections, ConnectorAndListenerInSteps) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  Connector connector = need(Connector::start(device_address(listener.port()), {}, kPatienceMs));
  while (!need(connector.try_resolve()))
    ASSERT_TRUE(need(wait_readable(connector.fd(), soon())));
  Half client(connector.device());
  need(connector.start_connect(std::move(client.prepared), kOpen, as_bytes("hello")));
  EXPECT_FALSE(need(connector.try_connect()));
  ConnectRequest request = need(listener.wait(soon()));
  EXPECT_EQ(text_of(request.private_data(), 5), "hello");
  EXPECT_FALSE(need(connector.try_connect()));  // the request is taken, and not answered yet
  Half server(request.device());
  CmConnection passive =
      need(std::move(request).accept(std::move(server.prepared), kOpen, as_bytes("welcome")));
  EXPECT_FALSE(need(passive.try_established()));
  auto active = need(connector.try_connect());
  while (!active) {
    ASSERT_TRUE(need(wait_readable(connector.fd(), soon())));
    if (auto made = need(connector.try_connect())) active.emplace(std::move(*made));
  }
  EXPECT_EQ(text_of(active->peer_data.bytes(), 7), "welcome");
  while (!need(passive.try_established()))
    ASSERT_TRUE(need(wait_readable(passive.channel.fd(), soon())));
  EXPECT_TRUE(passive.established);
  need(active->disconnect());
  while (passive.check())
    ASSERT_TRUE(need(wait_readable(passive.channel.fd(), soon())));
  EXPECT_TRUE(passive.peer_left);
}

TEST(ByHandConnections, OneThreadIsBothSides) {
  ByHand both;
  CmEvent request = both.call(as_bytes("hello"), {.initiator = 2, .responder = 4});
  EXPECT_EQ(as_text(request.private_data().first(5)), "hello");
  // The depths are swapped for this side: it responds to the READs that the peer initiates.
  EXPECT_EQ(request.peer_depths(), (ReadDepths{.initiator = 4, .responder = 2}));
  both.answer(std::move(request), {.initiator = 4, .responder = 2}, as_bytes("welcome"));
  {
    const CmEvent response = next(both.channel, RDMA_CM_EVENT_CONNECT_RESPONSE, both.calls);
    EXPECT_EQ(as_text(response.private_data().first(7)), "welcome");
    EXPECT_EQ(response.peer_depths(), (ReadDepths{.initiator = 2, .responder = 4}));
  }
  need(both.caller.to_ready(both.client->prepared, kOpen, {.initiator = 2, .responder = 4}));
  need(both.caller.establish());
  next(both.channel, RDMA_CM_EVENT_ESTABLISHED, both.answers);
  QueuePair client = both.client->ready();
  QueuePair server = both.server->ready();
  constexpr int kDepths = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
  const ibv_qp_attr of_client = need(client.query(kDepths)).attributes;
  const ibv_qp_attr of_server = need(server.query(kDepths)).attributes;
  EXPECT_EQ(of_client.max_rd_atomic, 2);
  EXPECT_EQ(of_client.max_dest_rd_atomic, 4);
  EXPECT_EQ(of_server.max_rd_atomic, 4);
  EXPECT_EQ(of_server.max_dest_rd_atomic, 2);

  // The passive side writes into the active side's memory, and vice versa.
  const auto write = [](QueuePair& qp, Half& from, Half& to, std::string_view text) {
    Batch batch = qp.batch();
    batch.write(1, OpFlags::kSignaled, inlined(as_bytes(text)),
                *to.side.memory.remote().subspan(64, text.size()));
    need(std::move(batch).submit());
    EXPECT_TRUE(from.side.completion().ok());
    EXPECT_EQ(std::memcmp(to.side.at(64), text.data(), text.size()), 0);
  };
  write(server, *both.server, *both.client, "from the server");
  write(client, *both.client, *both.server, "from the client");
  need(both.caller.disconnect());
  next(both.channel, RDMA_CM_EVENT_DISCONNECTED, both.answers);
}

// The active side's last message of the handshake may be lost, or arrive after its first data. Then
// the queue pair's event replaces it.
TEST(ByHandConnections, StandOnceDataHasCome) {
  ByHand both;
  both.answer(both.call({}, {}), {}, {});
  next(both.channel, RDMA_CM_EVENT_CONNECT_RESPONSE, both.calls);
  EXPECT_FALSE(need(both.channel.next())) << "the active side has not said its last word";
  need(both.answerer->notify(IBV_EVENT_COMM_EST));
  next(both.channel, RDMA_CM_EVENT_ESTABLISHED, both.answers);
}

TEST(ByHandConnections, ARequestThatNobodyTakesIsDeclined) {
  ByHand both;
  {
    const CmEvent dropped = both.call(as_bytes("hello"), {});
  }
  const CmEvent declined = next(both.channel, RDMA_CM_EVENT_REJECTED, both.calls);
  EXPECT_EQ(declined.error().code, Code::kRejected);
}

TEST(Listening, WaitsEndWithTheirDeadline) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  const SteadyClock clock;
  const Nanos start = clock.now();
  const auto nobody = listener.wait(soon(100));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, Code::kTimeout);
  EXPECT_GE(clock.now() - start, 90 * kNanosPerMs);
}

// A client that does not finish its handshake.
TEST(Listening, AcceptedIsNotEstablished) {
  ByHand both;
  CmListener listener = need(CmListener::listen(device_address(0)));
  need(both.caller.resolve_address(device_address(listener.port()), nullptr, kPatienceMs));
  next(both.channel, RDMA_CM_EVENT_ADDR_RESOLVED, both.calls);
  need(both.caller.resolve_route(kPatienceMs));
  next(both.channel, RDMA_CM_EVENT_ROUTE_RESOLVED, both.calls);
  Half client(both.caller.device());
  need(both.caller.to_init(client.prepared, {}));
  need(both.caller.connect(client.prepared, {}, {}, {}));
  ConnectRequest request = need(listener.wait(soon()));
  Half server(request.device());
  CmConnection link = need(std::move(request).accept(std::move(server.prepared), {}, {}));
  const Status waited = link.wait_established(soon(50));
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Code::kTimeout);
}

TEST(IdOptions, TheTypeOfServiceReachesTheQueuePair) {
  constexpr std::uint8_t kService = 0x68;  // DSCP 26
  CmListener listener = need(CmListener::listen(device_address(0), ListenOptions{}));
  auto connector = need(
      Connector::resolve(device_address(listener.port()), {.type_of_service = kService}, soon()));
  Half client(connector.device());
  auto connected = std::async(std::launch::async, [&] {
    return std::move(connector).connect(std::move(client.prepared), {}, {}, soon());
  });
  ConnectRequest request = need(listener.wait(soon()));
  Half server(request.device());
  CmConnection link = need(std::move(request).accept(std::move(server.prepared), {}, {}));
  CmConnection ours = need(connected.get());
  EXPECT_EQ(need(ours.qp.query(IBV_QP_AV)).attributes.ah_attr.grh.traffic_class, kService);
}

// Each side marks its own packets, whatever type of service the other asked for.
TEST(IdOptions, PathParametersReplaceWhatTheConnectionManagerHas) {
  constexpr std::uint8_t kService = 0x68;
  CmListener listener = need(CmListener::listen(device_address(0), ListenOptions{}));
  auto connector = need(
      Connector::resolve(device_address(listener.port()), {.type_of_service = kService}, soon()));
  Half client(connector.device());
  auto connected = std::async(std::launch::async, [&] {
    return std::move(connector).connect(std::move(client.prepared), {.path = {.flow_label = 6}}, {},
                                        soon());
  });
  ConnectRequest request = need(listener.wait(soon()));
  Half server(request.device());
  CmConnection theirs = need(std::move(request).accept(
      std::move(server.prepared), {.path = {.traffic_class = 0x20, .flow_label = 7}}, {}));
  CmConnection ours = need(connected.get());
  const auto route = [](CmConnection& link) {
    return need(link.qp.query(IBV_QP_AV)).attributes.ah_attr.grh;
  };
  EXPECT_EQ(route(ours).traffic_class, kService);
  EXPECT_EQ(route(ours).flow_label, 6U);
  EXPECT_EQ(route(theirs).traffic_class, 0x20);
  EXPECT_EQ(route(theirs).flow_label, 7U);
}

TEST(IdOptions, AnAddressIsSharedByThoseWhoAllowIt) {
  EventChannel channel = need(EventChannel::create());
  const auto bind_two = [&](bool allowed) {
    CmId one = need(CmId::create(channel));
    CmId two = need(CmId::create(channel));
    need(one.set_reuse_address(allowed));
    need(two.set_reuse_address(allowed));
    need(one.bind(device_address(0)));
    return two.bind(one.local_address());
  };
  need(bind_two(true));
  EXPECT_EQ(bind_two(false).error().code, Code::kConflict);
}

TEST(IdOptions, AWildcardIsOfOneFamilyOrOfBoth) {
  const auto listen_on_both = [](bool only) {
    const auto six =
        need(CmListener::listen(address_of("::", 0), ListenOptions{.ipv6_only = only}));
    const auto four = CmListener::listen(address_of("0.0.0.0", six.port()));
    return four ? Status{} : Status(std::unexpected(four.error()));
  };
  need(listen_on_both(true));
  EXPECT_EQ(listen_on_both(false).error().code, Code::kConflict);
  // A port that is taken on the wildcard address is taken on each address: the error does not
  // mention interfaces.
  const auto all = need(CmListener::listen(address_of("0.0.0.0", 0)));
  const auto one = CmListener::listen(device_address(all.port()), ListenOptions{.until = soon()});
  ASSERT_FALSE(one);
  EXPECT_EQ(one.error().code, Code::kConflict) << to_string(one.error());
}

// A second address of the device's interface, which this test may add (as root) and removes again.
class SecondAddress {
 public:
  explicit SecondAddress(const std::string& interface) {
    const std::string alias = interface + ":rkv";
    std::memcpy(request_.ifr_name, alias.c_str(), std::min<std::size_t>(alias.size(), 15));
  }
  SecondAddress(const SecondAddress&) = delete;
  SecondAddress& operator=(const SecondAddress&) = delete;
  ~SecondAddress() {
    ioctl(socket_, SIOCGIFFLAGS, &request_);
    request_.ifr_flags = static_cast<short>(request_.ifr_flags & ~IFF_UP);
    ioctl(socket_, SIOCSIFFLAGS, &request_);
    close(socket_);
  }
  void set(const SocketAddress& address) {
    std::memcpy(&request_.ifr_addr, address.raw(), sizeof(sockaddr_in));
    ASSERT_EQ(ioctl(socket_, SIOCSIFADDR, &request_), 0)
        << "this test sets an address, which takes CAP_NET_ADMIN: " << std::strerror(errno);
  }

 private:
  int socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request_{};
};

TEST(Listening, AnAddressMayTurnUpUntilTheDeadline) {
  const SocketAddress late = address_of("198.51.100.77", 0);
  const Device device = need(Device::open_first_active());
  const GidEntry gid = need(device.routable_gid(need(device.first_active_port())));
  SecondAddress second(gid.netdev);
  EXPECT_FALSE(CmListener::listen(late)) << "it is not there yet";
  EXPECT_FALSE(CmListener::listen(late, ListenOptions{.until = soon(50)}));
  auto listening = std::async(
      std::launch::async, [&] { return CmListener::listen(late, ListenOptions{.until = soon()}); });
  ASSERT_NO_FATAL_FAILURE(second.set(late));
  const auto listener = listening.get();
  ASSERT_TRUE(listener) << to_string(listener.error());
  EXPECT_EQ(listener->address().host(), "198.51.100.77");
  EXPECT_NE(listener->port(), 0);
}

}  // namespace
}  // namespace rkv::rdma
