// Endpoints on the wire, routes between them, and the headers before datagrams: no device needed.
#include "rkv/rdma/endpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "common/random.h"
#include "rkv/rdma/cm.h"
#include "rkv/rdma/route.h"

namespace rkv::rdma {
namespace {

static_assert(Endpoint::kMaxWireBytes <= kConnectRequestBytes, "it fits into a connect request");

constexpr std::uint64_t kSeed = 20'260'801;

std::array<std::uint8_t, 16> ipv4_gid(std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, last};
}

Endpoint full() {
  return {.qp_num = 0x00BE'EF01,
          .packet_sequence = *PacketSequence::make(0xFF'FFFE),
          .link_layer = LinkLayer::kEthernet,
          .lid = 0x1234,
          .gid = ipv4_gid(7),
          .mtu = Mtu::k4096,
          .depths = {.initiator = 16, .responder = 128},
          .qkey = 0x1EE7'C0DE};
}

Endpoint random_endpoint(Random& random) {
  constexpr std::array kMtus = {Mtu::k256, Mtu::k512, Mtu::k1024, Mtu::k2048, Mtu::k4096};
  Endpoint out;
  out.qp_num = random() & Endpoint::kMaxQueuePairNumber;
  out.packet_sequence = *PacketSequence::make(random() & PacketSequence::kMax);
  out.link_layer = random() % 2 == 0 ? LinkLayer::kInfiniBand : LinkLayer::kEthernet;
  out.mtu = kMtus[random() % kMtus.size()];
  if (random() % 2 == 0) out.lid = static_cast<std::uint16_t>(random());
  if (random() % 2 == 0) {
    for (std::uint8_t& byte : out.gid)
      byte = static_cast<std::uint8_t>(random());
  }
  if (random() % 2 == 0) {
    out.depths = {.initiator = static_cast<std::uint8_t>(random()),
                  .responder = static_cast<std::uint8_t>(random())};
  }
  if (random() % 2 == 0) out.qkey = static_cast<std::uint32_t>(random());
  return out;
}

std::vector<std::byte> bytes_of_record(const Endpoint& endpoint) {
  const auto wire = endpoint.to_bytes();
  EXPECT_TRUE(wire) << to_string(wire.error());
  return {wire->bytes().begin(), wire->bytes().end()};
}

// CRC-32C, bit by bit: apart from the table of the code under test.
std::uint32_t slow_crc32c(Bytes bytes) {
  std::uint32_t crc = ~0U;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F6'3B78U : 0U);
  }
  return ~crc;
}

// Writes length and checksum of a record that a test has changed.
void seal(std::vector<std::byte>& record) {
  record[3] = static_cast<std::byte>(record.size());
  const std::uint32_t crc = slow_crc32c(Bytes(record).first(record.size() - 4));
  for (std::size_t i = 0; i < 4; ++i)
    record[record.size() - 4 + i] = static_cast<std::byte>(crc >> (24 - 8 * i));
}

Code code_of(const Result<Endpoint>& result) {
  return result ? Code::kInternal : result.error().code;
}

TEST(EndpointRecord, EveryFieldFitsIntoAConnectRequest) {
  const auto record = bytes_of_record(full());
  EXPECT_EQ(record.size(), Endpoint::kMaxWireBytes);
  const auto back = Endpoint::from_bytes(record);
  ASSERT_TRUE(back) << to_string(back.error());
  EXPECT_EQ(*back, full());
}

// The form is a promise to other versions: these bytes must never change.
TEST(EndpointRecord, IsTheBytesThatItAlwaysWas) {
  const Endpoint small{.qp_num = 0x11,
                       .packet_sequence = *PacketSequence::make(0x22'3344),
                       .link_layer = LinkLayer::kInfiniBand,
                       .lid = 5,
                       .mtu = Mtu::k2048};
  constexpr std::array<unsigned, 24> kExpected = {
      'e', 'P', 0x10, 28, 1, 3, 0, 0, 0x11, 2, 3, 0x22, 0x33, 0x44, 3, 1, 1, 4, 2, 0, 5, 6, 1, 4};
  const auto record = bytes_of_record(small);
  ASSERT_EQ(record.size(), kExpected.size() + 4);
  for (std::size_t i = 0; i < kExpected.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>(record[i]), kExpected[i]) << i;
  auto sealed = record;
  seal(sealed);
  EXPECT_EQ(sealed, record);
}

TEST(EndpointRecord, ComesBackAsItWas) {
  Random random(kSeed);
  for (int i = 0; i < 20'000; ++i) {
    const Endpoint endpoint = random_endpoint(random);
    auto record = bytes_of_record(endpoint);
    record.resize(kConnectRequestBytes);  // as the connection manager pads
    const auto back = Endpoint::from_bytes(record);
    ASSERT_TRUE(back) << to_string(back.error());
    ASSERT_EQ(*back, endpoint);
  }
}

TEST(EndpointRecord, EveryTruncationIsFound) {
  const auto record = bytes_of_record(full());
  for (std::size_t length = 0; length < record.size(); ++length) {
    EXPECT_EQ(code_of(Endpoint::from_bytes(Bytes(record).first(length))), Code::kCorrupt) << length;
  }
}

TEST(EndpointRecord, EveryFlippedBitIsFound) {
  Random random(kSeed);
  for (int round = 0; round < 100; ++round) {
    auto record = bytes_of_record(random_endpoint(random));
    record.resize(kConnectRequestBytes);
    for (std::size_t bit = 0; bit < record.size() * 8; ++bit) {
      record[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      ASSERT_FALSE(Endpoint::from_bytes(record)) << "bit " << bit;
      record[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    }
  }
}

TEST(EndpointRecord, ALaterMinorVersionMayHaveFieldsMore) {
  auto record = bytes_of_record(full());
  record.erase(record.end() - 14, record.end());       // makes room: depths, Q_Key and checksum go
  ASSERT_EQ(record[record.size() - 3], std::byte{6});  // what remains ends with the MTU
  for (const unsigned byte : {200U, 3U, 1U, 2U, 3U, 0U, 0U, 0U, 0U})
    record.push_back(static_cast<std::byte>(byte));
  seal(record);
  EXPECT_EQ(code_of(Endpoint::from_bytes(record)), Code::kCorrupt) << "not in this version";
  record[2] = std::byte{0x11};
  seal(record);
  const auto back = Endpoint::from_bytes(record);
  ASSERT_TRUE(back) << to_string(back.error());
  Endpoint expected = full();
  expected.depths = {};
  expected.qkey = 0;
  EXPECT_EQ(*back, expected);
}

TEST(EndpointRecord, AnotherMajorVersionIsRefused) {
  auto record = bytes_of_record(full());
  for (const unsigned version : {0x00U, 0x0FU, 0x20U, 0xF0U}) {
    record[2] = static_cast<std::byte>(version);
    seal(record);
    EXPECT_EQ(code_of(Endpoint::from_bytes(record)), Code::kVersionMismatch) << version;
  }
}

// Each of these has a checksum that fits.
TEST(EndpointRecord, ThereIsOneFormOnly) {
  const auto refused = [](std::vector<unsigned> fields) {
    std::vector<std::byte> record = {std::byte{'e'}, std::byte{'P'}, std::byte{0x10}, std::byte{0}};
    for (const unsigned byte : fields)
      record.push_back(static_cast<std::byte>(byte));
    record.resize(record.size() + 4);
    seal(record);
    return code_of(Endpoint::from_bytes(record)) == Code::kCorrupt;
  };
  EXPECT_FALSE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3})) << "the twin";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1})) << "no MTU";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 3, 6, 1, 3})) << "link layer 3";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 0})) << "MTU 0";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 6})) << "MTU 6";
  EXPECT_TRUE(refused({2, 3, 0, 0, 1, 1, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3})) << "order";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3})) << "twice";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 4, 2, 0, 0, 6, 1, 3})) << "LID 0";
  EXPECT_TRUE(refused({1, 2, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3})) << "a length";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3, 7, 9, 1})) << "past the end";
  EXPECT_TRUE(refused({1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3, 7})) << "half a field";
  EXPECT_TRUE(refused({0, 0, 1, 3, 0, 0, 1, 2, 3, 0, 0, 1, 3, 1, 1, 6, 1, 3})) << "type 0";
}

