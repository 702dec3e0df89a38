// IncomingDatagram sockets on real verbs.
#include "rkv/rdma/datagram_socket.h"

#include <chrono>
#include <string>
#include <vector>

#include "tests/rdma/support/loopback.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

Device some_device() {
  return need(Device::open_first_active());
}
DatagramSocket socket_of(const Device& device, const DatagramSocketOptions& options = {}) {
  return need(DatagramSocket::open(device, options));
}
std::string text_of(const IncomingDatagram& datagram) {
  return std::string(as_text(datagram.payload));
}

TEST(DatagramSockets, AServerAnswersStrangers) {
  const Device device = some_device();
  DatagramSocket server = socket_of(device);
  std::vector<DatagramSocket> clients;
  for (int i = 0; i < 5; ++i)
    clients.push_back(socket_of(device));
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const std::string question = "question " + std::to_string(i);
      need(clients[i].send(server.endpoint(), as_bytes(question), soon()));
    }
    for (std::size_t i = 0; i < clients.size(); ++i) {
      const IncomingDatagram got = need(server.receive(soon()));
      const std::string answer = "answer to " + text_of(got);
      need(server.reply(got, as_bytes(answer), soon()));
    }
    for (std::size_t i = 0; i < clients.size(); ++i) {
      EXPECT_EQ(text_of(need(clients[i].receive(soon()))),
                "answer to question " + std::to_string(i));
    }
  }
}

// The address for the answer comes only from the completion and the header.
TEST(DatagramSockets, ADatagramTellsItsSender) {
  const Device device = some_device();
  DatagramSocket server = socket_of(device);
  DatagramSocket client = socket_of(device);
  need(client.send(server.endpoint(), as_bytes("x"), soon()));
  const IncomingDatagram got = need(server.receive(soon()));
  EXPECT_EQ(got.qp_num, client.endpoint().qp_num);
  ASSERT_TRUE(got.sender.global.has_value());
  EXPECT_EQ(got.sender.global->gid, client.endpoint().gid);
}

// One peer under two traffic classes: two addresses in turn, of which one is kept. Each datagram
// leaves by the handle of its own address.
TEST(DatagramSockets, HandlesOfMorePeersThanAreKeptAreMadeAgain) {
  const Device device = some_device();
  DatagramSocket server = socket_of(device, {.peers = 1});
  DatagramSocket client = socket_of(device);
  need(client.send(server.endpoint(), as_bytes("question"), soon()));
  IncomingDatagram asked = need(server.receive(soon()));
  ASSERT_TRUE(asked.sender.global.has_value());
  for (int round = 0; round < 3; ++round) {
    for (const std::uint8_t traffic_class : {std::uint8_t{8}, std::uint8_t{16}}) {
      asked.sender.global->traffic_class = traffic_class;
      need(server.reply(asked, as_bytes("again"), soon()));
      const IncomingDatagram got = need(client.receive(soon()));
      EXPECT_EQ(text_of(got), "again");
      ASSERT_TRUE(got.sender.global.has_value());
      EXPECT_EQ(got.sender.global->traffic_class, traffic_class);
    }
  }
}

TEST(DatagramSockets, TheLongestMessageArrivesWholeAndALongerOneIsRefused) {
  const Device device = some_device();
  DatagramSocket server = socket_of(device);
  DatagramSocket client = socket_of(device);
  std::vector<std::byte> message(client.max_bytes());
  for (std::size_t i = 0; i < message.size(); ++i)
    message[i] = static_cast<std::byte>(i * 7);
  need(client.send(server.endpoint(), message, soon()));
  const IncomingDatagram got = need(server.receive(soon()));
  EXPECT_TRUE(std::ranges::equal(got.payload, message));
  need(client.send(server.endpoint(), {}, soon()));
  EXPECT_TRUE(need(server.receive(soon())).payload.empty());
  message.push_back({});
  EXPECT_EQ(client.send(server.endpoint(), message, soon()).error().code, Code::kTooLarge);
}

// The payload is the caller's until its next receive(), whatever comes meanwhile.
TEST(DatagramSockets, BuffersAreUsedAgainButNotTheOneThatIsLent) {
  const Device device = some_device();
  DatagramSocket server = socket_of(device, {.receives = 3});
  DatagramSocket client = socket_of(device);
  for (int i = 0; i < 50; ++i) {
    const std::string first = "first " + std::to_string(i);
    need(client.send(server.endpoint(), as_bytes(first), soon()));
    const IncomingDatagram got = need(server.receive(soon()));
    const std::string second = "second " + std::to_string(i);
    need(client.send(server.endpoint(), as_bytes(second), soon()));
    EXPECT_EQ(text_of(got), first);
    EXPECT_EQ(text_of(need(server.receive(soon()))), second);
  }
}

TEST(DatagramSockets, AnotherKeyIsKeptAway) {
  const Device device = some_device();
  DatagramSocket server = socket_of(device, {.qkey = 17});
  DatagramSocket stranger = socket_of(device, {.qkey = 18});
  DatagramSocket client = socket_of(device, {.qkey = 17});
  need(stranger.send(server.endpoint(), as_bytes("stray"), soon()));
  need(client.send(server.endpoint(), as_bytes("good"), soon()));
  EXPECT_EQ(text_of(need(server.receive(soon()))), "good");
  EXPECT_EQ(server.receive(soon(20)).error().code, Code::kTimeout);
}

TEST(DatagramSockets, OptionsOutOfRangeAreNamed) {
  const Device device = some_device();
  const auto refused = [&](const DatagramSocketOptions& options, std::string_view name) {
    const auto socket = DatagramSocket::open(device, options);
    ASSERT_FALSE(socket);
    EXPECT_EQ(socket.error().code, Code::kInvalidArgument);
    EXPECT_NE(to_string(socket.error()).find(name), std::string::npos) << to_string(socket.error());
  };
  refused({.receives = 0}, "receives");
  refused({.receives = 16385}, "receives");
  refused({.peers = 0}, "peers");
  refused({.peers = 65537}, "peers");
  refused({.qkey = 0x8000'0000}, "qkey");
  EXPECT_FALSE(DatagramSocket::open(device, {.port = 200}));
}

TEST(DatagramSocketsDeathTest, WhatWasMovedFromSaysSo) {
  const Device device = some_device();
  DatagramSocket socket = socket_of(device);
  const DatagramSocket moved = std::move(socket);
  EXPECT_DEATH(std::ignore = socket.max_bytes(), "moved from");  // NOLINT(*use-after-move,*.Move)
}

}  // namespace
}  // namespace rkv::rdma
