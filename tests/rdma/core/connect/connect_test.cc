// Connecting by address through the connection manager, on the address in RKV_RDMA_ADDRESS.
#include "rkv/rdma/connect.h"

#include <future>

#include "tests/rdma/core/connect/device_address.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// The objects of one end, created on the context that librdmacm uses.
struct End {
  ProtectionDomain pd;
  CompletionChannel channel;
  CompletionQueue queue;
  MemoryRegion memory;

  explicit End(const Device& device)
      : pd(need(ProtectionDomain::allocate(device))),
        channel(need(CompletionChannel::create(device))),
        queue(need(CompletionQueue::create(device, {.entries = 64, .channel = &channel}))),
        memory(need(MemoryRegion::allocate(
            pd, 65536,
            AccessFlags::kLocalWrite | AccessFlags::kRemoteRead | AccessFlags::kRemoteAtomic))) {}

  PreparedQueuePair<> qp() {
    return need(QueuePair::create(pd, queue, queue, {.inline_bytes = 64}));
  }
  WorkCompletion completion() {
    std::array<WorkCompletion, 1> one;
    if (need(queue.wait(one, soon())) == 0) one[0].status = IBV_WC_GENERAL_ERR;
    return one[0];
  }
};

struct Connecting {
  std::unique_ptr<End> end;
  Result<CmConnection> link;
  PrivateData rejection;
};

Connecting connect_now(std::uint16_t port, Bytes hello,
                       const ConnectionParameters& parameters = {}) {
  Connector connector = need(Connector::resolve(device_address(port), {}, soon()));
  auto end = std::make_unique<End>(connector.device());
  PrivateData rejection;
  auto link = std::move(connector).connect(end->qp(), parameters, hello, soon(), &rejection);
  return {std::move(end), std::move(link), rejection};
}

std::future<Connecting> connect_later(std::uint16_t port, std::string hello,
                                      const ConnectionParameters& parameters = {}) {
  return std::async(std::launch::async, [port, hello = std::move(hello), parameters] {
    return connect_now(port, as_bytes(hello), parameters);
  });
}

TEST(Connecting, CarriesPrivateDataBothWaysPadded) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "hello");
  ConnectRequest request = need(listener.wait(soon()));
  EXPECT_EQ(request.private_data().size(), kConnectRequestBytes);
  EXPECT_EQ(text_of(request.private_data(), 5), "hello");
  EXPECT_EQ(request.private_data()[5], std::byte{0});
  End end(request.device());
  CmConnection server = need(std::move(request).accept(end.qp(), {}, as_bytes("welcome")));
  need(server.wait_established(soon()));
  Connecting connected = client.get();
  ASSERT_TRUE(connected.link) << to_string(connected.link.error());
  EXPECT_EQ(connected.link->peer_data.bytes().size(), kConnectReplyBytes);
  EXPECT_EQ(text_of(connected.link->peer_data.bytes(), 7), "welcome");
}

TEST(Connecting, UsesFullReadDepthOurTimersAndOurAccessFlags) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "");
  ConnectRequest request = need(listener.wait(soon()));
  const DeviceAttributes limits = need(request.device().attributes());
  EXPECT_EQ(request.peer_depths().responder, std::min(limits.max_reads_as_initiator, 254U));
  End end(request.device());
  CmConnection server = need(std::move(request).accept(
      end.qp(), {.remote_access = AccessFlags::kRemoteRead, .reads_as_responder = 8}, {}));
  need(server.wait_established(soon()));
  Connecting connected = client.get();
  ASSERT_TRUE(connected.link) << to_string(connected.link.error());
  constexpr int kMask = IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                        IBV_QP_RNR_RETRY;
  const ibv_qp_attr ours = need(connected.link->qp.query(kMask)).attributes;
  EXPECT_EQ(ours.qp_access_flags, 0U);
  EXPECT_EQ(ours.max_rd_atomic, 8);  // the two depths are swapped correctly
  EXPECT_EQ(connected.link->depths.initiator, 8);
  EXPECT_EQ(ours.min_rnr_timer, kDefaultRnrTimer.code());
  EXPECT_EQ(ours.retry_cnt, kMaxRetryCount);
  EXPECT_EQ(ours.rnr_retry, kRnrRetryForever);
  EXPECT_EQ(ours.timeout, kDefaultAckTimeout.code());
  const ibv_qp_attr theirs = need(server.qp.query(kMask)).attributes;
  EXPECT_EQ(theirs.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
  EXPECT_EQ(theirs.max_dest_rd_atomic, 8);
  EXPECT_EQ(theirs.min_rnr_timer, kDefaultRnrTimer.code());
  EXPECT_EQ(theirs.retry_cnt, kMaxRetryCount);
}

