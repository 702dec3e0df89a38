// The limits of what one client can take from others over TCP, where a peer decides how fast its
// bytes come: it stops half way, or sends and takes a little now and then. Neighbour.* measures
// times; here things that a client may not take at all must still be there. The hostile peers are
// sockets that speak the transport's protocol themselves. Run with the transport tcp only
// (CMakeLists.txt).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "common/fd.h"
#include "common/wire.h"
#include "rdma/transport/tcp/protocol.h"
#include "rdma/transport/tcp/socket.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

namespace tcp = rdma::tcp;

constexpr std::int64_t kPatienceMs = 30'000;
constexpr std::size_t kLargeValue = (std::size_t{16} << 20) - 64;

ClientOptions patient() {
  ClientOptions options;
  options.timeout = std::chrono::milliseconds(2 * kPatienceMs);
  return options;
}

class Peer {
 public:
  // `receive_buffer`: of the socket; 0: the system's.
  explicit Peer(const std::string& address, int receive_buffer = 0) {
    const auto at = rdma::resolve(*rdma::parse_host_port(address), deadline());
    auto socket = tcp::call(at->front(), deadline());
    if (!socket) return;
    socket_ = std::move(*socket);
    if (receive_buffer != 0) {
      ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    tcp::Hello hello{.receive_bytes = kMaxMessageBytes};
    encode(ConnectRequest{.credits_wanted = 4, .client_nonce = ++nonce_, .name = "peer"},
           hello.data);
    std::array<std::byte, tcp::kAnswerBytes> answered{};
    if (!say(encode(hello)) || !hear(answered)) return;
    const auto answer = tcp::decode_answer(answered);
    if (!answer || answer->kind != tcp::Answer::Kind::kAccept) return;
    const auto accept = decode_connect_accept(answer->data);
    if (!accept) return;
    accept_ = *accept;
    connected_ = true;
  }
  bool connected() const { return connected_; }
  const RemoteWindow& root() const { return accept_.root; }

  bool say(Bytes bytes) const {
    return tcp::send_all(socket_.get(), bytes, deadline()).has_value();
  }
  bool hear(MutableBytes bytes) const {
    return tcp::receive_all(socket_.get(), bytes, deadline()).has_value();
  }
  bool say_frame(tcp::Kind kind, std::size_t length, Bytes behind) const {
    std::vector<std::byte> bytes(tcp::kHeaderBytes);
    encode(tcp::Header{.kind = kind, .length = static_cast<std::uint32_t>(length)}, bytes.data());
    bytes.insert(bytes.end(), behind.begin(), behind.end());
    return say(bytes);
  }
  bool send(Request request) {
    request.sequence = ++sequence_;
    std::vector<std::byte> message(kRequestHeaderBytes + request.key.size() + request.value.size());
    message.resize(encode(request, message));
    return say_frame(tcp::Kind::kSend, message.size(), message);
  }
  bool read(std::uint64_t address, std::uint32_t key, std::size_t length) const {
    std::array<std::byte, tcp::kTargetBytes> target{};
    encode(tcp::Target{.address = address, .key = key}, target.data());
    return say_frame(tcp::Kind::kRead, length, target);
  }
  // Says that a value of so many bytes is to be READ from this end.
  bool put_large(std::string_view key, std::size_t length) {
    std::array<std::byte, kValueSourceBytes> source{};
    encode(ValueSource{.address = 4096,
                       .remote_key = 1,
                       .length = static_cast<std::uint32_t>(length),
                       .digest = 1},
           source);
    return send({.opcode = Opcode::kPutLarge, .key = as_bytes(key), .value = source});
  }
  // Answers the server's next READ, if there is one. Messages on the way are dropped.
  bool answer_read() const {
    for (;;) {
      pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 0) != 1) return true;
      std::array<std::byte, tcp::kHeaderBytes> bytes{};
      if (!hear(bytes)) return false;
      const auto header = tcp::decode_header(bytes.data());
      if (!header) return false;
      std::vector<std::byte> rest(header->kind == tcp::Kind::kRead ? tcp::kTargetBytes
                                                                   : header->length);
      if (!hear(rest)) return false;
      if (header->kind != tcp::Kind::kRead) continue;
      return say_frame(tcp::Kind::kData, header->length,
                       std::vector<std::byte>(header->length, std::byte{7}));
    }
  }

 private:
  static Deadline deadline() {
    static const SteadyClock clock;
    return Deadline::after_ms(clock, kPatienceMs);
  }
  static inline std::uint64_t nonce_ = 0x5EED;
  Fd socket_;
  ConnectAccept accept_{};
  bool connected_ = false;
  std::uint64_t sequence_ = 0;
};

