// Routes between endpoints, and the headers before datagrams: no device needed.
#include "rkv/rdma/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "common/random.h"

namespace rkv::rdma {
namespace {

constexpr std::uint64_t kSeed = 20'260'802;

std::array<std::uint8_t, 16> ipv4_gid(std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, last};
}

// On RoCE; reports a LID nevertheless, as some adapters do.
Endpoint full() {
  return {.qp_num = 17,
          .packet_sequence = *PacketSequence::make(4711),
          .link_layer = LinkLayer::kEthernet,
          .lid = 0x1234,
          .gid = ipv4_gid(7),
          .mtu = Mtu::k4096,
          .depths = {.initiator = 16, .responder = 128}};
}

GidEntry entry(std::uint8_t last, std::uint32_t index, GidType type = GidType::kRoceV2) {
  GidEntry out;
  out.gid = ipv4_gid(last);
  out.port = 1;
  out.index = index;
  out.type = type;
  out.netdev = "eth0";
  return out;
}

TEST(Routes, TakeTheSmallerMtuAndTheSmallerDepths) {
  Endpoint self = full();
  Endpoint peer = full();
  self.depths = {.initiator = 16, .responder = 4};
  peer.mtu = Mtu::k1024;
  peer.depths = {.initiator = 8, .responder = 2};
  const auto route = choose_route(1, entry(7, 3), self, peer);
  ASSERT_TRUE(route) << to_string(route.error());
  EXPECT_EQ(route->mtu, Mtu::k1024);
  EXPECT_EQ(route->depths, (ReadDepths{.initiator = 2, .responder = 4}));
  peer.depths = {};
  EXPECT_EQ(choose_route(1, entry(7, 3), self, peer)->depths,
            (ReadDepths{.initiator = 1, .responder = 1}))
      << "a peer that tells nothing answers one at least";
  self.depths = {};
  EXPECT_EQ(choose_route(1, entry(7, 3), self, peer)->depths, ReadDepths{}) << "UC has none";
}

TEST(Routes, TheLinkLayerDecidesBetweenLidAndGid) {
  Endpoint self = full();
  Endpoint peer = full();
  auto route = choose_route(1, entry(7, 3), self, peer);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->address.lid, 0) << "a LID that a RoCE adapter shows is not an address";
  ASSERT_TRUE(route->address.global);
  EXPECT_EQ(route->address.global->gid_index, 3U);
  EXPECT_EQ(route->address.global->gid, peer.gid);

  self.link_layer = peer.link_layer = LinkLayer::kInfiniBand;
  route = choose_route(1, entry(7, 3), self, peer);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->address.lid, peer.lid);
  EXPECT_FALSE(route->address.global);
  peer.gid[0] = 0xFE;  // another subnet
  EXPECT_TRUE(choose_route(1, entry(7, 3), self, peer)->address.global);
}

TEST(Routes, WhatCannotBeIsRefusedByName) {
  const auto text = [](const Endpoint& self, const Endpoint& peer) {
    const auto route = choose_route(1, entry(7, 3), self, peer);
    EXPECT_FALSE(route);
    return std::string(route ? "" : route.error().text);
  };
  Endpoint peer = full();
  peer.link_layer = LinkLayer::kInfiniBand;
  EXPECT_NE(text(full(), peer).find("link_layer"), std::string::npos);
  peer = full();
  peer.gid = {};
  EXPECT_NE(text(full(), peer).find("gid"), std::string::npos);
  peer = full();
  peer.qp_num = 0x100'0000;
  EXPECT_NE(text(full(), peer).find("qp_num"), std::string::npos);
  Endpoint self = full();
  self.link_layer = peer.link_layer = LinkLayer::kInfiniBand;
  peer = self;
  peer.lid = 0;
  peer.gid = {};
  EXPECT_NE(text(self, peer).find("neither lid nor gid"), std::string::npos);
}

PortAttributes active_port() {
  PortAttributes port;
  port.number = 1;
  port.state = IBV_PORT_ACTIVE;
  port.ethernet = true;
  return port;
}