// A client that requests the longest time-out: the server would retry for hours.
TEST(Connecting, EachSideKeepsItsOwnTimeoutWhateverThePeerProposes) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = std::async(std::launch::async, [to = device_address(listener.port())] {
    Connector connector = need(Connector::resolve(
        to, {.ack_timeout = AckTimeout::from_code(AckTimeout::kMaxCode)}, soon()));
    auto end = std::make_unique<End>(connector.device());
    auto link = std::move(connector).connect(end->qp(), {.ack_timeout = AckTimeout::from_code(17)},
                                             {}, soon());
    return Connecting{std::move(end), std::move(link), {}};
  });
  ConnectRequest request = need(listener.wait(soon()));
  End end(request.device());
  CmConnection server =
      need(std::move(request).accept(end.qp(), {.ack_timeout = AckTimeout::from_code(13)}, {}));
  need(server.wait_established(soon()));
  Connecting connected = client.get();
  ASSERT_TRUE(connected.link) << to_string(connected.link.error());
  EXPECT_EQ(need(server.qp.query(IBV_QP_TIMEOUT)).attributes.timeout, 13);
  EXPECT_EQ(need(connected.link->qp.query(IBV_QP_TIMEOUT)).attributes.timeout, 17);
}

// The arguments of connect() and accept() apply, whatever the queue pair was prepared with.
TEST(Connecting, GrantsWhatIsAskedAlsoToAQueuePairThatIsInInit) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "");
  ConnectRequest request = need(listener.wait(soon()));
  End end(request.device());
  store_le<std::uint64_t>(end.memory.bytes().data(), 0xABCDEF);
  PreparedQueuePair qp = end.qp();
  need(qp.open(request.port_number()));  // grants nothing
  CmConnection server = need(std::move(request).accept(
      std::move(qp), {.remote_access = AccessFlags::kRemoteRead}, end.memory.remote().to_bytes()));
  Connecting connected = client.get();
  ASSERT_TRUE(connected.link) << to_string(connected.link.error());
  const RemoteSpan remote =
      RemoteSpan::from_bytes(connected.link->peer_data.bytes().first<RemoteSpan::kWireBytes>());
  Batch batch = connected.link->qp.batch();
  batch.read(1, OpFlags::kSignaled, connected.end->memory.local(0, 8), *remote.first(8));
  need(std::move(batch).submit());
  EXPECT_TRUE(connected.end->completion().ok());
  EXPECT_EQ(load_le<std::uint64_t>(connected.end->memory.bytes().data()), 0xABCDEFU);
}

TEST(Connecting, ReadsAndMessagesFlow) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "");
  ConnectRequest request = need(listener.wait(soon()));
  End end(request.device());
  store_le<std::uint64_t>(end.memory.bytes().data(), 0xABCDEF);
  PreparedQueuePair qp = end.qp();
  const std::array<ReceiveRequest, 1> receive = {
      {{.wr_id = 5, .buffer = end.memory.local(64, 64)}}};
  constexpr ConnectionParameters kReadable = {.remote_access = AccessFlags::kRemoteRead};
  need(request.prepare(qp, kReadable));
  need(qp.post_receives(receive));
  CmConnection server =
      need(std::move(request).accept(std::move(qp), kReadable, end.memory.remote().to_bytes()));
  Connecting connected = client.get();
  ASSERT_TRUE(connected.link) << to_string(connected.link.error());
  const RemoteSpan remote =
      RemoteSpan::from_bytes(connected.link->peer_data.bytes().first<RemoteSpan::kWireBytes>());
  Batch batch = connected.link->qp.batch();
  batch.read(1, OpFlags::kSignaled, connected.end->memory.local(0, 8), remote);
  batch.send(2, OpFlags::kSignaled | OpFlags::kFenced, inlined(as_bytes("done")));
  need(std::move(batch).submit());
  EXPECT_TRUE(connected.end->completion().ok());
  EXPECT_TRUE(connected.end->completion().ok());
  EXPECT_EQ(load_le<std::uint64_t>(connected.end->memory.bytes().data()), 0xABCDEFU);
  EXPECT_EQ(end.completion().byte_length, 4U);
}

