// Bring-up by hand, unreliable connections, datagrams, and the flags for ordering and solicited
// events.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "rkv/rdma/queue_pair.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr QueuePairOptions kOptions = {.send_length = 64, .receive_length = 64, .inline_bytes = 64};

// Two queue pairs of one transport, in the stage before they are connected, with receives posted.
template <TransportType T>
struct Two {
  QueuePairOptions options = kOptions;
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  std::uint8_t port = need(device.first_active_port());
  GidEntry gid = need(device.routable_gid(port));
  Side client{pd, kEverything};
  Side server{pd, kEverything};
  PreparedQueuePair<T> a = need(BasicQueuePair<T>::create(pd, client.queue, client.queue, options));
  PreparedQueuePair<T> b = need(BasicQueuePair<T>::create(pd, server.queue, server.queue, options));
  Endpoint of_a = need(a.endpoint(port, gid));
  Endpoint of_b = need(b.endpoint(port, gid));

  explicit Two(const QueuePairOptions& with = kOptions) : options(with) {}
};

constexpr std::size_t kSlot = 65536;  // size of each receive buffer

template <class Pair>
void post_receive(Pair& pair, Side& side, std::uint64_t number) {
  const std::array<ReceiveRequest, 1> one = {
      {{.wr_id = number, .buffer = side.memory.local(number * kSlot, kSlot)}}};
  need(pair.post_receives(one));
}

std::string text_at(Side& side, std::size_t offset, std::size_t length) {
  return {reinterpret_cast<const char*>(side.at(offset)), length};
}
void write_at(Side& side, std::size_t offset, std::string_view text) {
  std::memcpy(side.at(offset), text.data(), text.size());
}

template <TransportType T, class Post>
Status post(BasicQueuePair<T>& pair, Post post) {
  auto batch = pair.batch();
  post(batch);
  return std::move(batch).submit();
}

TEST(PreparedQueuePairs, TakeReceivesBeforeTheyAreConnected) {
  Two<Rc> two;
  EXPECT_EQ(need(two.b.state()), IBV_QPS_INIT);
  post_receive(two.b, two.server, 1);
  EXPECT_EQ(std::move(two.b).into_queue_pair().error().code, Code::kInvalidArgument)
      << "what is in INIT cannot be used";
  QueuePair b = need(std::move(two.b).handshake(two.of_a));
  QueuePair a = need(std::move(two.a).handshake(two.of_b));
  need(post(a,
            [&](Batch& batch) { batch.send(7, OpFlags::kSignaled, inlined(as_bytes("hello"))); }));
  EXPECT_TRUE(two.client.completion().ok());
  EXPECT_EQ(two.server.completion().byte_length, 5U);
  EXPECT_EQ(text_at(two.server, kSlot, 5), "hello");
}

TEST(PreparedQueuePairs, MayBeConnectedToThemselves) {
  Two<Rc> two;
  post_receive(two.a, two.client, 1);
  QueuePair qp = need(std::move(two.a).handshake(two.of_a, {.remote_access = kEverything}));
  EXPECT_EQ(need(qp.query(IBV_QP_DEST_QPN)).attributes.dest_qp_num, qp.number());
  write_at(two.client, 0, "to myself");
  need(post(qp, [&](Batch& batch) {
    batch.send(7, OpFlags::kSignaled, two.client.memory.local(0, 9));
    batch.read(8, OpFlags::kSignaled, two.client.memory.local(100, 4),
               *two.client.memory.remote().subspan(3, 4));
  }));
  const auto done = two.client.completions(3);
  for (const WorkKind kind : {WorkKind::kSend, WorkKind::kRead, WorkKind::kReceive})
    EXPECT_EQ(std::ranges::count(done, kind, &WorkCompletion::kind), 1);
  EXPECT_EQ(text_at(two.client, kSlot, 9), "to myself");
  EXPECT_EQ(text_at(two.client, 100, 4), "myse");
}

