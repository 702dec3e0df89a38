// Values that devices report, without a device: clocks, link speeds, GUIDs, the choice of a GID,
// counters, capabilities, asynchronous events, and which fields of a completion may be read.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "rkv/rdma/describe.h"
#include "rkv/rdma/device_clock.h"
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
concept ReadsVlan = requires(const Cursor& c) { c.vlan(); };
using Stamped = CompletionCursor<WcField::kTimestamp | WcField::kQueuePair>;
using Sized = CompletionCursor<WcField::kByteLength>;
static_assert(ReadsTimestamp<Stamped> && !ReadsLength<Stamped> && !ReadsVlan<Stamped>);
static_assert(!ReadsTimestamp<Sized> && ReadsLength<Sized>);
static_assert(requires(const Sized& c) { c.wr_id(), c.ok(), c.status(), c.kind(); });
// The guard and its cursor can be neither copied nor moved.
static_assert(!std::is_copy_constructible_v<Sized> && !std::is_move_constructible_v<Sized>);
using SizedPoll = CompletionPoll<WcField::kByteLength>;
static_assert(!std::is_copy_constructible_v<SizedPoll> && !std::is_move_constructible_v<SizedPoll>);
static_assert(std::input_iterator<SizedPoll::Iterator>);

TickScale scale(std::uint64_t khz, std::uint64_t mask) {
  return *TickScale::from(khz, mask);
}