TEST(Connecting, TwoClientsOnOneListener) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto first = connect_later(listener.port(), "1");
  auto second = connect_later(listener.port(), "2");
  std::vector<std::unique_ptr<End>> ends;
  std::vector<CmConnection> servers;
  for (int i = 0; i < 2; ++i) {
    ConnectRequest request = need(listener.wait(soon()));
    ends.push_back(std::make_unique<End>(request.device()));
    const std::string echo(text_of(request.private_data(), 1));
    servers.push_back(need(std::move(request).accept(ends.back()->qp(), {}, as_bytes(echo))));
  }
  for (CmConnection& server : servers)
    need(server.wait_established(soon()));
  const Connecting a = first.get();
  const Connecting b = second.get();
  ASSERT_TRUE(a.link && b.link);
  EXPECT_EQ(text_of(a.link->peer_data.bytes(), 1), "1");
  EXPECT_EQ(text_of(b.link->peer_data.bytes(), 1), "2");
}

TEST(Connecting, RejectCarriesItsReason) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "");
  need(need(listener.wait(soon())).reject(as_bytes("full house")));
  const Connecting refused = client.get();
  ASSERT_FALSE(refused.link);
  EXPECT_EQ(refused.link.error().code, Code::kRejected);
  EXPECT_EQ(text_of(refused.rejection.bytes(), 10), "full house");
}

TEST(Connecting, ARequestNobodyAnswersIsDeclined) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "");
  {
    const ConnectRequest dropped = need(listener.wait(soon()));
  }
  const Connecting refused = client.get();
  ASSERT_FALSE(refused.link);
  EXPECT_EQ(refused.link.error().code, Code::kRejected);
}

TEST(Connecting, AClosedPortSaysThatNobodyListens) {
  std::uint16_t port = 0;
  {
    port = need(CmListener::listen(device_address(0))).port();
  }
  const Connecting refused = connect_now(port, {});
  ASSERT_FALSE(refused.link);
  EXPECT_EQ(refused.link.error().code, Code::kUnreachable);
  EXPECT_NE(to_string(refused.link.error()).find("listens"), std::string::npos);
}

TEST(Connecting, AServerThatDoesNotAnswerEndsWithTheDeadline) {
  const CmListener listener = need(CmListener::listen(device_address(0)));
  Connector connector = need(Connector::resolve(device_address(listener.port()), {}, soon()));
  End end(connector.device());
  const SteadyClock clock;
  const Nanos start = clock.now();
  const auto link = std::move(connector).connect(end.qp(), {}, {}, soon(200));
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().code, Code::kTimeout);
  EXPECT_GE(clock.now() - start, 190 * kNanosPerMs);
}

TEST(Connecting, TooMuchPrivateDataIsRefusedBeforeItIsSent) {
  const CmListener listener = need(CmListener::listen(device_address(0)));
  const std::array<std::byte, 57> longer{};
  const Connecting refused = connect_now(listener.port(), longer);
  ASSERT_FALSE(refused.link);
  EXPECT_EQ(refused.link.error().code, Code::kInvalidArgument);
  EXPECT_NE(to_string(refused.link.error()).find("56"), std::string::npos);
}

TEST(Connecting, TheLongestPrivateDataArrivesWholeAndAByteMoreIsRefused) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  const std::string hello(kConnectRequestBytes, 'a');
  const std::string reply(kConnectReplyBytes, 'b');
  const std::string reason(kRejectBytes, 'c');
  const auto told = [](const Status& refused, const char* verb, const char* most) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_STREQ(refused.error().call, verb);
    EXPECT_NE(to_string(refused.error()).find(most), std::string::npos);
  };
  auto first = connect_later(listener.port(), hello);
  ConnectRequest request = need(listener.wait(soon()));
  EXPECT_EQ(as_text(request.private_data()), hello);
  End end(request.device());
  CmConnection server = need(std::move(request).accept(end.qp(), {}, as_bytes(reply)));
  need(server.wait_established(soon()));
  const Connecting connected = first.get();
  ASSERT_TRUE(connected.link) << to_string(connected.link.error());
  EXPECT_EQ(as_text(connected.link->peer_data.bytes()), reply);

  auto second = connect_later(listener.port(), hello);
  ConnectRequest other = need(listener.wait(soon()));
  const auto longer = std::move(other).accept(end.qp(), {}, as_bytes(reply + "b"));
  ASSERT_FALSE(longer);
  told(std::unexpected(longer.error()), "rdma_accept", "196");
  // NOLINTBEGIN(bugprone-use-after-move): refused, it is still there
  told(std::move(other).reject(as_bytes(reason + "c")), "rdma_reject", "148");
  need(std::move(other).reject(as_bytes(reason)));
  // NOLINTEND(bugprone-use-after-move)
  const Connecting refused = second.get();
  ASSERT_FALSE(refused.link);
  EXPECT_EQ(refused.link.error().code, Code::kRejected);
  EXPECT_EQ(as_text(refused.rejection.bytes()), reason);
}

