// Peers that do not keep to the protocol, on raw connections; a well-behaved client beside them
// must not notice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/random.h"
#include "common/wire.h"
#include "rdma/choose.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

class Hostile : public ::testing::Test {
 protected:
  // It breaks the rules more often than a client may.
  Hostile() : server_({"--memory", "32MiB", "--max-offences", "0"}), neighbour_(server_.client()) {
    auto chosen = rdma::choose_for_client(
        {.kind = test_transport_kind(), .verbs = {.address = server_.address()}});
    EXPECT_TRUE(chosen) << to_string(chosen.error());
    transport_ = std::move(chosen->transport);
    auto queue = transport_->create_queue({.receive_buffers = 16, .receive_bytes = 4096});
    EXPECT_TRUE(queue) << to_string(queue.error());
    queue_ = std::move(*queue);
    EXPECT_TRUE(neighbour_.put("mine", "untouched"));
  }

  Result<std::unique_ptr<rdma::Connection>> connect(Bytes private_data) {
    rejection_ = {};
    return transport_->connect(*queue_, {.grant = rdma::Access::kRemoteRead}, server_.address(),
                               private_data, Deadline::after_ms(clock_, 20'000), &rejection_);
  }
  std::unique_ptr<rdma::Connection> connect_properly() {
    std::byte data[kConnectRequestBytes];
    encode(ConnectRequest{.credits_wanted = 4, .name = "hostile"}, data);
    auto connection = connect(data);
    RKV_CHECK(connection.has_value(),
              (to_string(connection.error()) + "\n" + server_.process().output()).c_str());
    return std::move(*connection);
  }
  // Why the server refused, in its own words.
  std::string refusal() const {
    const auto reject =
        decode_connect_reject({rejection_.reason, std::max<std::size_t>(rejection_.length, 0)});
    return reject ? std::string(reject->text) : "(nothing readable)";
  }

  // Sends bytes and waits until they are answered or the connection ends.
  void send(rdma::Connection& connection, Bytes bytes) {
    const auto region =
        transport_->allocate(round_up(bytes.size() + 1, 4096), rdma::Access::kLocal);
    ASSERT_TRUE(region) << to_string(region.error());
    std::copy(bytes.begin(), bytes.end(), (*region)->bytes().begin());
    const rdma::Operation operation =
        rdma::Operation::send((*region)->bytes().first(bytes.size()), (*region)->local_key(), 1);
    if (!connection.post({&operation, 1})) return;  // ended already
    bool sent = false;
    bool answered = false;
    bool nudged = false;
    const Deadline deadline = Deadline::after_ms(clock_, 20'000);
    const Deadline soon = Deadline::after_ms(clock_, 1000);
    while (!(sent && answered) && !deadline.passed()) {
      rdma::Completion done[16];
      const std::size_t count = queue_->poll(done);
      for (std::size_t i = 0; i < count; ++i) {
        if (done[i].kind == rdma::Completion::Kind::kDisconnected) return;
        if (done[i].kind == rdma::Completion::Kind::kSend) sent = true;
        if (done[i].kind == rdma::Completion::Kind::kReceive) {
          answered = true;
          queue_->release({&done[i].receive_buffer, 1});
        }
      }
      if (count == 0) queue_->wait(nudged ? deadline : soon);
      if (soon.passed() && !std::exchange(nudged, true)) nudge(connection);
    }
    EXPECT_TRUE(sent && answered) << "neither answered nor ended, sent " << sent << ", answered "
                                  << answered << ", " << bytes.size() << " bytes, the first "
                                  << std::to_integer<int>(bytes[0]) << "\n"
                                  << server_.process().output();
  }

  // A READ, as clients probe a silent server: the server's program does not notice it. Soft-iWARP
  // leaves a message that comes while it establishes the connection until another one comes.
  void nudge(rdma::Connection& connection) {
    const auto accept = decode_connect_accept(connection.private_data());
    auto sink = transport_->allocate(4096, rdma::Access::kLocal);
    ASSERT_TRUE(accept && sink);
    const rdma::Operation read =
        rdma::Operation::read((*sink)->bytes().first(8), (*sink)->local_key(), accept->root.address,
                              accept->root.remote_key, 2);
    if (!connection.post({&read, 1})) return;
    nudges_.push_back(std::move(*sink));  // the device may write to it later
  }

  void TearDown() override {
    const auto got = neighbour_.get("mine");
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_EQ(got->value, "untouched");
    EXPECT_TRUE(neighbour_.put("mine", "still writable"));
    EXPECT_EQ(neighbour_.stats().reconnects, 0U);
    EXPECT_TRUE(server_.process().running()) << server_.process().output();
  }

  SteadyClock clock_;
  Server server_;
  Client neighbour_;
  std::unique_ptr<rdma::Transport> transport_;
  std::unique_ptr<rdma::Queue> queue_;
  std::vector<std::unique_ptr<rdma::Region>> nudges_;
  rdma::Rejection rejection_;
};

TEST_F(Hostile, AStrangersPrivateDataIsRefusedWithASentence) {
  std::byte junk[kConnectRequestBytes];
  Random random(1);
  for (std::byte& b : junk)
    b = static_cast<std::byte>(random());
  const auto connection = connect(junk);
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kRejected);
  EXPECT_EQ(refusal(), "the client's data is not an rkv connection request");
  EXPECT_FALSE(connect({}));
}

TEST_F(Hostile, AnotherVersionIsRefusedWithASentence) {
  std::byte data[kConnectRequestBytes];
  encode(ConnectRequest{.name = "from the future"}, data);
  data[4] = std::byte{77};
  const auto connection = connect(data);
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kRejected);
  EXPECT_EQ(refusal(), "the client speaks version 77 of the wire format, and this server version " +
                           std::to_string(kWireVersion) + ": install the same rkv on both sides");
}

TEST_F(Hostile, RandomMessagesAreAnsweredOrEndTheConnection) {
  Random random(2);
  auto connection = connect_properly();
  for (int i = 0; i < 200; ++i) {
    if (!connection->alive()) connection = connect_properly();
    std::vector<std::byte> bytes(1 + random.below(300));
    for (std::byte& b : bytes)
      b = static_cast<std::byte>(random());
    if (random.below(2) == 0)
      bytes[0] = static_cast<std::byte>(1 + random.below(std::to_underlying(kLastOpcode)));
    send(*connection, bytes);
  }
}

TEST_F(Hostile, TruncatedAndStretchedRequestsAreRefusedOneByOne) {
  auto connection = connect_properly();
  std::vector<std::byte> good(256);
  good.resize(encode(Request{.opcode = Opcode::kPut,
                             .sequence = 1,
                             .key = as_bytes("mine"),
                             .value = as_bytes("overwritten by a broken request")},
                     good));
  for (std::size_t length = 1; length < good.size(); length += 7) {
    if (!connection->alive()) connection = connect_properly();
    send(*connection, Bytes(good).first(length));
  }
  auto longer = good;
  longer.resize(good.size() + 50);
  if (!connection->alive()) connection = connect_properly();
  send(*connection, longer);
}

// No client can write the server's memory: the try costs it its own connection, nobody else's. A
// device without atomics refuses to post them.
TEST_F(Hostile, AtomicsOnTheServersMemoryAreRefusedByTheDevice) {
  auto connection = connect_properly();
  const auto accept = decode_connect_accept(connection->private_data());
  ASSERT_TRUE(accept);
  const auto region = transport_->allocate(4096, rdma::Access::kLocal);
  ASSERT_TRUE(region);
  rdma::Operation cas = rdma::Operation::read((*region)->bytes().first(8), (*region)->local_key(),
                                              accept->root.address, accept->root.remote_key, 7);
  cas.kind = rdma::Operation::Kind::kCompareSwap;
  cas.swap = ~std::uint64_t{0};
  const auto posted = connection->post({&cas, 1});
  if (!transport_->has_atomics()) {
    ASSERT_FALSE(posted);
    EXPECT_EQ(posted.error().code, Code::kUnsupported);
    return;
  }
  ASSERT_TRUE(posted) << to_string(posted.error());
  const Deadline deadline = Deadline::after_ms(clock_, 20'000);
  bool refused = false;
  while (!refused && !deadline.passed()) {
    rdma::Completion done[4];
    const std::size_t count = queue_->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      if (done[i].kind != rdma::Completion::Kind::kCompareSwap) continue;
      EXPECT_EQ(done[i].status, rdma::Completion::Status::kRemoteAccess);
      refused = true;
    }
    if (count == 0) queue_->wait(deadline);
  }
  EXPECT_TRUE(refused);
}

// ---- values that the server is to READ

class HostileValues : public Hostile {
 protected:
  HostileValues() {
    auto memory = transport_->allocate(kBytes, rdma::Access::kRemoteRead);
    EXPECT_TRUE(memory) << to_string(memory.error());
    memory_ = std::move(*memory);
    const std::string old(300'000, 'o');
    EXPECT_TRUE(neighbour_.put("large", old));
    before_ = server_stat(neighbour_, "data_bytes_used");
  }
  ValueSource truth() const {
    return {.address = memory_->address(),
            .remote_key = memory_->remote_key(),
            .length = kBytes,
            .digest = 0};
  }
  std::vector<std::byte> request_for(const ValueSource& source) const {
    std::vector<std::byte> value(kValueSourceBytes);
    encode(source, value);
    std::vector<std::byte> bytes(kRequestHeaderBytes + 5 + value.size());
    encode(
        Request{
            .opcode = Opcode::kPutLarge, .sequence = 1, .key = as_bytes("large"), .value = value},
        bytes);
    return bytes;
  }
  // The old value is there, and nothing else is held.
  void expect_untouched() {
    const auto got = neighbour_.get("large");
    ASSERT_TRUE(got) << to_string(got.error());
    EXPECT_TRUE(got->value == std::string(300'000, 'o'));
    const Deadline deadline = Deadline::after_ms(clock_, 20'000);
    while (server_stat(neighbour_, "data_bytes_used") != before_ && !deadline.passed()) {
    }
    EXPECT_EQ(server_stat(neighbour_, "data_bytes_used"), before_) << "a block has leaked";
  }

  static constexpr std::uint32_t kBytes = 1U << 20;
  std::unique_ptr<rdma::Region> memory_;
  std::uint64_t before_ = 0;
};

TEST_F(HostileValues, OneThatIsNotWhatItsDigestSaysIsNotStored) {
  auto connection = connect_properly();
  send(*connection, request_for(truth()));
  EXPECT_TRUE(connection->alive());
  connection.reset();
  expect_untouched();
}

TEST_F(HostileValues, PlacesThatAreNotTheClientsEndItsConnectionAlone) {
  std::vector<ValueSource> lies(6, truth());
  lies[0].remote_key ^= 0x5A;
  lies[1].address += kBytes;
  lies[2].address -= 4096;
  lies[3].length = 2 * kBytes;  // begins well
  lies[4].address = 0;
  lies[5].address = ~std::uint64_t{0} - kBytes + 1;
  for (const ValueSource& lie : lies) {
    auto connection = connect_properly();
    send(*connection, request_for(lie));
    EXPECT_FALSE(connection->alive()) << lie.address << " " << lie.remote_key;
    connection.reset();
    expect_untouched();
  }
}

TEST_F(HostileValues, MemoryThatGoesAwayEndsTheConnection) {
  for (int i = 0; i < 5; ++i) {
    auto connection = connect_properly();
    const ValueSource source = truth();
    memory_.reset();
    send(*connection, request_for(source));
    EXPECT_FALSE(connection->alive());
    connection.reset();
    memory_ = std::move(*transport_->allocate(kBytes, rdma::Access::kRemoteRead));
    expect_untouched();
  }
}

TEST_F(HostileValues, LengthsBeyondTheLimitsAreRefused) {
  auto connection = connect_properly();
  for (const std::uint32_t length : {0U, 5U, 131072U, (16U << 20) + 1, ~0U}) {
    ValueSource source = truth();
    source.length = length;
    send(*connection, request_for(source));
    ASSERT_TRUE(connection->alive()) << length;
  }
  connection.reset();
  expect_untouched();
}

}  // namespace
}  // namespace rkv::testing_support