TEST(TickScales, TicksBecomeNanosecondsAndBack) {
  const TickScale mlx = scale(1'000'000, ~std::uint64_t{0});  // 1 GHz
  EXPECT_EQ(mlx.ns(12'345), 12'345);
  const TickScale odd = scale(156'250, 0xFFFF'FFFF);  // 6.4 ns a tick
  EXPECT_EQ(odd.ns(1), 6);
  EXPECT_EQ(odd.ns(5), 32);
  EXPECT_EQ(odd.ticks(32), 5U);
  EXPECT_EQ(odd.ticks(38), 5U) << "rounded down";
  EXPECT_EQ(odd.signed_ns(-5), -32);
  EXPECT_EQ(odd.round_ns(), 27'487'790'688);  // 27.5 s
  // 2^64 ticks of a slow clock exceed 63 bits of nanoseconds.
  EXPECT_EQ(scale(1, ~std::uint64_t{0}).ns(~std::uint64_t{0}), std::numeric_limits<Nanos>::max());
}

TEST(TickScales, StampsWrapWithTheMask) {
  const TickScale narrow = scale(1000, 0xFFFF);
  EXPECT_EQ(narrow.ticks_between(0xFFF0, 0x0010), 0x20U);
  EXPECT_EQ(narrow.nearest(0xFFF0, 0x0010), 0x20);
  EXPECT_EQ(narrow.nearest(0x0010, 0xFFF0), -0x20);
  EXPECT_EQ(narrow.nearest(0, 0x8000), 0x8000) << "half a round counts forward";
  EXPECT_EQ(narrow.nearest(7, 7), 0);
  const TickScale whole = scale(1000, ~std::uint64_t{0});
  EXPECT_EQ(whole.nearest(~std::uint64_t{0}, 1), 2);
  EXPECT_EQ(whole.nearest(1, ~std::uint64_t{0}), -2);
}

TEST(TickScales, ADeviceWithoutAClockIsUnsupported) {
  for (const auto& none : {TickScale::from(0, 0xFF), TickScale::from(1000, 0)}) {
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Code::kUnsupported);
    EXPECT_STREQ(none.error().call, "ibv_query_device_ex");
  }
  EXPECT_EQ(TickScale::from(1000, 0xF0F0).error().code, Code::kInvalidArgument);
}

RC_GTEST_PROP(ClockCorrelations, FindTheHostsTimeAcrossWraps, ()) {
  // A device clock with any start value, 32 bits wide, up to 50 ppm fast or slow.
  const auto offset = *rc::gen::arbitrary<std::uint32_t>();
  const auto ppm = *rc::gen::inRange(-50, 51);
  const TickScale mhz = scale(156'250, 0xFFFF'FFFF);
  const auto ticks_at = [&](Nanos host) {
    const double device_ns = static_cast<double>(host) * (1 + ppm * 1e-6);
    return (static_cast<std::uint64_t>(device_ns / 6.4) + offset) & mhz.mask();
  };
  const auto sample_at = [&](Nanos host) {
    return ClockSample{.before = host - 500, .ticks = ticks_at(host), .after = host + 500};
  };
  const std::array samples = {sample_at(1'000), sample_at(2'000)};
  auto found = *ClockCorrelation::from(mhz, samples);
  RC_ASSERT(found.uncertainty_ns() == 500);
  // Sampled every two seconds, over two rounds of the clock (27 s each).
  for (Nanos now = 2 * kNanosPerSecond; now < 60 * kNanosPerSecond; now += 2 * kNanosPerSecond) {
    found.follow(sample_at(now));
    for (const Nanos near : {-kNanosPerSecond, Nanos{0}, kNanosPerSecond}) {
      const Nanos error = found.host_ns(ticks_at(now + near)) - (now + near);
      RC_ASSERT(error > -30 && error < 30);
    }
  }
  RC_ASSERT(found.drift_ppb() > -ppm * 1000 - 100 && found.drift_ppb() < -ppm * 1000 + 100);
}

// Two wide samples close to each other do not determine the rate: half a microsecond of error in
// ten would be 50,000 ppm.
TEST(ClockCorrelations, DoNotMeasureTheRateFromSamplesThatAreTooNear) {
  const TickScale ghz = scale(1'000'000, 0xFFFF'FFFF);
  const std::array first = {ClockSample{0, 500, 1000}};
  auto found = *ClockCorrelation::from(ghz, first);
  found.follow({10'000, 11'000, 11'000});  // read at the end of its sample
  EXPECT_DOUBLE_EQ(found.drift_ppb(), 0);
  EXPECT_EQ(found.host_ns(1'000'000'500), 1'000'000'500);
  // Far enough from the first sample: now the rate can be determined.
  found.follow({200'000'000, 200'000'500, 200'001'000});
  EXPECT_NEAR(found.drift_ppb(), 0, 10'000);
  // The samples are never good enough. The anchor still moves before it is a quarter of a round
  // old.
  const std::array wide = {ClockSample{0, 50'000'000, 100'000'000}};
  auto vague = *ClockCorrelation::from(ghz, wide);
  for (Nanos now = 0; now < 20 * kNanosPerSecond; now += kNanosPerSecond / 2) {
    const auto ticks = static_cast<std::uint64_t>(now + 50'000'000) & ghz.mask();
    vague.follow({now, ticks, now + 100'000'000});
    EXPECT_EQ(vague.host_ns(ticks), now + 50'000'000);
  }
}

TEST(ClockCorrelations, TheNarrowestSampleCounts) {
  const TickScale ghz = scale(1'000'000, ~std::uint64_t{0});
  const std::array samples = {ClockSample{0, 100, 1000}, ClockSample{2000, 2150, 2100},
                              ClockSample{3000, 3500, 4000}};
  const auto found = ClockCorrelation::from(ghz, samples);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->host_ns(2150), 2050);
  EXPECT_EQ(found->host_ns(2160), 2060);
  EXPECT_EQ(found->host_ns(2100), 2000);
  EXPECT_EQ(found->uncertainty_ns(), 50);
  EXPECT_FALSE(ClockCorrelation::from(ghz, {}));
  const std::array backwards = {ClockSample{10, 0, 5}};
  EXPECT_EQ(ClockCorrelation::from(ghz, backwards).error().code, Code::kInvalidArgument);
}

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

// A directory like the kernel's; deleted at the end of the test.
class CounterFiles : public ::testing::Test {
 public:
  CounterFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "rkv_counters_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~CounterFiles() override { std::filesystem::remove_all(root_); }

 protected:
  void put(const char* directory, const char* name, const char* text) {
    const auto at = root_ / "rxe0/ports/1" / directory;
    std::filesystem::create_directories(at);
    std::ofstream(at / name) << text;
  }
  Result<PortCounters> read(std::uint8_t port = 1) {
    return port_counters("rxe0", port, root_.string());
  }

 private:
  std::filesystem::path root_;
};

TEST_F(CounterFiles, AreReadWhereTheyHoldNumbers) {
  put("counters", "port_xmit_data", "18446744073709551615\n");
  put("counters", "port_rcv_data", "N/A (no PMA)\n");
  put("counters", "link_downed", "3\n");
  put("hw_counters", "link_downed", "4\n");
  put("hw_counters", "lifespan", "10\n");
  const auto found = read();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->get(counter::kSentWords), ~std::uint64_t{0});
  EXPECT_FALSE(found->get(counter::kReceivedWords)) << "no number, no counter";
  EXPECT_FALSE(found->get("lifespan")) << "a setting";
  EXPECT_EQ(found->get(counter::kLinkDowned, CounterSource::kPort), 3U);
  EXPECT_EQ(found->get(counter::kLinkDowned, CounterSource::kHardware), 4U);
  EXPECT_EQ(describe(*found), "link_downed=3 link_downed=4 port_xmit_data=18446744073709551615");
  EXPECT_EQ(read(2).error().code, Code::kNotFound);
  EXPECT_EQ(port_counters("../rxe0", 1).error().code, Code::kInvalidArgument);
}

TEST_F(CounterFiles, DifferencesSurviveAReset) {
  put("counters", "port_xmit_data", "100");
  put("counters", "port_rcv_data", "7");
  const auto before = read();
  put("counters", "port_xmit_data", "160");
  put("counters", "port_rcv_data", "2");
  put("counters", "new_one", "5");
  const auto after = read();
  ASSERT_TRUE(before && after);
  const PortCounters since = after->since(*before);
  EXPECT_EQ(since.get("port_xmit_data"), 60U);
  EXPECT_EQ(since.get("port_rcv_data"), 2U);
  EXPECT_FALSE(since.get("new_one"));
}

TEST(CompletionCount, TellsConsequencesFromCauses) {
  CompletionCounts counts;
  counts.add({.byte_length = 10, .kind = WorkKind::kReceive});
  counts.add({.byte_length = 99, .kind = WorkKind::kWrite});
  counts.add({.status = IBV_WC_RNR_RETRY_EXC_ERR});
  counts.add({.status = IBV_WC_WR_FLUSH_ERR});
  counts.add({.status = IBV_WC_WR_FLUSH_ERR});
  EXPECT_EQ(counts.completions, 5U);
  EXPECT_EQ(counts.flushed(), 2U);
  EXPECT_EQ(counts.receiver_not_ready(), 1U);
  EXPECT_EQ(counts.errors(), 1U);
  EXPECT_EQ(counts.bytes, 10U);
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
  EXPECT_EQ(describe(AsyncEvent{.type = IBV_EVENT_PORT_ERR, .port = 1}), "port error, port 1");
}

TEST(Descriptions, OfValues) {
  EXPECT_EQ(describe(AccessFlags::kNone), "local read only");
  EXPECT_EQ(describe(AccessFlags::kLocalWrite | AccessFlags::kRemoteRead),
            "local write, remote read");
  EXPECT_EQ(describe(WcField::kByteLength | WcField::kWallclock),
            "byte length, completion wall clock");
  EXPECT_EQ(describe(RemoteSpan{.address = 0x1000, .length = 2048, .rkey = 7}),
            "2 KiB at 0x1000 of the peer, rkey 0x7");
  EXPECT_EQ(describe(WorkCompletion{.wr_id = 7,
                                    .qp_num = 17,
                                    .byte_length = 64,
                                    .immediate = 5,
                                    .kind = WorkKind::kReceive,
                                    .has_immediate = true}),
            "wr 0x7 on queue pair 17: RECV, 64 bytes, immediate 0x5");
  const std::string failed =
      describe(WorkCompletion{.wr_id = 7, .qp_num = 17, .status = IBV_WC_RETRY_EXC_ERR});
  EXPECT_NE(failed.find("transport retry counter exceeded"), std::string::npos) << failed;
  SendSlots slots({.slots = 8, .signal_every = 4});
  slots.take();
  EXPECT_EQ(describe(slots), "1 of 8 slots taken, 1 unsignaled; 1 posted, 0 completed");
}

}  // namespace
}  // namespace rkv::rdma
