// The events of the connection manager for a connection and for a listener, and the lifetime of
// contexts: on a connection manager that the test controls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rdma/extras/message/link.h"
#include "rkv/rdma/channel.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/describe.h"
#include "rkv/rdma/message/operations.h"
#include "rkv/rdma/message/task.h"
#include "tests/rdma/support/fake_rdma.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

// A queue pair and the objects that it depends on.
struct Made {
  ProtectionDomain pd;
  CompletionQueue queue;
  PreparedQueuePair<> prepared;

  explicit Made(const Device& device)
      : pd(need(ProtectionDomain::allocate(device))),
        queue(need(CompletionQueue::create(device, {.entries = 16}))),
        prepared(need(QueuePair::create(pd, queue, queue, {}))) {}
};

struct Dialled {
  std::optional<Made> made;
  std::optional<CmConnection> link;

  explicit Dialled(const ConnectionParameters& parameters = {}) {
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    made.emplace(connector.device());
    link.emplace(
        need(std::move(connector).connect(std::move(made->prepared), parameters, {}, soon())));
  }
  Dialled(const Dialled&) = delete;
  Dialled& operator=(const Dialled&) = delete;
  ~Dialled() = default;
};

TEST(ConnectionEvents, ABondThatFailsOverEndsNothing) {
  FakeRdma fake;
  fake.announce_changes(true);  // this must not disturb the set-up
  Dialled dialled;
  CmConnection& link = *dialled.link;
  fake.tell(link.id.raw(), RDMA_CM_EVENT_ADDR_CHANGE);
  const Status stands = link.check();
  EXPECT_TRUE(stands) << to_string(stands.error());
  fake.tell(link.id.raw(), RDMA_CM_EVENT_ADDR_CHANGE);
  fake.tell(link.id.raw(), RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(link.check().error().code, Code::kDisconnected);
  EXPECT_TRUE(link.peer_left);
}

TEST(ConnectionEvents, ARemovedDeviceIsNotAPeerThatLeft) {
  FakeRdma fake;
  Dialled dialled;
  fake.tell(dialled.link->id.raw(), RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(dialled.link->check().error().code, Code::kNoDevice);
  EXPECT_EQ(dialled.link->check().error().code, Code::kNoDevice)
      << "reported once, true ever after";
  EXPECT_FALSE(dialled.link->peer_left);
}

// A peer that ends a connection before the last message of the handshake has come can only reject.
TEST(ConnectionEvents, ARejectAfterTheHandshakeIsAPeerThatLeft) {
  FakeRdma fake;
  Dialled dialled;
  fake.tell(dialled.link->id.raw(), RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(dialled.link->check().error().code, Code::kDisconnected);
  EXPECT_TRUE(dialled.link->peer_left);
}

TEST(ConnectionEvents, AListenerSaysThatItsDeviceWasRemoved) {
  FakeRdma fake;
  CmListener listener = need(CmListener::listen(FakeRdma::address()));
  rdma_cm_id* const own = fake.ids().front();
  EventChannel elsewhere = need(EventChannel::create());
  const CmId other = need(CmId::create(elsewhere));
  // About a request that its peer has given up: the listener's user must not see it.
  rdma_cm_id* const of_request = other.raw();
  of_request->channel = own->channel;
  fake.tell(of_request, RDMA_CM_EVENT_DISCONNECTED);
  fake.tell(of_request, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_FALSE(need(listener.next()));
  fake.tell(own, RDMA_CM_EVENT_ADDR_CHANGE);
  EXPECT_FALSE(need(listener.next()));

  fake.tell(own, RDMA_CM_EVENT_DEVICE_REMOVAL);
  const auto waited = listener.wait(soon());
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Code::kNoDevice) << to_string(waited.error());
  const auto again = listener.next();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kNoDevice);
}

// ---- how message transports see the end of a connection ----

struct LinkOnFake {
  FakeRdma fake;
  std::optional<detail::Link> link;

  LinkOnFake() {
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    link.emplace(
        need(detail::Link::create(connector.device(), {.send_length = 4, .receive_length = 4})));
    need(link->adopt(need(
        std::move(connector).connect(std::move(link->fresh()), link->parameters(), {}, soon()))));
  }
  LinkOnFake(const LinkOnFake&) = delete;
  LinkOnFake& operator=(const LinkOnFake&) = delete;
  ~LinkOnFake() { link.reset(); }
  void tell(rdma_cm_event_type type) { fake.tell(link->connection().id.raw(), type); }
};

TEST(LinkEndings, WhoOnlyLeavesHasEndedCleanly) {
  LinkOnFake on;
  EXPECT_FALSE(on.link->ended());
  on.tell(RDMA_CM_EVENT_DISCONNECTED);
  // Sends in flight cannot arrive any more.
  on.link->note_send("SEND", IBV_WC_WR_FLUSH_ERR);
  on.link->note_receive(IBV_WC_WR_FLUSH_ERR);
  EXPECT_TRUE(on.link->ended());
  EXPECT_TRUE(on.link->ended_cleanly());
  EXPECT_EQ(on.link->error().code, Code::kDisconnected);
}

// A send that fails by itself ends the receiving too: the peer may have written more before it
// left.
TEST(LinkEndings, ASendThatFailedIsNoCleanEndWheneverItIsSeen) {
  for (const bool first : {true, false}) {
    LinkOnFake on;
    if (first) on.link->note_send("SEND", IBV_WC_RETRY_EXC_ERR);
    on.tell(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_TRUE(on.link->ended());
    if (!first) on.link->note_send("SEND", IBV_WC_RETRY_EXC_ERR);
    EXPECT_FALSE(on.link->ended_cleanly());
    EXPECT_STREQ(on.link->error().call, "SEND");
  }
}

TEST(LinkEndings, AReceiveThatFailedIsNoCleanEndWheneverItIsSeen) {
  for (const bool first : {true, false}) {
    LinkOnFake on;
    if (first) on.link->note_receive(IBV_WC_LOC_LEN_ERR);
    on.tell(RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_TRUE(on.link->ended());
    if (!first) on.link->note_receive(IBV_WC_LOC_LEN_ERR);
    EXPECT_FALSE(on.link->ended_cleanly());
    EXPECT_STREQ(on.link->error().call, "receive");
  }
}

TEST(LinkEndings, ARemovedDeviceIsNoCleanEnd) {
  LinkOnFake on;
  on.tell(RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_TRUE(on.link->ended());
  EXPECT_FALSE(on.link->ended_cleanly());
  EXPECT_EQ(on.link->error().code, Code::kNoDevice);
}

// ---- the ends of handles ----

TEST(HandleEnds, OfAConnectionAreTheQueuePairThenTheIdThenTheChannel) {
  FakeRdma fake;
  {
    const Dialled dialled;
  }
  EXPECT_EQ(fake.destroyed(), (std::vector<std::string>{"ibv_destroy_qp", "rdma_destroy_id",
                                                        "rdma_destroy_event_channel"}));
}

TEST(HandleEnds, ThatFailAreReportedAndTheOthersFollow) {
  FakeRdma fake;
  fake.refuse_to_destroy_queue_pairs(EBUSY);
  static std::string reported;
  reported.clear();
  const TeardownHandler before = set_teardown_handler([](const Error& error) noexcept {
    reported += fmt::format("{} {};", error.call, error.sys_errno);
  });
  {
    const Dialled dialled;
  }
  set_teardown_handler(before);
  EXPECT_EQ(reported, fmt::format("ibv_destroy_qp {};", EBUSY));
  EXPECT_EQ(fake.destroyed(),
            (std::vector<std::string>{"rdma_destroy_id", "rdma_destroy_event_channel"}));
  EXPECT_EQ(fake.references(), 0U);
}

// ---- the parameters of a connection's set-up ----

ibv_qp_attr changed_to(const FakeRdma& fake, ibv_qp_state state, int needed) {
  ibv_qp_attr out{};
  for (const FakeRdma::Change& one : fake.changes()) {
    if (one.attributes.qp_state != state) continue;
    EXPECT_EQ(one.mask & needed, needed) << "the device would ignore it";
    out = one.attributes;
  }
  return out;
}

// The kernel proposes the value of the peer's request to the passive side: 31 means two hours.
TEST(ConnectionSetUp, UsesOurTimeoutWhateverThePeerProposes) {
  FakeRdma fake;
  fake.propose_timeout(31);
  const Dialled dialled({.ack_timeout = AckTimeout::from_code(16)});
  EXPECT_EQ(changed_to(fake, IBV_QPS_RTS, IBV_QP_TIMEOUT).timeout, 16);
}

TEST(ConnectionSetUp, GrantsWhatIsAskedAlsoToAQueuePairThatIsInInit) {
  FakeRdma fake;
  Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
  Made made(connector.device());
  need(made.prepared.open(1));  // grants nothing
  ASSERT_EQ(fake.state_of_queue_pair(), IBV_QPS_INIT);
  const auto link = std::move(connector).connect(
      std::move(made.prepared), {.remote_access = AccessFlags::kRemoteRead}, {}, soon());
  ASSERT_TRUE(link) << to_string(link.error());
  constexpr unsigned kWanted = IBV_ACCESS_REMOTE_READ;
  EXPECT_EQ(changed_to(fake, IBV_QPS_RTR, IBV_QP_ACCESS_FLAGS).qp_access_flags, kWanted);
  const ibv_qp_attr init = changed_to(fake, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS | IBV_QP_PORT);
  EXPECT_EQ(init.qp_access_flags, kWanted);
}

TEST(ConnectionSetUp, KeepsThePathThatWasResolvedWhereNothingIsAsked) {
  FakeRdma fake;
  const Dialled dialled;
  const ibv_ah_attr address = changed_to(fake, IBV_QPS_RTR, IBV_QP_AV).ah_attr;
  EXPECT_EQ(address.sl, 1);
  EXPECT_EQ(address.grh.traffic_class, 5);
  EXPECT_EQ(address.grh.hop_limit, 4);
  EXPECT_EQ(address.grh.flow_label, 2U);
}

TEST(ConnectionSetUp, UsesThePathThatIsAskedFor) {
  FakeRdma fake;
  const Dialled dialled(
      {.path = {
           .service_level = 15, .traffic_class = 0x68, .hop_limit = 0, .flow_label = 0xF'FFFF}});
  const ibv_ah_attr address = changed_to(fake, IBV_QPS_RTR, IBV_QP_AV).ah_attr;
  EXPECT_EQ(address.sl, 15);
  EXPECT_EQ(address.grh.traffic_class, 0x68);
  EXPECT_EQ(address.grh.hop_limit, 0);
  EXPECT_EQ(address.grh.flow_label, 0xF'FFFFU);
  // The rest of the address is as resolved.
  EXPECT_EQ(address.grh.sgid_index, 3);
  EXPECT_EQ(address.static_rate, IBV_RATE_100_GBPS);
}

TEST(ConnectionSetUp, RefusesAPathOutOfRangeByName) {
  FakeRdma fake;
  const auto text = [](const PathParameters& path) {
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    Made made(connector.device());
    const auto link =
        std::move(connector).connect(std::move(made.prepared), {.path = path}, {}, soon());
    EXPECT_EQ(link ? Code::kInternal : link.error().code, Code::kInvalidArgument);
    return std::string(link ? "" : link.error().text);
  };
  EXPECT_EQ(text({.service_level = 16}), "path.service_level is 0 to 15");
  EXPECT_EQ(text({.flow_label = 0x10'0000}), "path.flow_label is 0 to 1048575");
  EXPECT_TRUE(fake.changes().empty());
}

// The peer must not learn of a connection that cannot be made.
Error refused_path(const FakeRdma& fake, const PathParameters& path) {
  Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
  Made made(connector.device());
  const auto link =
      std::move(connector).connect(std::move(made.prepared), {.path = path}, {}, soon());
  EXPECT_FALSE(link);
  EXPECT_EQ(fake.connect_requests(), 0U) << "the peer was asked before the refusal";
  EXPECT_TRUE(fake.changes().empty());
  return link ? Error{} : link.error();
}

TEST(ConnectionSetUp, HasNoPathOnIwarp) {
  FakeRdma fake;
  fake.be_iwarp();
  const Error error = refused_path(fake, {.traffic_class = 8});
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_STREQ(error.call, "ibv_modify_qp");
}

TEST(ConnectionSetUp, RefusesAHopLimitOnRoceBeforeThePeerIsAsked) {
  FakeRdma fake;
  fake.be_roce();
  const Error error = refused_path(fake, {.hop_limit = 17});
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_STREQ(error.call, "ibv_modify_qp");
  EXPECT_NE(std::string(error.text).find("hoplimit"), std::string::npos) << error.text;
  const Dialled others({.path = {.service_level = 3, .traffic_class = 8, .flow_label = 1}});
  EXPECT_EQ(changed_to(fake, IBV_QPS_RTR, IBV_QP_AV).ah_attr.grh.traffic_class, 8);
}

TEST(ConnectionSetUp, RefusesWhatNeedsAGidBeforeThePeerIsAskedIfTheRouteHasNone) {
  for (const PathParameters& path :
       {PathParameters{.traffic_class = 8}, {.hop_limit = 17}, {.flow_label = 1}}) {
    FakeRdma fake;
    fake.route_by_lid();
    const Error error = refused_path(fake, path);
    EXPECT_EQ(error.code, Code::kInvalidArgument);
    EXPECT_NE(std::string(error.text).find("LID"), std::string::npos) << error.text;
    const Dialled by_lid({.path = {.service_level = 3}});
    EXPECT_EQ(changed_to(fake, IBV_QPS_RTR, IBV_QP_AV).ah_attr.sl, 3);
  }
}

TEST(ConnectionSetUp, RefusesAQueuePairOfAnotherDevice) {
  FakeRdma fake;
  Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
  const Device other = Device::borrow(fake.context(1));
  Made made(other);
  const auto link = std::move(connector).connect(std::move(made.prepared), {}, {}, soon());
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().code, Code::kInvalidArgument);
  EXPECT_NE(to_string(link.error()).find("another device"), std::string::npos);
  EXPECT_TRUE(fake.changes().empty());
}

// ---- misuse that aborts the process with a message ----

TEST(MisusedQueuePairs, ThatWereMovedAwayAreNamed) {
  FakeRdma fake;
  Made made(Device::borrow(fake.context()));
  const PreparedQueuePair<> there = std::move(made.prepared);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested
  EXPECT_DEATH(std::ignore = made.prepared.number(), "moved away");
  EXPECT_DEATH(std::ignore = made.prepared.device(), "moved away");
  EXPECT_DEATH(std::ignore = made.prepared.send_length(), "moved away");
  EXPECT_DEATH(std::ignore = made.prepared.has_shared_receive_queue(), "moved away");
  EXPECT_DEATH(std::ignore = made.prepared.state(), "moved away");
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_EQ(there.number(), 0x11U);
}

TEST(MisusedQueuePairs, WithABatchOpenTakeNoOther) {
  FakeRdma fake;
  Dialled dialled;
  QueuePair& qp = dialled.link->qp;
  {
    const Batch open = qp.batch();
    EXPECT_DEATH(std::ignore = qp.batch(), "a batch of its queue pair is open");
    EXPECT_DEATH(std::ignore = qp.op(1).send(), "of its queue pair is open");
  }
  need(qp.batch().submit());
  {
    const Batch again = qp.batch();  // allowed: the previous batch is closed, whether dropped or
                                     // submitted
  }
}

// The queue pair ends with work that the device never completes, as on soft-iWARP. Each queue pair
// here has the same number.
TEST(ReusedNumbers, AreTheSuccessorsOnceTheOldWorkIsForgotten) {
  FakeRdma fake;
  InlineExecutor executor;
  Operations operations = need(Operations::create(Device::borrow(fake.context()), executor,
                                                  {.outstanding = 1, .receives = 0}));
  const auto dial = [&] {
    Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
    const auto pd = need(ProtectionDomain::allocate(connector.device()));
    auto qp =
        need(QueuePair::create(pd, operations.queue(), operations.queue(), {.send_length = 1}));
    return need(std::move(connector).connect(std::move(qp), {}, {}, soon()));
  };
  const auto send = [&](QueuePair& qp) -> Task<Status> {
    co_return co_await operations.send(qp, RegisteredSpan());
  };
  std::optional<CmConnection> first(dial());
  const std::uint32_t number = first->qp.number();
  {
    auto lost = send(first->qp);
    lost.start();
  }
  first.reset();
  EXPECT_EQ(operations.outstanding(), 1U);
  need(operations.forget(number));
  EXPECT_EQ(operations.outstanding(), 0U);

  CmConnection second = dial();
  ASSERT_EQ(second.qp.number(), number);
  auto sending = send(second.qp);
  sending.start();
  const auto drain = [&]() -> Task<Status> { co_return co_await operations.drained(second.qp); };
  auto draining = drain();
  draining.start();
  executor.poll();
  EXPECT_FALSE(sending.done() || draining.done());
  fake.flush(ibv_qp_to_qp_ex(second.qp.raw())->wr_id);
  executor.poll();
  EXPECT_TRUE(sending.done() && draining.done());
  EXPECT_EQ(sending.take().error().code, explain(IBV_WC_WR_FLUSH_ERR).code);
}

TEST(MisusedQueuePairs, OfAnotherQueueAreNotTakenByCoroutines) {
  FakeRdma fake;
  Dialled dialled;
  InlineExecutor executor;
  Operations operations = need(Operations::create(Device::borrow(fake.context(1)), executor, {}));
  EXPECT_DEATH(std::ignore = operations.send(dialled.link->qp, RegisteredSpan()),
               "send its completions to queue.. of these operations");
}

// ---- flags of regions, and memory that the processor cannot address ----

TEST(RelaxedOrdering, ReachesTheProviderOnlyWhereItIsAskedFor) {
  FakeRdma fake;
  const ProtectionDomain pd = need(ProtectionDomain::allocate(Device::borrow(fake.context())));
  constexpr AccessFlags kPlain = AccessFlags::kLocalWrite | AccessFlags::kRemoteRead;
  need(MemoryRegion::allocate(pd, 4096, kPlain));
  EXPECT_EQ(fake.region_access(), std::to_underlying(kPlain));
  const MemoryRegion relaxed =
      need(MemoryRegion::allocate(pd, 4096, kPlain | AccessFlags::kRelaxedOrdering));
  EXPECT_EQ(fake.region_access(), std::to_underlying(kPlain) | IBV_ACCESS_RELAXED_ORDERING);
  EXPECT_EQ(describe(relaxed.access()), "local write, remote read, relaxed ordering");
}

TEST(HugePageRegions, TellTheProvider) {
  FakeRdma fake;
  const ProtectionDomain pd = need(ProtectionDomain::allocate(Device::borrow(fake.context())));
  const MemoryRegion huge = need(MemoryRegion::allocate(pd, 4096, AccessFlags::kHugePages));
  EXPECT_EQ(fake.region_access(), unsigned{IBV_ACCESS_HUGETLB});
  EXPECT_EQ(describe(huge.access()), "huge pages");
}

TEST(DeviceOnlyMemory, IsSentAsItIsWhereShortMessagesGoInline) {
  FakeRdma fake;
  Connector connector = need(Connector::resolve(FakeRdma::address(), {}, soon()));
  const Device device = connector.device();
  const auto pd = need(ProtectionDomain::allocate(device));
  auto events = need(CompletionChannel::create(device));
  auto queue = need(CompletionQueue::create(device, {.entries = 64, .channel = &events}));
  auto prepared = need(QueuePair::create(pd, queue, queue, {.inline_bytes = 64}));
  auto link = need(std::move(connector).connect(std::move(prepared), {}, {}, soon()));
  Channel channel =
      need(Channel::adopt(std::move(events), std::move(queue), std::move(link.qp),
                          {.sends = 4, .receives = 4, .inline_bytes = 64, .drain_ms = 0}));
  const auto sent = channel.send(RegisteredSpan::device_only(0x1000, 8, 7), soon(0));
  EXPECT_EQ(sent.error().code, Code::kTimeout) << "nothing ever completes here";
  ASSERT_EQ(fake.pieces().size(), 1U);
  EXPECT_EQ(fake.pieces()[0].addr, 0x1000U);
  EXPECT_EQ(fake.pieces()[0].lkey, 7U);
}

TEST(Contexts, OfTheConnectionManagerStayOpenForAsLongAsTheirHandles) {
  FakeRdma fake;
  {
    std::optional<Device> device = need(Device::of_connection_manager("fake1"));
    EXPECT_EQ(fake.references(1), 1U);
    EXPECT_EQ(fake.references(0), 0U) << "a device that nobody uses must not stay open";
    const std::optional<ProtectionDomain> pd = need(ProtectionDomain::allocate(*device));
    device.reset();
    fake.unplug(1);
    EXPECT_TRUE(fake.is_open(1)) << "the domain uses its context";
  }
  EXPECT_FALSE(fake.is_open(1));
  EXPECT_EQ(fake.references(1), 0U);
}

TEST(Contexts, OfAnIdOutliveTheId) {
  FakeRdma fake;
  std::optional<Device> device;
  {
    const CmListener listener = need(CmListener::listen(FakeRdma::address()));
    device = listener.device();
    // A second call takes no further reference and returns the same context.
    EXPECT_EQ(listener.device()->raw(), device->raw());
    EXPECT_EQ(fake.references(), 2U);  // one of the id, and one for all handles
  }
  EXPECT_EQ(device->raw(), fake.context());
  fake.unplug();
  EXPECT_TRUE(fake.is_open());
  device.reset();
  EXPECT_FALSE(fake.is_open());
}

// librdmacm does not list the device any more, so only the id keeps the context open.
TEST(Contexts, OfAnIdWhoseDeviceHasBeenUnpluggedKeepTheId) {
  FakeRdma fake;
  std::optional<CmListener> listener = need(CmListener::listen(FakeRdma::address()));
  fake.unplug();
  std::optional<Device> device = listener->device();
  listener.reset();
  EXPECT_TRUE(fake.is_open());
  EXPECT_EQ(fake.ids().size(), 1U);
  device.reset();
  EXPECT_FALSE(fake.is_open());
  EXPECT_TRUE(fake.ids().empty());
}

}  // namespace
}  // namespace rkv::rdma
