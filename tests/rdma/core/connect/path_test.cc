// The path parameters of connections and of address handles: in the device's answers, and in
// packets that leave SoftRoCE.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "rkv/rdma/describe.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint8_t kTrafficClass = 0x68;  // DSCP 26
constexpr std::uint32_t kFlow = 0xB'CDEF;

struct PathEnd {
  Device device = need(Device::open_first_active());
  ProtectionDomain pd = need(ProtectionDomain::allocate(device));
  std::uint8_t port = need(device.first_active_port());
  GidEntry gid = need(device.routable_gid(port));
  CompletionQueue queue = need(CompletionQueue::create(device, {.entries = 64}));
  MemoryRegion memory = need(MemoryRegion::allocate(pd, 4096, AccessFlags::kLocalWrite));

  template <TransportType T>
  PreparedQueuePair<T> prepare() {
    auto out = need(BasicQueuePair<T>::create(pd, queue, queue, {.inline_bytes = 64}));
    need(out.endpoint(port, gid));
    return out;
  }
  // An endpoint of this device that nobody answers at.
  Endpoint peer() const {
    return {.qp_num = 0x12'3456, .link_layer = LinkLayer::kEthernet, .gid = gid.gid};
  }
};

template <class T>
class PathsOf : public ::testing::Test {};
using ConnectedTransports = ::testing::Types<Rc, Uc>;
TYPED_TEST_SUITE(PathsOf, ConnectedTransports);

TYPED_TEST(PathsOf, AHandshakeHaveTheirDefaults) {
  PathEnd end;
  const auto qp = need(end.prepare<TypeParam>().handshake(end.peer()));
  const ibv_global_route found = need(qp.query(IBV_QP_AV)).attributes.ah_attr.grh;
  EXPECT_EQ(found.traffic_class, 0);
  EXPECT_EQ(found.hop_limit, 64);
  EXPECT_EQ(found.flow_label, 0U);
}

TYPED_TEST(PathsOf, AHandshakeAreReportedByTheDevice) {
  PathEnd end;
  const auto qp = need(end.prepare<TypeParam>().handshake(
      end.peer(),
      {.path = {.service_level = 3, .traffic_class = kTrafficClass, .flow_label = kFlow}}));
  const ibv_ah_attr found = need(qp.query(IBV_QP_AV)).attributes.ah_attr;
  EXPECT_EQ(found.grh.traffic_class, kTrafficClass);
  EXPECT_EQ(found.grh.flow_label, kFlow);
  // SoftRoCE forgets the service level, which no packet of it has.
  EXPECT_EQ(found.sl, need(end.device.attributes()).soft_roce ? 0 : 3);
  const std::string text = describe(qp);
  EXPECT_NE(text.find("traffic class 0x68, hop limit 64, flow label 0xbcdef"), std::string::npos)
      << text;
}

TYPED_TEST(PathsOf, AHandshakeOutOfRangeAreRefusedByName) {
  PathEnd end;
  auto prepared = end.prepare<TypeParam>();
  const auto text = [&](const PathParameters& path) {
    const auto qp = std::move(prepared).handshake(end.peer(), {.path = path});
    EXPECT_EQ(qp ? Code::kInternal : qp.error().code, Code::kInvalidArgument);
    return std::string(qp ? "" : qp.error().text);
  };
  EXPECT_EQ(text({.service_level = 16}), "path.service_level is 0 to 15");
  EXPECT_EQ(text({.flow_label = 0x10'0000}), "path.flow_label is 0 to 1048575");
}

// The kernel would replace it without a word.
TYPED_TEST(PathsOf, AHandshakeHaveNoHopLimitOnRoce) {
  PathEnd end;
  const auto qp = end.prepare<TypeParam>().handshake(end.peer(), {.path = {.hop_limit = 17}});
  ASSERT_FALSE(qp);
  EXPECT_EQ(qp.error().code, Code::kUnsupported);
  EXPECT_STREQ(qp.error().call, "ibv_modify_qp");
  EXPECT_NE(std::string(qp.error().text).find("hoplimit"), std::string::npos);
}

// Reads the IP packets that leave by a network interface. Needs the right to open packet sockets.
class Outgoing {
 public:
  explicit Outgoing(const std::string& netdev)
      : socket_(::socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL))) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
    EXPECT_GE(socket_, 0) << std::strerror(errno);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
        << std::strerror(errno);
  }
  Outgoing(const Outgoing&) = delete;
  Outgoing& operator=(const Outgoing&) = delete;
  ~Outgoing() { ::close(socket_); }

  // The header of the next RoCE v2 packet over IPv4 to this queue pair; empty if none came.
  std::optional<std::array<std::uint8_t, 20>> next_to(std::uint32_t qp_num) {
    constexpr std::size_t kUdp = 20;
    constexpr std::size_t kTransport = kUdp + 8;
    for (const Deadline end = soon(); need(wait_readable(socket_, end));) {
      std::array<std::uint8_t, 2048> packet{};
      sockaddr_ll from{};
      socklen_t length = sizeof from;
      const auto count = ::recvfrom(socket_, packet.data(), packet.size(), 0,
                                    reinterpret_cast<sockaddr*>(&from), &length);
      if (count < static_cast<ssize_t>(kTransport + 12)) continue;
      const bool is_roce = packet[0] == 0x45 && packet[9] == IPPROTO_UDP &&
                           (packet[kUdp + 2] << 8 | packet[kUdp + 3]) == 4791;
      const auto to = static_cast<std::uint32_t>(
          packet[kTransport + 5] << 16 | packet[kTransport + 6] << 8 | packet[kTransport + 7]);
      if (from.sll_pkttype != PACKET_OUTGOING || !is_roce || to != qp_num) continue;
      std::array<std::uint8_t, 20> header{};
      std::copy_n(packet.begin(), header.size(), header.begin());
      return header;
    }
    return std::nullopt;
  }

 private:
  int socket_;
};

// An address in the device's network that no host has, with a hardware address in the kernel's
// table of neighbours, so that packets to it leave.
class Nobody {
 public:
  explicit Nobody(const GidEntry& from) : gid_(from.gid) {
    gid_[15] ^= 0x2A;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, &gid_[12], 4);
    std::memcpy(&entry_.arp_pa, &address, sizeof address);
    entry_.arp_ha.sa_family = ARPHRD_ETHER;
    entry_.arp_ha.sa_data[0] = 2;  // locally administered
    entry_.arp_flags = ATF_COM | ATF_PERM;
    from.netdev.copy(static_cast<char*>(entry_.arp_dev), sizeof entry_.arp_dev - 1);
    // Refused by an interface without ARP, which needs no entry.
    added_ = ::ioctl(socket_, SIOCSARP, &entry_) == 0;
  }
  Nobody(const Nobody&) = delete;
  Nobody& operator=(const Nobody&) = delete;
  ~Nobody() {
    if (added_) ::ioctl(socket_, SIOCDARP, &entry_);
    ::close(socket_);
  }
  const std::array<std::uint8_t, 16>& gid() const { return gid_; }

