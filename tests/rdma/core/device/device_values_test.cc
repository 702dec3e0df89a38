// Values that devices report, without a device: link speeds, GUIDs, the choice of a GID,
// capabilities, asynchronous events, and which fields of a completion may be read.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "rkv/rdma/describe.h"
#include "rkv/rdma/extended_completion.h"
#include "rkv/rdma/gid_choice.h"
#include "rkv/rdma/supervisor.h"

namespace rkv::rdma {
namespace {

// A field that was not requested has no member function to call.
template <class Cursor>
concept ReadsTimestamp = requires(const Cursor& c) { c.timestamp(); };
template <class Cursor>
concept ReadsLength = requires(const Cursor& c) { c.byte_length(); };
template <class Cursor>
concept ReadsWallclock = requires(const Cursor& c) { c.wallclock_ns(); };
using Stamped = CompletionCursor<WcField::kTimestamp | WcField::kQueuePair>;
using Sized = CompletionCursor<WcField::kByteLength>;
static_assert(ReadsTimestamp<Stamped> && !ReadsLength<Stamped> && !ReadsWallclock<Stamped>);
static_assert(!ReadsTimestamp<Sized> && ReadsLength<Sized>);
static_assert(requires(const Sized& c) { c.wr_id(), c.ok(), c.status(), c.kind(); });
// The guard and its cursor can be neither copied nor moved.
static_assert(!std::is_copy_constructible_v<Sized> && !std::is_move_constructible_v<Sized>);
using SizedPoll = CompletionPoll<WcField::kByteLength>;
static_assert(!std::is_copy_constructible_v<SizedPoll> && !std::is_move_constructible_v<SizedPoll>);
static_assert(std::input_iterator<SizedPoll::Iterator>);

TEST(LinkSpeeds, CoverEveryGeneration) {
  EXPECT_DOUBLE_EQ(link_speed(1, 1).gbps, 2.5);
  EXPECT_DOUBLE_EQ(link_speed(32, 2).gbps, 100);  // 4x EDR
  EXPECT_DOUBLE_EQ(link_speed(64, 2).gbps, 200);
  EXPECT_STREQ(link_speed(64, 2).name, "HDR");
  EXPECT_DOUBLE_EQ(link_speed(128, 16).gbps, 200);  // 2x NDR
  EXPECT_DOUBLE_EQ(link_speed(256, 2).gbps, 800);   // 4x XDR
  EXPECT_EQ(link_speed(32, 16).lanes, 2U);
  EXPECT_DOUBLE_EQ(link_speed(3, 2).gbps, 0);
  EXPECT_STREQ(link_speed(3, 2).name, "?");
}

TEST(Guids, HaveATextAndAnOwner) {
  const Guid guid(0x0002'C903'00A1'B2C3);
  EXPECT_EQ(guid.to_string(), "0002:c903:00a1:b2c3");
  EXPECT_EQ(guid.oui(), 0x0002C9U);
  EXPECT_FALSE(guid.is_reserved());
  EXPECT_FALSE(guid.is_locally_assigned());
  EXPECT_TRUE(Guid(0x0200'0000'0000'0001).is_locally_assigned());
  EXPECT_TRUE(Guid().is_reserved());
  EXPECT_TRUE(Guid(~std::uint64_t{0}).is_reserved());
  EXPECT_EQ(Guid::parse("0002:c903:00A1:b2c3"), guid);
  EXPECT_EQ(Guid::parse("0002c90300a1b2c3"), guid);
  for (const char* wrong : {"", "0002:c903:00a1:b2c", "0002:c903:00a1:b2c3:", "0002:c903:00a1:b2cg",
                            "0002.c903.00a1.b2c3", "0002c90300a1b2c", "000:2c903:00a1:b2c3"}) {
    EXPECT_FALSE(Guid::parse(wrong)) << wrong;
  }
}

GidEntry gid(std::uint32_t index, const char* address, GidType type, const char* netdev) {
  GidEntry out{.port = 1, .index = index, .type = type, .netdev = netdev};
  in_addr v4{};
  if (inet_pton(AF_INET, address, &v4) == 1) {
    out.gid[10] = out.gid[11] = 0xFF;
    std::copy_n(reinterpret_cast<const std::uint8_t*>(&v4), 4, out.gid.begin() + 12);
  } else {
    EXPECT_EQ(inet_pton(AF_INET6, address, out.gid.data()), 1) << address;
  }
  return out;
}

std::vector<GidEntry> usual_table() {
  return {gid(0, "fe80::1", GidType::kRoceV1, "eth0"),
          gid(1, "fe80::1", GidType::kRoceV2, "eth0"),
          gid(2, "192.0.2.1", GidType::kRoceV1, "eth0"),
          gid(3, "192.0.2.1", GidType::kRoceV2, "eth0"),
          gid(4, "2001:db8::1", GidType::kRoceV2, "eth0"),
          gid(5, "198.51.100.1", GidType::kRoceV2, "eth1")};
}

TEST(GidChoices, SayWhyThisOneAndWhyNotTheOthers) {
  const auto choice = choose_gid(usual_table(), 1);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->chosen.index, 3U);
  ASSERT_EQ(choice->others.size(), 5U);
  const auto reason = [&](std::size_t at) { return choice->others[at].reason; };
  EXPECT_NE(reason(0).find("RoCE v1"), std::string::npos);
  EXPECT_NE(reason(1).find("link-local"), std::string::npos);
  EXPECT_NE(reason(2).find("RoCE v1"), std::string::npos);
  EXPECT_NE(reason(3).find("IPv6"), std::string::npos);
  EXPECT_NE(reason(4).find("higher index"), std::string::npos);
  const std::string text = choice->explain();
  EXPECT_EQ(text.find("GID 3 (192.0.2.1, RoCE v2, eth0) of port 1: RoCE v2, IPv4"), 0U) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 6);
}

TEST(GidChoices, FollowThePeerAndTheInterface) {
  const auto table = usual_table();
  const auto index_for = [&](const GidPreferences& preferences) {
    return choose_gid(table, 1, preferences).value().chosen.index;
  };
  EXPECT_EQ(index_for({.netdev = "eth1"}), 5U);
  const auto peer = [](const char* text) { return gid(0, text, GidType::kRoceV2, "").gid; };
  EXPECT_EQ(index_for({.netdev = "", .peer = peer("198.51.100.9")}), 5U) << "the nearer subnet";
  EXPECT_EQ(index_for({.netdev = "", .peer = peer("192.0.2.9")}), 3U);
  EXPECT_EQ(index_for({.netdev = "", .peer = peer("2001:db8::9")}), 4U);
  EXPECT_EQ(index_for({.netdev = "", .peer = peer("fe80::9")}), 1U);
  const auto nowhere = choose_gid(table, 1, {.netdev = "eth7", .peer = {}});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::kNoDevice);
  EXPECT_FALSE(choose_gid(table, 2));
  EXPECT_FALSE(choose_gid({}, 1));
}

TEST(GidChoices, KnowThatIPv4HasLinkLocalAddressesToo) {
  const std::array table = {gid(0, "169.254.7.1", GidType::kRoceV2, "eth0"),
                            gid(1, "2001:db8::1", GidType::kRoceV2, "eth0")};
  const auto choice = choose_gid(table, 1);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->chosen.index, 1U);
  EXPECT_NE(choice->others[0].reason.find("link-local"), std::string::npos);
  const auto near = gid(0, "169.254.7.9", GidType::kRoceV2, "").gid;
  EXPECT_EQ(choose_gid(table, 1, {.peer = near}).value().chosen.index, 0U);
}

TEST(GidChoices, WarnWhereOnlyTheOldTypeIsThere) {
  const std::array only = {gid(0, "192.0.2.1", GidType::kRoceV1, "eth0")};
  const auto choice = choose_gid(only, 1);
  ASSERT_TRUE(choice);
  EXPECT_NE(choice->reason.find("no GID is of RoCE v2"), std::string::npos);
}

TEST(ExtendedAttributesOfADevice, AreTyped) {
  ibv_device_attr_ex raw{};
  const ExtendedAttributes nothing = extended_attributes(raw);
  EXPECT_FALSE(nothing.has_clock() || nothing.has_timestamps() || nothing.has_packet_pacing() ||
               nothing.has_device_memory() || nothing.has_pci_atomics() ||
               nothing.has_on_demand_paging() || nothing.has_raw_packets() ||
               nothing.has_segmentation() || nothing.has_spreading() ||
               nothing.has_tag_matching() || nothing.has_moderation());
  raw.hca_core_clock = 156'250;
  raw.completion_timestamp_mask = 0xFFFF'FFFF'FFFF;
  raw.packet_pacing_caps = {1, 100'000, 1U << IBV_QPT_RAW_PACKET};
  raw.max_dm_size = 131'072;
  raw.pci_atomic_caps = {.fetch_add = 3, .swap = 0, .compare_swap = 4};
  raw.odp_caps = {.general_caps = 3,
                  .per_transport_caps = {
                      .rc_odp_caps = IBV_ODP_SUPPORT_READ, .uc_odp_caps = 0, .ud_odp_caps = 0}};
  raw.phys_port_cnt_ex = 300;
  const ExtendedAttributes some = extended_attributes(raw);
  EXPECT_TRUE(some.has_clock() && some.has_packet_pacing() && some.has_device_memory());
  EXPECT_TRUE(some.pacing.types.has(IBV_QPT_RAW_PACKET));
  EXPECT_FALSE(some.pacing.types.has(IBV_QPT_RC));
  EXPECT_TRUE(has(some.pci_atomics.fetch_add, AtomicSizes::k4 | AtomicSizes::k8));
  EXPECT_EQ(some.pci_atomics.compare_swap, AtomicSizes::k16);
  EXPECT_TRUE(some.on_demand.implicit && has(some.on_demand.rc, OdpOps::kRead));
  EXPECT_FALSE(has(some.on_demand.rc, OdpOps::kWrite));
  EXPECT_EQ(some.port_count, 300U);
  const std::string text = describe(some);
  EXPECT_NE(text.find("time stamps of 48 bits"), std::string::npos) << text;
  EXPECT_NE(text.find("device memory: 128 KiB"), std::string::npos) << text;
}

// A device that is not opened: enough for events that a test invents.
struct NoDevice {
  ibv_context context{};
  NoDevice() { context.async_fd = -1; }
  Device device() { return Device::borrow(&context); }
};

TEST(Supervisors, TellEachItsOwnEvents) {
  NoDevice none;
  Supervisor supervisor(none.device());
  int of_qp = 0;
  int of_other = 0;
  int of_ports = 0;
  int of_device = 0;
  const int qp = 0;
  const int other = 0;
  Watch first = supervisor.watch(&qp, [&](const AsyncEvent&) { ++of_qp; });
  const Watch second = supervisor.watch(&other, [&](const AsyncEvent&) { ++of_other; });
  const Watch ports = supervisor.watch_ports([&](const AsyncEvent& e) { of_ports += e.port; });
  const Watch device = supervisor.watch_device([&](const AsyncEvent&) { ++of_device; });
  EXPECT_EQ(supervisor.dispatch({.type = IBV_EVENT_QP_FATAL, .object = &qp}), 1U);
  EXPECT_EQ(supervisor.dispatch({.type = IBV_EVENT_PORT_ERR, .port = 2}), 1U);
  EXPECT_EQ(std::make_tuple(of_qp, of_other, of_ports, of_device), std::make_tuple(1, 0, 2, 0));
  // A lost device concerns all watchers.
  EXPECT_EQ(supervisor.dispatch({.type = IBV_EVENT_DEVICE_FATAL}), 4U);
  EXPECT_EQ(std::make_tuple(of_qp, of_other, of_device), std::make_tuple(2, 1, 1));
  // Events without their own watcher go to the watchers of the device.
  first.end();
  EXPECT_EQ(supervisor.dispatch({.type = IBV_EVENT_QP_FATAL, .object = &qp}), 1U);
  EXPECT_EQ(of_qp, 2);
  EXPECT_EQ(of_device, 2);
}

TEST(Supervisors, HandlersMayEndWatchesWhileTheyRun) {
  NoDevice none;
  int calls = 0;
  const int qp = 0;
  Watch survivor;
  {
    Supervisor supervisor(none.device());
    Watch second;
    Watch first = supervisor.watch(&qp, [&](const AsyncEvent&) {
      ++calls;
      first.end();
      second.end();
      survivor = supervisor.watch(&qp, [&](const AsyncEvent&) { calls += 100; });
    });
    second = supervisor.watch(&qp, [&](const AsyncEvent&) { calls += 10; });
    const AsyncEvent fatal{.type = IBV_EVENT_QP_FATAL, .object = &qp};
    EXPECT_EQ(supervisor.dispatch(fatal), 1U);
    EXPECT_EQ(calls, 1) << "the second was ended before its turn, the new one comes next time";
    supervisor.dispatch(fatal);
    EXPECT_EQ(calls, 101);
  }
  survivor.end();  // outlives its supervisor
}

TEST(AsyncEvents, SayWhatIsLost) {
  EXPECT_TRUE(is_loss(IBV_EVENT_PORT_ERR) && is_loss(IBV_EVENT_DEVICE_FATAL));
  EXPECT_FALSE(is_loss(IBV_EVENT_SRQ_LIMIT_REACHED) || is_loss(IBV_EVENT_COMM_EST));
  EXPECT_EQ(scope_of(IBV_EVENT_GID_CHANGE), AsyncScope::kPort);
  EXPECT_EQ(scope_of(IBV_EVENT_WQ_FATAL), AsyncScope::kWorkQueue);
}

TEST(Descriptions, OfValues) {
  EXPECT_EQ(describe(AccessFlags::kNone), "local read only");
  EXPECT_EQ(describe(AccessFlags::kLocalWrite | AccessFlags::kRemoteRead),
            "local write, remote read");
  EXPECT_EQ(describe(WcField::kByteLength | WcField::kWallclock),
            "byte length, completion wall clock");
}

}  // namespace
}  // namespace rkv::rdma