TEST(Connecting, RetriesOfMoreThanThreeBitsAreRefusedBeforeAnythingIsSent) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  const Connecting never = connect_now(listener.port(), {}, {.rnr_retry = 8});
  ASSERT_FALSE(never.link);
  EXPECT_STREQ(never.link.error().text, "rnr_retry is 0 to 7");
  EXPECT_FALSE(need(listener.next()));
  auto client = connect_later(listener.port(), "");
  ConnectRequest request = need(listener.wait(soon()));
  End end(request.device());
  const auto server = std::move(request).accept(end.qp(), {.retry_count = 8}, {});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Code::kInvalidArgument);
  EXPECT_STREQ(server.error().text, "retry_count is 0 to 7");
  // NOLINTNEXTLINE(bugprone-use-after-move): refused, it is still there
  need(std::move(request).reject({}));
  EXPECT_FALSE(client.get().link);
}

TEST(Listening, ATakenPortIsAConflictAndAForeignAddressHasNoDevice) {
  const CmListener listener = need(CmListener::listen(device_address(0)));
  EXPECT_NE(listener.port(), 0);
  const auto second = CmListener::listen(device_address(listener.port()));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kConflict);
  const auto foreign = CmListener::listen(address_of("203.0.113.9", 0));
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, Code::kNoDevice) << to_string(foreign.error());
}

// Posts two receives, which no message will take.
void post_two(QueuePair& qp, const End& end) {
  for (const std::uint64_t wr_id : {11U, 12U}) {
    const ReceiveRequest receive{.wr_id = wr_id, .buffer = end.memory.local(0, 64)};
    need(qp.post_receives({&receive, 1}));
  }
}
void expect_two_flushed(End& end) {
  for (const std::uint64_t wr_id : {11U, 12U}) {
    const WorkCompletion one = end.completion();
    EXPECT_EQ(one.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(one.wr_id, wr_id);
  }
}

// "Its": of the side that leaves. The peer's work ends when the peer leaves, too.
TEST(Leaving, ThePeerIsToldAndItsWorkIsFlushed) {
  CmListener listener = need(CmListener::listen(device_address(0)));
  auto client = connect_later(listener.port(), "");
  ConnectRequest request = need(listener.wait(soon()));
  End end(request.device());
  CmConnection server = need(std::move(request).accept(end.qp(), {}, {}));
  post_two(server.qp, end);
  {
    Connecting connected = client.get();
    ASSERT_TRUE(connected.link);
    post_two(connected.link->qp, *connected.end);
    // check() may read the event of the established connection; wait_established() then knows it.
    ASSERT_TRUE(need(wait_readable(server.channel.fd(), soon())));
    need(server.check());
    need(server.wait_established(soon()));
    need(connected.link->disconnect());
    need(connected.link->disconnect());  // a second call is not an error
    expect_two_flushed(*connected.end);
  }
  ASSERT_TRUE(need(wait_readable(server.channel.fd(), soon())));
  const Status gone = server.check();
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Code::kDisconnected);
  EXPECT_EQ(server.check().error().code, Code::kDisconnected) << "reported once, true ever after";
  EXPECT_EQ(server.wait_established(soon()).error().code, Code::kDisconnected);
  need(server.disconnect());
  expect_two_flushed(end);
}

TEST(Leaving, AnEventKeepsItsIdAliveUntilItIsAcknowledged) {
  EventChannel channel = need(EventChannel::create());
  std::optional<CmId> id = need(CmId::create(channel));
  const auto owner = std::make_shared<int>(7);
  id->set_owner(owner);
  need(id->resolve_address(device_address(1), nullptr, 1000));
  const CmEvent event = need(channel.wait(soon()));
  EXPECT_EQ(event.type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(event.owner(), owner);
  id.reset();  // would block forever if the event did not hold the id
  EXPECT_STREQ(event.name(), "RDMA_CM_EVENT_ADDR_RESOLVED");
}

}  // namespace
}  // namespace rkv::rdma
