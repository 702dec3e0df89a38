// Endpoints on the wire: no device needed.
#include "rkv/rdma/endpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "common/random.h"
#include "rkv/rdma/cm.h"

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

// CRC-32C, bit by bit: independent of the table in the code under test.
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

// The format is a promise to other versions: these bytes must never change.
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
    record.resize(kConnectRequestBytes);  // the connection manager pads so
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
  record.erase(record.end() - 14, record.end());       // depths, Q_Key and checksum are removed
  ASSERT_EQ(record[record.size() - 3], std::byte{6});  // the rest ends with the MTU
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

// Each of these has a fitting checksum.
TEST(EndpointRecord, ThereIsOneFormOnly) {
  const auto refused = [](const std::vector<unsigned>& fields) {
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

// Random bytes, and records with some bytes changed. Every second changed record gets a corrected
// checksum, so that the code behind the check is reached. An accepted record has one form: it is
// written as it was read, except for additions of a later minor version.
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

// So that packets of an earlier connection do not match. Of 1000 numbers two may be equal.
TEST(PacketSequences, AreNotTheSameForEachConnection) {
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint32_t number = PacketSequence::random().number();
    ASSERT_LE(number, PacketSequence::kMax);
    seen.insert(number);
  }
  EXPECT_GT(seen.size(), 900U);
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

}  // namespace
}  // namespace rkv::rdma