 private:
  std::array<std::uint8_t, 16> gid_;
  int socket_ = ::socket(AF_INET, SOCK_DGRAM, 0);
  arpreq entry_{};
  bool added_ = false;
};

TYPED_TEST(PathsOf, AConnectionAreInThePacketsThatLeave) {
  PathEnd end;
  if (!need(end.device.attributes()).soft_roce) {
    GTEST_SKIP() << "packets of an adapter do not pass through the kernel";
  }
  ASSERT_TRUE(end.gid.is_ipv4());
  const Nobody nobody(end.gid);
  Endpoint peer = end.peer();
  peer.gid = nobody.gid();
  Outgoing packets(end.gid.netdev);
  const auto sent = [&](std::uint32_t qp_num, const PathParameters& path) {
    peer.qp_num = qp_num;
    auto qp = need(end.prepare<TypeParam>().handshake(peer, {.path = path}));
    auto batch = qp.batch();
    batch.send(1, OpFlags::kSignaled, inlined(as_bytes("to nobody")));
    need(std::move(batch).submit());
    return packets.next_to(qp_num);
  };
  const auto marked = sent(0x12'0001, {.traffic_class = kTrafficClass});
  ASSERT_TRUE(marked) << "no packet left " << end.gid.netdev;
  EXPECT_EQ((*marked)[1], kTrafficClass);
  const auto plain = sent(0x12'0002, {});
  ASSERT_TRUE(plain);
  EXPECT_EQ((*plain)[1], 0);
}

TEST(PathsOfDatagrams, AreInTheHeaderThatTheReceiverGets) {
  PathEnd from;
  PathEnd to;
  auto prepared = to.prepare<Ud>();
  const Endpoint peer = need(prepared.endpoint(to.port, to.gid));
  const ReceiveRequest receive{.wr_id = 1, .buffer = to.memory.local(0, 256)};
  need(prepared.post_receives({&receive, 1}));
  const auto receiver = need(std::move(prepared).activate(peer.qkey));
  auto sender = need(from.prepare<Ud>().activate(1));
  const AddressHandle address =
      need(AddressHandle::create(from.pd, {.port = from.port,
                                           .service_level = 3,
                                           .global = GlobalRoute{.gid = to.gid.gid,
                                                                 .gid_index = from.gid.index,
                                                                 .flow_label = kFlow,
                                                                 .hop_limit = 17,
                                                                 .traffic_class = kTrafficClass}}));
  auto batch = sender.batch();
  batch.op(2).signaled().to(address, peer.qp_num, peer.qkey).send(inlined(as_bytes("hello")));
  need(std::move(batch).submit());
  const WorkCompletion done = need(to.queue.wait_one(soon(), "receive"));
  const auto got = need(ReceivedDatagram::from(to.memory.local(0, 256), done.byte_length));
  EXPECT_EQ(as_text(got.payload()), "hello");
  const Grh grh = need(Grh::parse(got.route()));
  EXPECT_EQ(grh.traffic_class, kTrafficClass);
  // The kernel puts the hop limit of its route in place of ours.
  EXPECT_EQ(grh.hop_limit, 64);
  // IPv4 has no flow label, and SoftRoCE writes 0 over IPv6.
  const bool none = grh.ipv4 || need(to.device.attributes()).soft_roce;
  EXPECT_EQ(grh.flow_label, none ? 0 : kFlow);
}

}  // namespace
}  // namespace rkv::rdma
