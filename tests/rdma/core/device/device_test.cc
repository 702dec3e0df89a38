// Devices, memory and queues of a real provider.
#include <poll.h>

#include <algorithm>

#include "tests/rdma/support/loopback.h"
#include "tests/rdma/support/teardown.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

TEST(Devices, AreListedWithTheirPorts) {
  const auto devices = need(list_devices());
  ASSERT_FALSE(devices.empty()) << "this test needs an RDMA device";
  EXPECT_FALSE(devices[0].name.empty());
  EXPECT_FALSE(devices[0].guid.is_reserved());
  EXPECT_FALSE(devices[0].node_type.empty());
  EXPECT_TRUE(std::ranges::any_of(devices, [](const DeviceInfo& info) {
    return std::ranges::any_of(info.ports, &PortAttributes::active);
  }));
}

TEST(Devices, OpenByNameAndRefuseAnUnknownName) {
  const Device first = need(Device::open_first_active());
  EXPECT_EQ(need(Device::open(first.name())).name(), first.name());
  const auto missing = Device::open("no_such_device");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kNoDevice);
  EXPECT_NE(to_string(missing.error()).find("rdma link"), std::string::npos);
}

TEST(Devices, AttributesArePlausible) {
  const Device device = need(Device::open_first_active());
  const DeviceAttributes limits = need(device.attributes());
  EXPECT_GE(limits.port_count, 1);
  EXPECT_GT(limits.max_completions, 1000U);
  EXPECT_GE(limits.max_reads_as_initiator, 1U);
  EXPECT_GE(limits.max_reads_as_responder, 1U);
  const PortAttributes port = need(device.port(need(device.first_active_port())));
  EXPECT_TRUE(port.active());
  EXPECT_GE(port.active_mtu_bytes, 256U);
  EXPECT_LE(port.active_mtu_bytes, port.max_mtu_bytes);
  EXPECT_FALSE(device.port(200));
}

TEST(Devices, AttributesAreThoseOfTheVerbs) {
  const Device device = need(Device::open_first_active());
  ibv_device_attr told{};
  ASSERT_EQ(ibv_query_device(device.raw(), &told), 0);
  const DeviceAttributes limits = need(device.attributes());
  const auto expect = [](std::uint64_t ours, auto theirs) {
    EXPECT_EQ(ours, static_cast<std::uint64_t>(theirs));
  };
  EXPECT_EQ(limits.firmware, told.fw_ver);
  expect(limits.port_count, told.phys_port_cnt);
  expect(limits.max_region_bytes, told.max_mr_size);
  expect(limits.max_regions, told.max_mr);
  expect(limits.max_queue_pairs, told.max_qp);
  expect(limits.max_work_requests, told.max_qp_wr);
  expect(limits.max_sge, told.max_sge);
  expect(limits.max_completion_queues, told.max_cq);
  expect(limits.max_completions, told.max_cqe);
  expect(limits.max_srq, told.max_srq);
  expect(limits.max_srq_work_requests, told.max_srq_wr);
  expect(limits.max_srq_sge, told.max_srq_sge);
  expect(limits.max_reads_as_initiator, told.max_qp_init_rd_atom);
  expect(limits.max_reads_as_responder, told.max_qp_rd_atom);
  expect(limits.max_windows, told.max_mw);

  const std::uint8_t number = need(device.first_active_port());
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(device.raw(), number, &port), 0);
  const PortAttributes found = need(device.port(number));
  EXPECT_EQ(found.state, port.state);
  EXPECT_EQ(found.active_mtu_bytes, 128U << port.active_mtu);
  EXPECT_EQ(found.max_mtu_bytes, 128U << port.max_mtu);
  EXPECT_EQ(found.ethernet, port.link_layer == IBV_LINK_LAYER_ETHERNET);
  expect(found.lid, port.lid);
  expect(found.gid_count, port.gid_tbl_len);
  expect(found.max_message_bytes, port.max_msg_sz);
  expect(found.physical_state, port.phys_state);
  EXPECT_EQ(found.lanes, link_speed(port.active_speed, port.active_width).lanes);
}