TEST(PreparedQueuePairs, MayCompleteSendsAndReceivesInTwoQueues) {
  Two<Rc> two;
  auto prepared = need(QueuePair::create(two.pd, two.client.queue, two.server.queue, kOptions));
  const Endpoint self = need(prepared.endpoint(two.port, two.gid));
  post_receive(prepared, two.server, 1);
  QueuePair qp = need(std::move(prepared).handshake(self));
  need(post(qp,
            [&](Batch& batch) { batch.send(7, OpFlags::kSignaled, inlined(as_bytes("hello"))); }));
  EXPECT_EQ(two.client.completion().kind, WorkKind::kSend);
  EXPECT_EQ(two.server.completion().kind, WorkKind::kReceive);
  std::array<WorkCompletion, 1> none;
  EXPECT_EQ(need(two.client.queue.poll(none)) + need(two.server.queue.poll(none)), 0U);
}

TEST(PreparedQueuePairs, AreStillThereAfterAHandshakeThatFailed) {
  Two<Rc> two;
  const auto text = [&](const ConnectionParameters& parameters) {
    const auto qp = std::move(two.a).handshake(two.of_b, parameters);
    EXPECT_EQ(qp ? Code::kInternal : qp.error().code, Code::kInvalidArgument);
    return std::string(qp ? "" : qp.error().text);
  };
  EXPECT_EQ(text({.retry_count = 8}), "retry_count is 0 to 7");
  EXPECT_EQ(text({.rnr_retry = 8}), "rnr_retry is 0 to 7");
  EXPECT_NE(text({.reads_as_responder = 1}).find("reads_as_responder"), std::string::npos);
  EXPECT_EQ(two.a.endpoint(0, two.gid).error().code, Code::kInvalidArgument);
  EXPECT_EQ(two.a.endpoint(200, two.gid).error().code, Code::kInvalidArgument);
  GidEntry foreign = two.gid;
  foreign.port = 2;
  EXPECT_EQ(two.a.endpoint(two.port, foreign).error().code, Code::kInvalidArgument);
  const QueuePair a = need(std::move(two.a).handshake(two.of_b, {.retry_count = 3}));
  EXPECT_EQ(need(a.query(IBV_QP_RETRY_CNT)).attributes.retry_cnt, 3);
}

TEST(PreparedQueuePairs, AgreeOnMtuAndReadDepth) {
  Two<Rc> two;
  const Endpoint shallow =
      need(two.b.endpoint(two.port, two.gid, {.initiator = 2, .responder = 4}));
  Endpoint small = shallow;
  small.mtu = Mtu::k512;
  const QueuePair a = need(std::move(two.a).handshake(small));
  const ibv_qp_attr found =
      need(a.query(IBV_QP_PATH_MTU | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC))
          .attributes;
  EXPECT_EQ(found.path_mtu, IBV_MTU_512);
  EXPECT_EQ(found.max_rd_atomic, 4);
  EXPECT_EQ(found.max_dest_rd_atomic, 2);
}