// Bytes from nowhere, and records with some bytes changed and, of every second, the checksum put
// right, so that what is behind it is reached. Whatever is accepted has one form: it is written as
// it was read, but for what a later minor version adds.
TEST(EndpointRecord, AnyBytesAreAcceptedInOneFormOrRefused) {
  Random random(kSeed);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> bytes;
    if (i % 4 == 0) {
      bytes.resize(random() % 80);
      for (std::byte& byte : bytes)
        byte = static_cast<std::byte>(random());
    } else {
      bytes = bytes_of_record(random_endpoint(random));
      for (std::uint64_t n = random() % 4; n > 0; --n)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 40);
      if (random() % 8 == 0) bytes.resize(std::max<std::size_t>(8, random() % 60));
      if (i % 2 == 0 && bytes.size() >= 8) seal(bytes);
    }
    const auto endpoint = Endpoint::from_bytes(bytes);
    if (!endpoint) {
      ASSERT_TRUE(endpoint.error().code == Code::kCorrupt ||
                  endpoint.error().code == Code::kVersionMismatch);
      continue;
    }
    ++accepted;
    if (bytes[2] != std::byte{0x10}) continue;
    bytes.resize(std::to_integer<std::size_t>(bytes[3]));
    ASSERT_EQ(bytes_of_record(*endpoint), bytes);
  }
  EXPECT_GT(accepted, 10'000);
}