TEST(Devices, TheGidTableNamesTypeAndInterface) {
  const Device device = need(Device::open_first_active());
  const auto gids = need(device.gid_table());
  ASSERT_FALSE(gids.empty());
  const GidEntry chosen = need(device.routable_gid(need(device.first_active_port())));
  if (need(device.port(chosen.port)).ethernet && !need(device.attributes()).iwarp) {
    EXPECT_EQ(chosen.type, GidType::kRoceV2);
    EXPECT_FALSE(chosen.netdev.empty());
  }
}

// Each is mapped at pages of its own, of which none is special.
TEST(Devices, HaveRoomForManyQueues) {
  constexpr std::size_t kMany = 400;
  for (const Device& device :
       {need(Device::open_first_active()), need(Device::of_connection_manager())}) {
    std::vector<CompletionQueue> queues;
    while (queues.size() < kMany) {
      auto queue = CompletionQueue::create(device, {.entries = 16});
      ASSERT_TRUE(queue) << to_string(queue.error()) << ", number " << queues.size();
      queues.push_back(std::move(*queue));
    }
  }
}

TEST(Memory, EveryBackingIsZeroedPageAlignedAndUsable) {
  const auto pd = need(ProtectionDomain::allocate(need(Device::open_first_active())));
  for (const auto backing : {MemoryRegion::Backing::kHeap, MemoryRegion::Backing::kPages,
                             MemoryRegion::Backing::kHugePages}) {
    const auto region = need(MemoryRegion::allocate(pd, 10'000, AccessFlags::kLocalWrite, backing));
    EXPECT_EQ(region.size(), 10'000U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region.bytes().data()) % 4096, 0U);
    EXPECT_TRUE(std::ranges::all_of(region.bytes(), [](std::byte b) { return b == std::byte{}; }));
    EXPECT_EQ(region.local().lkey(), region.raw()->lkey);
    EXPECT_EQ(region.remote().length, 10'000U);
  }
}

TEST(Memory, MistakesAreRefusedBeforeTheKernelSeesThem) {
  const auto pd = need(ProtectionDomain::allocate(need(Device::open_first_active())));
  EXPECT_EQ(MemoryRegion::allocate(pd, 0, AccessFlags::kLocalWrite).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(MemoryRegion::allocate(pd, 4096, AccessFlags::kRemoteWrite).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(MemoryRegion::attach(pd, {}, AccessFlags::kNone).error().code, Code::kInvalidArgument);
}

TEST(Memory, UnmappedMemoryIsRefusedWithTheVerbsName) {
  const auto pd = need(ProtectionDomain::allocate(need(Device::open_first_active())));
  auto* nowhere = reinterpret_cast<std::byte*>(0x1000);
  const auto region = MemoryRegion::attach(pd, {nowhere, 4096}, AccessFlags::kLocalWrite);
  ASSERT_FALSE(region);
  EXPECT_STREQ(region.error().call, "ibv_reg_mr");
  EXPECT_NE(region.error().sys_errno, 0);
}

TEST(Ownership, ParentsOutliveTheirHandles) {
  std::optional<MemoryRegion> region;
  std::optional<PreparedQueuePair<>> qp;
  {
    const Device device = need(Device::open_first_active());
    const auto pd = need(ProtectionDomain::allocate(device));
    auto channel = need(CompletionChannel::create(device));
    const auto sends = need(CompletionQueue::create(device, {.entries = 8, .channel = &channel}));
    const auto receives = need(CompletionQueue::create(device, {.entries = 8}));
    const auto srq = need(SharedReceiveQueue::create(pd, {.length = 8}));
    region = need(MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));
    qp = need(QueuePair::create(pd, sends, receives, {.shared = &srq}));
  }
  EXPECT_EQ(need(qp->state()), IBV_QPS_RESET);
  // A destroy call that fails because a dependent object still exists would be reported.
  const TeardownErrors errors;
  qp.reset();
  region.reset();
  EXPECT_EQ(errors.count(), 0);
}

TEST(Ownership, MoveAssignmentReleasesTheOldOne) {
  Loopback loop;
  const auto make = [&] {
    return need(MemoryRegion::allocate(loop.pd, 4096, AccessFlags::kRemoteRead));
  };
  const auto read = [&](const RemoteSpan& from) {
    Batch batch = loop.client.qp->batch();
    batch.read(1, OpFlags::kSignaled, loop.client.memory.local(0, 8), *from.first(8));
    need(std::move(batch).submit());
    return loop.client.completion();
  };
  const TeardownErrors errors;
  MemoryRegion region = make();
  const RemoteSpan old = region.remote();
  EXPECT_TRUE(read(old).ok());
  region = make();
  EXPECT_NE(region.rkey(), old.rkey);  // both existed at the same time
  EXPECT_TRUE(read(region.remote()).ok());
  const WorkCompletion refused = read(old);
  EXPECT_FALSE(refused.ok());
  if (!need(loop.device.attributes()).iwarp) {  // there the status does not tell the reason
    EXPECT_EQ(explain(refused.status).kind, WcClass::kRemoteRefused) << refused.status;
  }
  EXPECT_EQ(errors.count(), 0);
}

// A peer READs by the key that it got from a handle whose region has moved on to others.
TEST(Memory, StaysInItsPlaceWhileHandlesAreMoved) {
  Loopback loop;
  const TeardownErrors errors;
  for (const auto backing : {MemoryRegion::Backing::kHeap, MemoryRegion::Backing::kPages,
                             MemoryRegion::Backing::kHugePages}) {
    const auto make = [&] {
      return need(MemoryRegion::allocate(loop.pd, 4096, AccessFlags::kRemoteRead, backing));
    };
    std::optional<MemoryRegion> first = make();
    const std::byte* const place = first->bytes().data();
    const RemoteSpan offered = *first->remote().first(8);
    store_le<std::uint64_t>(first->bytes().data(), 4711);
    MemoryRegion second = std::move(*first);
    first.reset();
    MemoryRegion third = make();
    third = std::move(second);
    EXPECT_EQ(third.bytes().data(), place);
    EXPECT_EQ(third.remote().first(8), offered);
    store_le<std::uint64_t>(loop.client.at(0), 0);
    need(loop.client.qp->op(1).signaled().read(loop.client.memory.local(0, 8), offered));
    EXPECT_TRUE(loop.client.completion().ok());
    EXPECT_EQ(loop.client.word(0), 4711U);
  }
  EXPECT_EQ(errors.count(), 0);
}

TEST(QueuePairs, LimitsAboveTheDeviceAreRefusedByName) {
  const Device device = need(Device::open_first_active());
  const auto pd = need(ProtectionDomain::allocate(device));
  const auto queue = need(CompletionQueue::create(device, {}));
  const auto qp = QueuePair::create(pd, queue, queue, {.send_length = 100'000'000});
  ASSERT_FALSE(qp);
  EXPECT_STREQ(qp.error().call, "ibv_create_qp_ex");
  EXPECT_NE(to_string(qp.error()).find("send_length"), std::string::npos) << to_string(qp.error());
}

TEST(QueuePairs, MoveThroughTheirStates) {
  Loopback loop;
  EXPECT_EQ(need(loop.client.qp->state()), IBV_QPS_RTS);
  const auto depth = need(loop.client.qp->query(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  EXPECT_EQ(depth.attributes.max_rd_atomic, need(loop.device.attributes()).max_reads_as_initiator);
  EXPECT_EQ(depth.attributes.min_rnr_timer, kDefaultRnrTimer.code());
  need(loop.client.qp->to_error());
  EXPECT_EQ(need(loop.client.qp->state()), IBV_QPS_ERR);
}

TEST(SharedReceiveQueues, TheLimitFiresOnceAndCanBeArmedAgain) {
  LoopbackOptions options;
  const Device device = need(Device::open_first_active());
  const auto pd = need(ProtectionDomain::allocate(device));
  auto srq = need(SharedReceiveQueue::create(pd, {.length = 16}));
  Side client(pd, kEverything);
  Side server(pd, kEverything);
  options.qp.shared = &srq;
  const std::uint8_t port = need(device.first_active_port());
  const GidEntry gid = need(device.routable_gid(port));
  auto a = need(QueuePair::create(pd, client.queue, client.queue, options.qp));
  auto b = need(QueuePair::create(pd, server.queue, server.queue, options.qp));
  const Endpoint of_a = need(a.endpoint(port, gid));
  client.qp = need(std::move(a).handshake(need(b.endpoint(port, gid))));
  server.qp = need(std::move(b).handshake(of_a));

  const auto refill = [&](std::size_t count) {
    std::vector<ReceiveRequest> requests;
    for (std::size_t i = 0; i < count; ++i)
      requests.push_back({i, server.memory.local(i * 64, 64)});
    std::size_t posted = 0;
    need(srq.post(requests, &posted));
    EXPECT_EQ(posted, count);
  };
  const auto send = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Batch batch = client.qp->batch();
      batch.send(1, OpFlags::kSignaled, client.memory.local(0, 8));
      need(std::move(batch).submit());
      EXPECT_TRUE(client.completion().ok());
      EXPECT_TRUE(server.completion().ok());
    }
  };
  const auto fired = [&](int patience_ms) {
    if (!need(wait_readable(device.async_fd(), soon(patience_ms)))) return false;
    const auto event = need(device.next_async_event());
    return event && event->type == IBV_EVENT_SRQ_LIMIT_REACHED && event->object == srq.raw();
  };

  refill(8);
  need(srq.arm_limit(6));
  EXPECT_EQ(need(srq.query()).limit, 6U);
  send(2);
  EXPECT_FALSE(need(device.next_async_event()));  // 6 are left, which is not below 6
  send(1);
  EXPECT_TRUE(fired(kPatienceMs));
  EXPECT_EQ(need(srq.query()).limit, 0U);
  send(2);
  EXPECT_FALSE(fired(0)) << "the event fires once";
  refill(5);
  need(srq.arm_limit(6));
  send(3);
  EXPECT_TRUE(fired(kPatienceMs));
  EXPECT_EQ(srq.arm_limit(1'000'000).error().code, Code::kInvalidArgument);
  client.qp.reset();  // both could write a message into the server's memory, which is destroyed
                      // first
}

TEST(CompletionQueues, AreExtendedWhereTheProviderHasThat) {
  const Device device = need(Device::open_first_active());
  const auto queue = need(CompletionQueue::create(device, {.entries = 100}));
  EXPECT_GE(queue.entries(), 100U);
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = 100;
  ibv_cq_ex* const raw = ibv_create_cq_ex(device.raw(), &wanted);
  EXPECT_EQ(queue.extended(), raw != nullptr);
  if (raw != nullptr) {
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(raw)), 0);
  }
  if (need(device.attributes()).soft_roce) {
    EXPECT_TRUE(queue.extended());
  }
}

// Polling for more than the available completions: on SoftRoCE the extended poll calls, used as
// documented, would return old completions again.
TEST(CompletionQueues, RoomToSpareGivesNothingTwice) {
  Loopback loop;
  std::array<WorkCompletion, 64> some;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    Batch batch = loop.client.qp->batch();
    batch.read(i, OpFlags::kSignaled, loop.client.memory.local(0, 8), loop.server.memory.remote());
    need(std::move(batch).submit());
    ASSERT_EQ(need(loop.client.queue.wait(some, soon())), 1U);
    ASSERT_EQ(some[0].wr_id, i);
    ASSERT_EQ(need(loop.client.queue.poll(some)), 0U);
  }
}

TEST(CompletionQueues, WaitEndsWithItsDeadline) {
  Loopback loop;
  std::array<WorkCompletion, 4> none;
  EXPECT_EQ(need(loop.client.queue.wait(none, soon(20))), 0U);
}

}  // namespace
}  // namespace rkv::rdma