TEST(PreparedQueuePairs, CanBeBroughtUpByHand) {
  Two<Uc> two;
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = IBV_MTU_1024;
  receive.dest_qp_num = two.of_b.qp_num;
  receive.rq_psn = two.of_b.packet_sequence.number();
  const Route route = need(choose_route(two.port, two.gid, two.of_a, two.of_b));
  receive.ah_attr = need(route.address.to_verbs());
  need(two.a.modify(receive,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.sq_psn = two.of_a.packet_sequence.number();
  need(two.a.modify(send, IBV_QP_STATE | IBV_QP_SQ_PSN));
  post_receive(two.b, two.server, 0);
  auto a = need(std::move(two.a).into_queue_pair());
  const auto b = need(std::move(two.b).handshake(two.of_a));
  need(post(a,
            [&](auto& batch) { batch.send(7, OpFlags::kSignaled, inlined(as_bytes("by hand"))); }));
  EXPECT_TRUE(two.client.completion().ok());
  EXPECT_EQ(two.server.completion().byte_length, 7U);
}

TEST(PreparedQueuePairs, BeginAgainAfterAReset) {
  Two<Rc> two;
  post_receive(two.a, two.client, 1);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RESET;
  need(two.a.modify(attributes, IBV_QP_STATE));
  EXPECT_EQ(need(two.a.state()), IBV_QPS_RESET);
  const Endpoint self = need(two.a.endpoint(two.port, two.gid));
  EXPECT_EQ(need(two.a.state()), IBV_QPS_INIT);
  post_receive(two.a, two.client, 2);
  QueuePair qp = need(std::move(two.a).handshake(self));
  need(post(qp, [&](Batch& batch) { batch.send(7, OpFlags::kNone, inlined(as_bytes("again"))); }));
  EXPECT_EQ(two.client.completion().wr_id, 2U) << "the receive before the reset is forgotten";
  EXPECT_EQ(text_at(two.client, 2 * kSlot, 5), "again");
}

TEST(RouteReports, ExplainARouteThatFails) {
  Two<Rc> two;
  Endpoint nowhere = two.of_b;
  nowhere.gid = {0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  const auto qp = std::move(two.a).handshake(nowhere);
  ASSERT_FALSE(qp);
  EXPECT_EQ(qp.error().code, Code::kUnreachable) << to_string(qp.error());
  EXPECT_STREQ(qp.error().call, "ibv_modify_qp");
  const std::string text = need(two.a.explain_route(nowhere)).to_string();
  EXPECT_NE(text.find("problem: our GID"), std::string::npos) << text;
  EXPECT_NE(text.find("4791"), std::string::npos) << text;
  EXPECT_TRUE(need(two.a.explain_route(two.of_b)).problems.empty());
}

TEST(UnreliableConnections, CarryMessagesOfManyPackets) {
  Two<Uc> two;
  post_receive(two.b, two.server, 1);
  post_receive(two.b, two.server, 2);
  auto b = need(std::move(two.b).handshake(two.of_a));
  auto a = need(std::move(two.a).handshake(two.of_b));
  const std::string large(50'000, 'x');
  write_at(two.client, 0, large);
  need(post(a, [&](auto& batch) {
    batch.send(1, OpFlags::kSignaled, two.client.memory.local(0, large.size()));
    batch.op(2).signaled().immediate(0xCAFE).send(two.client.memory.local(0, 3));
  }));
  EXPECT_EQ(two.client.completions(2).size(), 2U);
  const auto received = two.server.completions(2);
  ASSERT_EQ(received.size(), 2U);
  EXPECT_EQ(received[0].byte_length, large.size());
  EXPECT_EQ(text_at(two.server, kSlot, large.size()), large);
  EXPECT_EQ(received[1].immediate, 0xCAFEU);
}

TEST(UnreliableConnections, WriteAndTellThePeer) {
  Two<Uc> two;
  post_receive(two.b, two.server, 1);
  EXPECT_EQ(std::move(two.b)
                .handshake(two.of_a, {.remote_access = AccessFlags::kRemoteRead})
                .error()
                .code,
            Code::kInvalidArgument);
  auto b = need(std::move(two.b).handshake(two.of_a, {.remote_access = AccessFlags::kRemoteWrite}));
  auto a = need(std::move(two.a).handshake(two.of_b));
  write_at(two.client, 0, "written");
  const RemoteSpan remote = two.server.memory.remote();
  need(post(a, [&](auto& batch) {
    batch.write(1, OpFlags::kNone, two.client.memory.local(0, 7), *remote.subspan(0, 7));
    batch.write(2, OpFlags::kNone, inlined(as_bytes("inline")), *remote.subspan(100, 6));
    batch.op(3).signaled().immediate(42).write(two.client.memory.local(0, 7),
                                               *remote.subspan(200, 7));
  }));
  EXPECT_TRUE(two.client.completion().ok());
  const WorkCompletion told = two.server.completion();
  EXPECT_EQ(told.kind, WorkKind::kReceiveOfWrite);
  EXPECT_EQ(told.immediate, 42U);
  EXPECT_EQ(text_at(two.server, 0, 7), "written");
  EXPECT_EQ(text_at(two.server, 100, 6), "inline");
  EXPECT_EQ(text_at(two.server, 200, 7), "written");
}

// A completion only says that the message was sent. The sender does not learn that no receive was
// posted; RC would wait for a receive.
TEST(UnreliableConnections, LoseAMessageThatNobodyReceives) {
  Two<Uc> two;
  auto b = need(std::move(two.b).handshake(two.of_a, {.remote_access = AccessFlags::kRemoteWrite}));
  auto a = need(std::move(two.a).handshake(two.of_b));
  // Packets arrive in order: when the bytes of the WRITE are there, the message has been dropped.
  const std::atomic_ref<std::byte> written(*two.server.at(0));
  need(post(a, [&](auto& batch) {
    batch.send(1, OpFlags::kSignaled, inlined(as_bytes("lost")));
    batch.write(2, OpFlags::kSignaled, inlined(as_bytes("x")),
                *two.server.memory.remote().subspan(0, 1));
  }));
  for (const WorkCompletion& one : two.client.completions(2))
    EXPECT_TRUE(one.ok());
  for (const Deadline end = soon(); written.load() == std::byte{};)
    ASSERT_FALSE(end.passed()) << "the WRITE did not arrive";
  post_receive(b, two.server, 1);
  post_receive(b, two.server, 2);
  need(post(a,
            [](auto& batch) { batch.send(3, OpFlags::kSignaled, inlined(as_bytes("received"))); }));
  EXPECT_TRUE(two.client.completion().ok());
  EXPECT_EQ(two.server.completion().byte_length, 8U);
  EXPECT_EQ(text_at(two.server, kSlot, 8), "received");
  std::array<WorkCompletion, 1> none;
  EXPECT_EQ(need(two.server.queue.poll(none)), 0U);
}

// One completion of a datagram, with its source.
ibv_wc datagram_completion(Side& side) {
  const Deadline deadline = soon();
  ibv_wc out{};
  out.status = IBV_WC_GENERAL_ERR;
  while (ibv_poll_cq(side.queue.raw(), 1, &out) == 0) {
    if (deadline.passed()) {
      ADD_FAILURE() << "no datagram came";
      break;
    }
  }
  return out;
}

struct ActiveTwo : Two<Ud> {
  using Two::Two;
  BasicQueuePair<Ud> sender = need(std::move(a).activate(of_a.qkey));
  BasicQueuePair<Ud> receiver = need(std::move(b).activate(of_b.qkey));
  AddressHandle to_b =
      need(AddressHandle::create(pd, need(choose_route(port, gid, of_a, of_b)).address));
};

TEST(Datagrams, ArriveBehindTheirRouteAndCanBeAnswered) {
  ActiveTwo two;
  post_receive(two.receiver, two.server, 1);
  post_receive(two.sender, two.client, 1);
  write_at(two.client, 0, "question");
  need(post(two.sender, [&](BasicBatch<Ud>& batch) {
    batch.op(5)
        .signaled()
        .immediate(77)
        .to(two.to_b, two.of_b.qp_num, two.of_b.qkey)
        .send(two.client.memory.local(0, 8));
  }));
  EXPECT_EQ(datagram_completion(two.client).wr_id, 5U);
  const ibv_wc got = datagram_completion(two.server);
  ASSERT_EQ(got.status, IBV_WC_SUCCESS);
  EXPECT_EQ(got.byte_len, Grh::kBytes + 8);
  const auto datagram =
      need(ReceivedDatagram::from(two.server.memory.local(kSlot, kSlot), got.byte_len));
  EXPECT_EQ(as_text(datagram.payload()), "question");
  const DatagramSource source = DatagramSource::of(got);
  EXPECT_EQ(source.qp_num, two.of_a.qp_num);
  ASSERT_TRUE(source.has_grh);
  const Grh grh = need(Grh::parse(datagram.route()));
  EXPECT_EQ(grh.source, two.gid.gid);
  EXPECT_EQ(grh.destination, two.gid.gid);

  const AddressHandle back = need(AddressHandle::reply(two.pd, two.port, source, datagram));
  const std::array<Bytes, 2> pieces = {as_bytes("ans"), as_bytes("wer")};
  need(post(two.receiver, [&](BasicBatch<Ud>& batch) {
    batch.op(6).signaled().to(back, source.qp_num, two.of_a.qkey).send(inlined(pieces));
  }));
  EXPECT_EQ(datagram_completion(two.server).status, IBV_WC_SUCCESS);
  const ibv_wc answer = datagram_completion(two.client);
  ASSERT_EQ(answer.status, IBV_WC_SUCCESS);
  EXPECT_EQ(
      as_text(need(ReceivedDatagram::from(two.client.memory.local(kSlot, kSlot), answer.byte_len))
                  .payload()),
      "answer");
}

// With a wrong Q_Key a datagram is dropped at the receiver. One with the right key, sent later,
// arrives first.
TEST(Datagrams, WithAnotherQkeyAreDropped) {
  ActiveTwo two;
  post_receive(two.receiver, two.server, 1);
  need(post(two.sender, [&](BasicBatch<Ud>& batch) {
    batch.op(1)
        .signaled()
        .to(two.to_b, two.of_b.qp_num, two.of_b.qkey ^ 1)
        .send(inlined(as_bytes("wrong")));
    batch.op(2)
        .signaled()
        .to(two.to_b, two.of_b.qp_num, two.of_b.qkey)
        .send(inlined(as_bytes("right")));
  }));
  EXPECT_EQ(two.client.completions(2).size(), 2U);
  const ibv_wc got = datagram_completion(two.server);
  EXPECT_EQ(
      as_text(need(ReceivedDatagram::from(two.server.memory.local(kSlot, kSlot), got.byte_len))
                  .payload()),
      "right");
}

TEST(Datagrams, LongerThanTheMtuAreRefused) {
  ActiveTwo two;
  const std::uint32_t longest = two.sender.max_datagram_bytes();
  EXPECT_EQ(longest, need(two.device.port(two.port)).active_mtu_bytes);
  post_receive(two.receiver, two.server, 1);
  post_receive(two.receiver, two.server, 2);
  const auto send = [&](std::size_t length) {
    return post(two.sender, [&](BasicBatch<Ud>& batch) {
      batch.op(1)
          .signaled()
          .to(two.to_b, two.of_b.qp_num, two.of_b.qkey)
          .send(two.client.memory.local(0, 8));
      batch.op(2)
          .signaled()
          .to(two.to_b, two.of_b.qp_num, two.of_b.qkey)
          .send(two.client.memory.local(0, length));
    });
  };
  // The first of the two is not sent either: the batch after it arrives.
  EXPECT_EQ(send(longest + 1).error().code, Code::kTooLarge);
  need(send(longest));
  EXPECT_EQ(two.client.completions(2).size(), 2U);
  EXPECT_EQ(datagram_completion(two.server).byte_len, 8 + Grh::kBytes);
  EXPECT_EQ(datagram_completion(two.server).byte_len, longest + Grh::kBytes);
  std::array<WorkCompletion, 1> none;
  EXPECT_EQ(need(two.client.queue.poll(none)), 0U);
}

TEST(Datagrams, AreGatheredFromPieces) {
  ActiveTwo two({.send_sge = 3});
  post_receive(two.receiver, two.server, 1);
  write_at(two.client, 0, "three");
  write_at(two.client, 100, "pieces");
  const std::array<RegisteredSpan, 3> pieces = {two.client.memory.local(0, 5),
                                                two.client.memory.local(50, 1),
                                                two.client.memory.local(100, 6)};
  write_at(two.client, 50, " ");
  const auto op = [&](std::uint64_t id) {
    return two.sender.op(id).signaled().to(two.to_b, two.of_b.qp_num, two.of_b.qkey);
  };
  need(op(1).send(pieces));
  const ibv_wc got = datagram_completion(two.server);
  EXPECT_EQ(
      as_text(need(ReceivedDatagram::from(two.server.memory.local(kSlot, kSlot), got.byte_len))
                  .payload()),
      "three pieces");
  const std::array<RegisteredSpan, 2> long_ones = {two.client.memory.local(0, 4096),
                                                   two.client.memory.local(0, 4096)};
  EXPECT_EQ(op(2).send(long_ones).error().code, Code::kTooLarge);
}

// A queue pair brought up by hand also knows its longest message.
TEST(Datagrams, OfAQueuePairBroughtUpByHandHaveTheSameLimit) {
  Two<Ud> two;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  need(two.a.modify(attributes, IBV_QP_STATE));
  attributes.qp_state = IBV_QPS_RTS;
  need(two.a.modify(attributes, IBV_QP_STATE | IBV_QP_SQ_PSN));
  const auto qp = need(std::move(two.a).into_queue_pair());
  EXPECT_EQ(qp.max_datagram_bytes(), need(two.device.port(two.port)).active_mtu_bytes);
}

// An endpoint fits into the private data of a connect request, padding included. Here it passes
// through bytes, as between two programs.
TEST(Datagrams, ReachAnEndpointThatCameAsBytes) {
  ActiveTwo two;
  post_receive(two.receiver, two.server, 1);
  std::array<std::byte, Endpoint::kMaxWireBytes> sent = need(two.of_b.to_bytes()).data;
  const Endpoint peer = need(Endpoint::from_bytes(sent));
  const Route route = need(choose_route(two.port, two.gid, two.of_a, peer));
  const AddressHandle to = need(AddressHandle::create(two.pd, route.address));
  need(post(two.sender, [&](BasicBatch<Ud>& batch) {
    batch.op(1).signaled().to(to, peer.qp_num, peer.qkey).send(inlined(as_bytes("there")));
  }));
  EXPECT_EQ(datagram_completion(two.server).byte_len, Grh::kBytes + 5);
}

TEST(AddressHandles, WithoutAGlobalRouteAreForInfiniBandOnly) {
  ActiveTwo two;
  const auto handle = AddressHandle::create(two.pd, {.port = two.port, .lid = 1});
  if (need(two.device.port(two.port)).ethernet) {
    ASSERT_FALSE(handle);
    EXPECT_EQ(handle.error().code, Code::kInvalidArgument) << to_string(handle.error());
    EXPECT_STREQ(handle.error().call, "ibv_create_ah");
    EXPECT_NE(std::string(handle.error().text).find("global"), std::string::npos);
  } else {
    EXPECT_TRUE(handle);
  }
  EXPECT_EQ(AddressHandle::create(two.pd, {.service_level = 16}).error().code,
            Code::kInvalidArgument);
}

TEST(Flags, OnlyASolicitedSendWakesAWaiterWhoAskedForThose) {
  constexpr int kPlain = 100;
  Loopback loop;
  const auto send = [&](OpFlags flags) {
    const std::array<ReceiveRequest, 1> receive = {
        {{.wr_id = 9, .buffer = loop.server.memory.local(0, 8)}}};
    need(loop.server.qp->post_receives(receive));
    need(post(*loop.client.qp, [&](Batch& batch) {
      batch.send(2, OpFlags::kSignaled | flags, loop.client.memory.local(0, 8));
    }));
    EXPECT_TRUE(loop.client.completion().ok());
    // Polled without arming, unlike completion().
    std::array<WorkCompletion, 1> one;
    const Deadline deadline = soon();
    while (need(loop.server.queue.poll(one)) == 0) {
      ASSERT_FALSE(deadline.passed());
    }
  };
  need(loop.server.queue.arm(true));
  for (int i = 0; i < kPlain; ++i)
    send(OpFlags::kNone);
  EXPECT_EQ(need(loop.server.channel.drain()), 0U);
  send(OpFlags::kSolicited);
  EXPECT_TRUE(need(wait_readable(loop.server.channel.fd(), soon())));
  EXPECT_EQ(need(loop.server.channel.drain()), 1U);
  // The twin: a waiter for any completion is woken by an unsolicited one.
  need(loop.server.queue.arm());
  send(OpFlags::kNone);
  EXPECT_TRUE(need(wait_readable(loop.server.channel.fd(), soon())));
  EXPECT_EQ(need(loop.server.channel.drain()), 1U);
}

}  // namespace
}  // namespace rkv::rdma