TEST(RouteReports, NameTheReasonsAndWhatToLookAt) {
  Endpoint peer = full();
  peer.gid = ipv4_gid(9);
  peer.mtu = Mtu::k1024;
  const auto report = explain_route(active_port(), entry(7, 3), {entry(7, 3)}, full(), peer);
  EXPECT_TRUE(report.problems.empty());
  const std::string text = report.to_string();
  for (const char* part : {"Ethernet", "to GID 192.0.2.9 from GID 192.0.2.7 (index 3", "MTU 1024",
                           "16 READs", "GID index", "UDP port 4791", "eth0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in\n" << text;
  }
}

TEST(RouteReports, AWrongGidIsNamedWithABetterOne) {
  Endpoint peer = full();
  GidEntry link_local = entry(0, 0);
  link_local.gid = {0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  const std::vector<GidEntry> gids = {link_local, entry(7, 3, GidType::kRoceV1), entry(7, 5)};
  auto report = explain_route(active_port(), link_local, gids, full(), peer);
  EXPECT_NE(report.to_string().find("problem: our GID fe80::1 is an IPv6"), std::string::npos);
  EXPECT_NE(report.to_string().find("use GID index 5"), std::string::npos);
  EXPECT_EQ(report.to_string().find("use GID index 3"), std::string::npos) << "which is of v1";
  GidEntry given_by_nobody = entry(0, 0);
  given_by_nobody.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 169, 254, 7, 1};
  report = explain_route(active_port(), given_by_nobody, gids, full(), peer);
  EXPECT_NE(report.to_string().find("problem: a link-local GID"), std::string::npos);
  report = explain_route(active_port(), gids[1], gids, full(), peer);
  EXPECT_NE(report.to_string().find("RoCE v1"), std::string::npos);
  PortAttributes down = active_port();
  down.state = IBV_PORT_DOWN;
  peer.link_layer = LinkLayer::kInfiniBand;
  report = explain_route(down, gids[2], gids, full(), peer);
  EXPECT_EQ(report.problems.size(), 2U);
}

std::array<std::byte, Grh::kBytes> ipv4_header() {
  std::array<std::byte, Grh::kBytes> out{};
  constexpr std::array<unsigned, 20> kHeader = {0x45, 0x08, 0,   84, 0, 0, 0x40, 0, 64, 17,
                                                0,    0,    192, 0,  2, 1, 192,  0, 2,  7};
  std::ranges::transform(kHeader, out.begin() + 20,
                         [](unsigned byte) { return static_cast<std::byte>(byte); });
  return out;
}

TEST(GlobalRouteHeaders, OfRoceOverIpv4AreReadFromTheLastTwentyBytes) {
  auto bytes = ipv4_header();
  auto grh = Grh::parse(bytes);
  ASSERT_TRUE(grh) << to_string(grh.error());
  EXPECT_TRUE(grh->ipv4);
  EXPECT_EQ(grh->type, GidType::kRoceV2);
  EXPECT_EQ(grh->source, ipv4_gid(1));
  EXPECT_EQ(grh->destination, ipv4_gid(7));
  EXPECT_EQ(grh->payload_length, 64);
  EXPECT_EQ(grh->hop_limit, 64);
  EXPECT_EQ(grh->traffic_class, 8);
  // An earlier header left bytes before this one: then the checksum decides.
  bytes[0] = std::byte{0x60};
  EXPECT_FALSE(Grh::parse(bytes));
  bytes[30] = std::byte{0xB6};
  bytes[31] = std::byte{0x88};
  grh = Grh::parse(bytes);
  ASSERT_TRUE(grh) << to_string(grh.error());
  EXPECT_TRUE(grh->ipv4);
}

TEST(GlobalRouteHeaders, OfIpv6AndInfiniBandTellEveryField) {
  std::array<std::byte, Grh::kBytes> bytes{};
  bytes[0] = std::byte{0x6A};
  bytes[1] = std::byte{0xB1};
  bytes[2] = std::byte{0x23};
  bytes[3] = std::byte{0x45};
  bytes[5] = std::byte{48};
  bytes[6] = std::byte{0x1B};
  bytes[7] = std::byte{9};
  bytes[8] = std::byte{0x20};
  bytes[39] = std::byte{7};
  auto grh = Grh::parse(bytes);
  ASSERT_TRUE(grh) << to_string(grh.error());
  EXPECT_EQ(grh->type, GidType::kInfiniBand);
  EXPECT_EQ(grh->traffic_class, 0xAB);
  EXPECT_EQ(grh->flow_label, 0x1'2345U);
  EXPECT_EQ(grh->payload_length, 48);
  EXPECT_EQ(grh->hop_limit, 9);
  EXPECT_EQ(grh->source[0], 0x20);
  EXPECT_EQ(grh->destination[15], 7);
  bytes[6] = std::byte{17};
  EXPECT_EQ(Grh::parse(bytes)->type, GidType::kRoceV2);
  bytes[6] = std::byte{6};
  EXPECT_EQ(Grh::parse(bytes).error().code, Code::kCorrupt);
}

TEST(GlobalRouteHeaders, AnyFortyBytesAreReadOrRefused) {
  Random random(kSeed);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::array<std::byte, Grh::kBytes> bytes = ipv4_header();
    if (i % 2 == 0) {
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(random());
    } else {
      for (std::uint64_t n = random() % 4; n > 0; --n)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto grh = Grh::parse(bytes);
    accepted += grh ? 1 : 0;
    if (!grh) {
      ASSERT_EQ(grh.error().code, Code::kCorrupt);
    }
  }
  EXPECT_GT(accepted, 50'000);
}

TEST(ReceivedDatagrams, LengthsOutsideTheBufferAreRefused) {
  const std::array<std::byte, 64> buffer{};
  EXPECT_EQ(ReceivedDatagram::from(Bytes(buffer), 39).error().code, Code::kCorrupt);
  EXPECT_EQ(ReceivedDatagram::from(Bytes(buffer), 65).error().code, Code::kCorrupt);
  EXPECT_TRUE(ReceivedDatagram::from(Bytes(buffer), 40)->payload().empty());
  EXPECT_EQ(ReceivedDatagram::from(Bytes(buffer), 64)->payload().size(), 24U);
}

TEST(ReplyAddresses, GoBackWhereTheDatagramCameFrom) {
  std::array<std::byte, 64> buffer{};
  std::ranges::copy(ipv4_header(), buffer.begin());
  const auto datagram = ReceivedDatagram::from(Bytes(buffer), 64);
  const DatagramSource source{.qp_num = 17, .lid = 3, .service_level = 2, .has_grh = true};
  const auto back = reply_address(1, source, *datagram, {entry(8, 0), entry(7, 5)});
  ASSERT_TRUE(back) << to_string(back.error());
  ASSERT_TRUE(back->global);
  EXPECT_EQ(back->global->gid, ipv4_gid(1));
  EXPECT_EQ(back->global->gid_index, 5U);
  EXPECT_EQ(back->lid, 3);
  EXPECT_EQ(back->service_level, 2);
  const std::vector<GidEntry> strangers = {entry(8, 0), entry(7, 5, GidType::kRoceV1)};
  EXPECT_EQ(reply_address(1, source, *datagram, strangers).error().code, Code::kNotFound);
  EXPECT_FALSE(reply_address(1, {.qp_num = 17, .lid = 3}, *datagram, {})->global) << "no GRH";
}

TEST(Addresses, FieldsOutOfRangeAreRefusedByName) {
  const auto text = [](const AddressAttributes& attributes) {
    const auto verbs = attributes.to_verbs();
    EXPECT_FALSE(verbs);
    return std::string(verbs ? "" : verbs.error().text);
  };
  EXPECT_EQ(text({.service_level = 16}), "service_level is 0 to 15");
  EXPECT_EQ(text({.path_bits = 128}), "path_bits is 0 to 127");
  EXPECT_EQ(text({.global = GlobalRoute{.gid_index = 256}}), "gid_index is 0 to 255");
  EXPECT_EQ(text({.global = GlobalRoute{.flow_label = 0x10'0000}}), "flow_label is 0 to 1048575");
  EXPECT_TRUE(AddressAttributes{.service_level = 15}.to_verbs());
}

TEST(Addresses, AreTheSameAfterAWayThroughVerbs) {
  const auto there_and_back = [](const AddressAttributes& address) {
    return AddressAttributes::from_verbs(address.to_verbs().value());
  };
  const AddressAttributes local = {.port = 2, .lid = 3, .service_level = 4, .path_bits = 5};
  EXPECT_EQ(there_and_back(local), local);
  AddressAttributes global = local;
  global.global = GlobalRoute{
      .gid = {0xFE, 0x80, 1}, .gid_index = 6, .flow_label = 7, .hop_limit = 8, .traffic_class = 9};
  EXPECT_EQ(there_and_back(global), global);
}

}  // namespace
}  // namespace rkv::rdma