TEST(EndpointRecord, ANumberAbove24BitsIsNotWritten) {
  Endpoint endpoint = full();
  endpoint.qp_num = 0x100'0000;
  EXPECT_EQ(endpoint.to_bytes().error().code, Code::kInvalidArgument);
  EXPECT_EQ(endpoint.to_short_bytes().error().code, Code::kInvalidArgument);
  EXPECT_FALSE(PacketSequence::make(0x100'0000));
  EXPECT_TRUE(PacketSequence::make(0xFF'FFFF));
  EXPECT_LE(PacketSequence::random().number(), PacketSequence::kMax);
  EXPECT_EQ(mtu_of_bytes(1024), Mtu::k1024);
  EXPECT_FALSE(mtu_of_bytes(1500));
}

TEST(ShortEndpoint, Is27BytesBigEndian) {
  const Endpoint endpoint{.qp_num = 0x11'2233,
                          .packet_sequence = *PacketSequence::make(0x44'5566),
                          .lid = 0x7788,
                          .gid = ipv4_gid(9)};
  const auto bytes = endpoint.to_short_bytes();
  ASSERT_TRUE(bytes);
  constexpr std::array<unsigned, 27> kExpected = {
      1, 0, 0x11, 0x22, 0x33, 0x77, 0x88, 0, 0, 0, 0,    0,    0,   0,
      0, 0, 0,    0xFF, 0xFF, 192,  0,    2, 9, 0, 0x44, 0x55, 0x66};
  for (std::size_t i = 0; i < kExpected.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>((*bytes)[i]), kExpected[i]) << i;
  const auto back = Endpoint::from_short_bytes(*bytes, full());
  ASSERT_TRUE(back) << to_string(back.error());
  EXPECT_EQ(back->qp_num, endpoint.qp_num);
  EXPECT_EQ(back->packet_sequence, endpoint.packet_sequence);
  EXPECT_EQ(back->lid, endpoint.lid);
  EXPECT_EQ(back->gid, endpoint.gid);
  EXPECT_EQ(back->mtu, Mtu::k4096) << "as on our side";
  EXPECT_EQ(back->depths, ReadDepths{});
}

TEST(ShortEndpoint, AnyBytesAreAcceptedInOneFormOrRefused) {
  Random random(kSeed);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::array<std::byte, Endpoint::kShortWireBytes> bytes{};
    for (std::byte& byte : bytes)
      byte = static_cast<std::byte>(random());
    if (random() % 2 == 0) bytes[0] = static_cast<std::byte>(random() % 3);
    if (random() % 2 == 0) bytes[1] = bytes[23] = std::byte{0};
    if (random() % 8 == 0) std::ranges::fill_n(bytes.begin() + 7, 16, std::byte{0});
    const auto endpoint = Endpoint::from_short_bytes(bytes, full());
    if (!endpoint) {
      ASSERT_EQ(endpoint.error().code, Code::kCorrupt);
      continue;
    }
    ++accepted;
    ASSERT_EQ(*endpoint->to_short_bytes(), bytes);
  }
  EXPECT_GT(accepted, 10'000);
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
  EXPECT_EQ(route->address.lid, 0) << "a LID that a RoCE adapter shows is no address";
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
  // Leavings of an earlier header before it: then the checksum decides.
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

}  // namespace
}  // namespace rkv::rdma