class OverTcp : public ::testing::Test {
 protected:
  static std::deque<Peer> connect(const Server& server, std::size_t count, int receive_buffer = 0) {
    std::deque<Peer> peers;
    for (std::size_t i = 0; i < count; ++i) {
      peers.emplace_back(server.address(), receive_buffer);
      EXPECT_TRUE(peers.back().connected()) << i;
    }
    return peers;
  }
  template <class Condition>
  static ::testing::AssertionResult comes_true(Condition condition) {
    const SteadyClock clock;
    const Deadline deadline = Deadline::after_ms(clock, kPatienceMs);
    while (!condition()) {
      if (deadline.passed()) return ::testing::AssertionFailure() << "it never came";
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return ::testing::AssertionSuccess();
  }
  // So that the store has grown: a peer does not repeat what is refused until it has.
  static void make_room(Client& client) {
    for (int i = 0; i < 6; ++i)
      ASSERT_TRUE(client.put(fmt::format("room-{}", i), std::string(kLargeValue, 'r')));
    for (int i = 0; i < 6; ++i)
      ASSERT_TRUE(client.remove(fmt::format("room-{}", i)));
  }
  // Each peer begins a large value; again each second, since a busy server refuses some, until
  // three are on their way.
  static ::testing::AssertionResult begin_values(Client& client, std::deque<Peer>& peers) {
    int looks = 0;
    return comes_true([&] {
      if (looks++ % 50 == 0) {
        for (std::size_t i = 0; i < peers.size(); ++i)
          (void)peers[i].put_large(fmt::format("theirs-{}", i), kLargeValue);
      }
      return server_stat(client, "large_bytes_under_way") >= 3 * kLargeValue;
    });
  }
  // PUTs of 100 bytes, and one GET of each, are answered as if nobody else was there.
  static void expect_served(Client& client, int rounds) {
    for (int i = 0; i < rounds; ++i) {
      const std::string key = fmt::format("mine-{}", i);
      const auto put = client.put(key, std::string(100, 'm'));
      ASSERT_TRUE(put) << i << ": " << to_string(put.error());
      ASSERT_TRUE(client.get(key)) << i;
    }
  }
};

// Their values could fill the queue to the disk twice over.
TEST_F(OverTcp, WritersOfLargeValuesThatStopLeaveTheQueueToOthers) {
  ScratchDirectory scratch;
  Server server({"--memory", "512MiB", "--threads", "1", "--data-dir", scratch.path("data")});
  Client client = server.client(patient());
  make_room(client);
  ASSERT_TRUE(client.flush());
  const std::uint64_t full_before = server_stat(client, "queue_full");  // of our own writes
  std::deque<Peer> stopped = connect(server, 8);
  ASSERT_TRUE(begin_values(client, stopped));
  ASSERT_TRUE(client.flush());
  EXPECT_LT(server_stat(client, "queue_bytes"), std::uint64_t{1} << 20);
  expect_served(client, 200);
  EXPECT_EQ(server_stat(client, "queue_full"), full_before);
  // Another large value comes through as well: who has stopped is disconnected for it.
  const auto large = client.put("large", std::string(kLargeValue, 'l'));
  EXPECT_TRUE(large) << to_string(large.error());
  EXPECT_GT(server_stat(client, "large_values_refused"), 0U);
  EXPECT_NE(server.process().output().find("its memory answers READs slowly"), std::string::npos)
      << server.process().output();
}

// The same at a small part of the time: a piece of each value comes every second.
TEST_F(OverTcp, WritersOfLargeValuesThatAreSlowLeaveTheQueueToOthers) {
  ScratchDirectory scratch;
  Server server({"--memory", "512MiB", "--threads", "1", "--data-dir", scratch.path("data")});
  Client client = server.client(patient());
  make_room(client);
  ASSERT_TRUE(client.flush());
  const std::uint64_t full_before = server_stat(client, "queue_full");  // of our own writes
  std::deque<Peer> slow = connect(server, 8);
  ASSERT_TRUE(begin_values(client, slow));
  std::atomic<bool> over{false};
  std::thread trickle([&] {
    for (int tick = 0; !over.load(); ++tick) {
      if (tick % 50 == 0) {
        for (Peer& one : slow)
          (void)one.answer_read();  // it may be disconnected
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  expect_served(client, 200);
  EXPECT_EQ(server_stat(client, "queue_full"), full_before);
  const auto large = client.put("large", std::string(kLargeValue, 'l'));
  EXPECT_TRUE(large) << to_string(large.error());
  over.store(true);
  trickle.join();
}

// Without a disk the same values take data memory: not more than a quarter.
TEST_F(OverTcp, WritersOfLargeValuesThatStopLeaveTheMemoryToOthers) {
  Server server({"--memory", "256MiB", "--threads", "1", "--evict"});
  Client client = server.client(patient());
  make_room(client);
  std::deque<Peer> stopped = connect(server, 16);
  for (std::size_t i = 0; i < stopped.size(); ++i)
    ASSERT_TRUE(stopped[i].put_large(fmt::format("stopped-{}", i), kLargeValue));
  ASSERT_TRUE(comes_true([&] { return server_stat(client, "large_values_refused") != 0; }));
  EXPECT_LE(server_stat(client, "large_bytes_under_way"), (std::uint64_t{256} << 20) / 4);
  for (int i = 0; i < 600; ++i)
    ASSERT_TRUE(client.put(fmt::format("mine-{}", i), std::string(200'000, 'm')));
  EXPECT_GT(server_stat(client, "records"), 600U / 2) << "the cache keeps most of its memory";
}

// Each holds as many receive buffers as a client can: four requests wait for their replies, behind
// READs whose answers nobody takes, and a message has begun to come.
TEST_F(OverTcp, ConnectionsThatHoldTheirReceiveBuffersLeaveThoseOfOthers) {
  Server server({"--memory", "64MiB", "--threads", "1"});
  Client client = server.client(patient());
  ASSERT_TRUE(client.put("small", std::string(100, 's')));
  constexpr std::size_t kPeers = 58;  // of 64 places
  std::deque<Peer> greedy = connect(server, kPeers, 65'536);
  for (Peer& one : greedy) {
    for (int i = 0; i < 100; ++i)
      ASSERT_TRUE(one.read(one.root().address, one.root().remote_key, one.root().length));
  }
  // Eight of them are answered as far as the server knows.
  constexpr std::uint64_t kWait = 4;
  for (std::uint64_t i = 0; i < 8 + kWait; ++i) {
    for (Peer& one : greedy)
      ASSERT_TRUE(one.send({.opcode = Opcode::kGet, .key = as_bytes("small")}));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // its credits
  }
  ASSERT_TRUE(comes_true([&] { return server_stat(client, "deferred") >= kPeers * kWait; }))
      << server_stat(client, "deferred");
  for (Peer& one : greedy)
    ASSERT_TRUE(one.say_frame(tcp::Kind::kSend, 100'000, std::vector<std::byte>(20'064)));
  expect_served(client, 50);
  // Also a message that a neighbour sends in two parts, each in a packet of its own.
  EXPECT_TRUE(client.put("long", std::string(100'000, 'l')));
  Client another = server.client(patient());
  expect_served(another, 50);
}

}  // namespace
}  // namespace rkv::testing_support
