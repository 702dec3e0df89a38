// Peers that break the protocol, want what they may not have, or take nothing of what they asked
// for: their own connection ends, and nothing else happens (TCPCONN-3, TCPREG-3).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "tests/rdma/transport/tcp/stranger.h"

namespace rkv::rdma::tcp::test {
namespace {

using contract::need;

constexpr std::size_t kRegionBytes = 4096;
constexpr std::uint32_t kBuffers = 4;
constexpr std::uint32_t kBufferBytes = 64 << 10;  // longer than what is kept of a short message

class TcpHostile : public ::testing::Test {
 protected:
  TcpHostile()
      : transport_(need(open_tcp())),
        readable_(need(transport_->allocate(kRegionBytes, Access::kRemoteRead))),
        words_(need(transport_->allocate(kRegionBytes, Access::kRemoteReadAtomic))),
        queue_(need(transport_->create_queue(
            {.receive_buffers = kBuffers, .receive_bytes = kBufferBytes}))),
        listener_(need(transport_->listen("127.0.0.1:0"))) {
    for (std::size_t i = 0; i < kRegionBytes; ++i)
      readable_->bytes()[i] = static_cast<std::byte>(i);
  }

  // A peer that has been accepted.
  std::unique_ptr<Stranger> meet(Access grant = Access::kRemoteReadAtomic) {
    auto stranger = std::make_unique<Stranger>(listener_->port());
    EXPECT_TRUE(stranger->greet());
    auto incoming = need(listener_->next(soon()));
    connection_ =
        need(incoming->accept(*queue_, {.sends_in_flight = 8, .grant = grant}, {}, soon()));
    const auto answer = decode_answer(stranger->hear(kAnswerBytes));
    EXPECT_TRUE(answer && answer->kind == Answer::Kind::kAccept);
    return stranger;
  }
  // The next completion.
  Completion next() {
    std::array<Completion, 1> one{};
    while (queue_->poll(one) == 0) {
      if (soon_.passed()) {
        ADD_FAILURE() << "nothing has completed";
        return {};
      }
      queue_->wait(soon_);
    }
    return one[0];
  }
  void expect_the_end() {
    const Completion one = next();
    EXPECT_EQ(one.kind, Completion::Kind::kDisconnected);
    EXPECT_EQ(one.connection, connection_.get());
    EXPECT_FALSE(connection_->alive());
  }
  Target in(const Region& region, std::uint64_t offset = 0) const {
    return {.address = region.address() + offset, .key = region.remote_key()};
  }
  // A client of ours finds all as it should be.
  void expect_service() {
    const auto transport = need(open_tcp());
    const auto memory = need(transport->allocate(kRegionBytes, Access::kLocal));
    const auto queue = need(transport->create_queue({.receive_buffers = 1, .receive_bytes = 64}));
    std::unique_ptr<Connection> served;
    std::thread server([&] {
      auto incoming = need(listener_->next(soon()));
      served = need(incoming->accept(*queue_, {.sends_in_flight = 8, .grant = Access::kRemoteRead},
                                     {}, soon()));
    });
    const auto connection = need(transport->connect(*queue, {.sends_in_flight = 8},
                                                    fmt::format("127.0.0.1:{}", listener_->port()),
                                                    {}, soon(), nullptr));
    server.join();
    const Operation read{.kind = Operation::Kind::kRead,
                         .local = memory->bytes(),
                         .remote_address = readable_->address(),
                         .remote_key = readable_->remote_key()};
    ASSERT_EQ(need(connection->post({&read, 1})), 1U);
    std::array<Completion, 1> one{};
    while (queue->poll(one) == 0 && !soon_.passed())
      queue->wait(soon_);
    EXPECT_EQ(one[0].status, Completion::Status::kOk);
    EXPECT_TRUE(std::ranges::equal(memory->bytes(), readable_->bytes()));
  }

  const Deadline soon_ = soon();
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<Region> readable_;
  const std::unique_ptr<Region> words_;
  const std::unique_ptr<Queue> queue_;
  const std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connection> connection_;
};

TEST_F(TcpHostile, WhatBreaksTheProtocolEndsTheConnection) {
  constexpr std::uint32_t kTooLong = kLongest + 1;
  const std::array<std::byte, 64> behind{};
  const std::map<std::string, std::vector<std::byte>> wrong{
      {"an unknown kind", frame(static_cast<Kind>(0), 0)},
      {"another unknown kind", frame(static_cast<Kind>(8), 0)},
      {"a message for which no buffer is long enough", frame(Kind::kSend, kBufferBytes + 1)},
      {"a READ that is too long", frame(Kind::kRead, kTooLong, behind)},
      {"data that nobody asked for", frame(Kind::kData, 64, behind)},
      {"no data that nobody asked for", frame(Kind::kData, 0)},
      {"a word that nobody asked for", frame(Kind::kWord, 8, behind)},
      {"a word of another length", frame(Kind::kWord, 4, behind)},
      {"a word to change of another length", frame(Kind::kFetchAdd, 4, behind)},
      {"a refusal of nothing", frame(Kind::kRefused, 0)},
      {"a refusal with something behind it", frame(Kind::kRefused, 8, behind)},
  };
  for (const auto& [what, bytes] : wrong) {
    SCOPED_TRACE(what);
    const auto stranger = meet();
    ASSERT_TRUE(stranger->say(bytes));
    expect_the_end();
    EXPECT_TRUE(stranger->is_at_the_end());
    connection_.reset();
  }
  expect_service();
}

// A user that was revoked: its atomics may lie in the socket by the thousand.
TEST_F(TcpHostile, NoAtomicIsCarriedOutAfterItsConnectionWasEnded) {
  const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(words_->bytes().data()));
  std::vector<std::byte> many;
  for (int i = 0; i < 4'000; ++i) {
    const auto one = atomic_frame(Kind::kFetchAdd, {.target = in(*words_), .compare_or_add = 1});
    many.insert(many.end(), one.begin(), one.end());
  }
  for (int round = 0; round < 50; ++round) {
    word = 0;
    const auto stranger = meet();
    ASSERT_GT(stranger->offer(many), many.size() / 8);
    while (word == 0 && !soon_.passed())
      std::this_thread::yield();
    connection_->abort();
    const std::uint64_t changed = word;
    expect_the_end();
    ASSERT_EQ(word, changed) << "round " << round;
    connection_.reset();
  }
}

TEST_F(TcpHostile, WhatItMayNotReadOrChangeIsRefusedAndNothingElseIsSent) {
  const auto local = need(transport_->allocate(kRegionBytes, Access::kLocal));
  const Target readable = in(*readable_);
  const Target words = in(*words_);
  struct Wrong {
    const char* what;
    Access grant;
    std::vector<std::byte> bytes;
  };
  const Access all = Access::kRemoteReadAtomic;
  const auto add = [](Target target) {
    return atomic_frame(Kind::kFetchAdd, {.target = target, .compare_or_add = 1});
  };
  const Target foreign{.address = readable.address, .key = readable.key ^ 1};
  const Target highest{.address = ~std::uint64_t{0} - 7, .key = readable.key};
  const Target keyless{.address = reinterpret_cast<std::uint64_t>(local->bytes().data()), .key = 0};
  const std::vector<Wrong> wrong{
      {"a key that was not given", all, read_frame(foreign, 8)},
      {"the key of no region", all, read_frame(keyless, 8)},
      {"a byte before", all, read_frame({.address = readable.address - 1, .key = readable.key}, 8)},
      {"a byte beyond", all, read_frame(in(*readable_, kRegionBytes - 7), 8)},
      {"all and one more", all, read_frame(readable, kRegionBytes + 1)},
      {"a sum that overflows", all, read_frame(highest, 64)},
      {"the longest READ", all, read_frame(readable, kLongest)},
      {"a READ that the connection does not grant", Access::kLocal, read_frame(readable, 8)},
      {"a word of a region that has none", all, add(readable)},
      {"a word that the connection does not grant", Access::kRemoteRead, add(words)},
      {"a word that is not aligned", all, add(in(*words_, 4))},
      {"a word beyond", all, add(in(*words_, kRegionBytes))},
  };
  for (const Wrong& one : wrong) {
    SCOPED_TRACE(one.what);
    const auto stranger = meet(one.grant);
    std::vector<std::byte> bytes = one.bytes;
    const auto good = read_frame(readable, 8);
    bytes.insert(bytes.end(), good.begin(), good.end());  // what is asked for behind it
    ASSERT_TRUE(stranger->say(bytes));
    EXPECT_EQ(stranger->hear(kHeaderBytes), frame(Kind::kRefused, 0));
    EXPECT_TRUE(stranger->is_at_the_end());
    stranger->hang_up();
    expect_the_end();
    connection_.reset();
  }
  EXPECT_TRUE(std::ranges::all_of(words_->bytes(), [](std::byte b) { return b == std::byte{}; }));
  expect_service();
}

TEST_F(TcpHostile, OneThatStaysAfterARefusalIsEnded) {
  const auto stranger = meet();
  ASSERT_TRUE(stranger->say(read_frame({}, 8)));
  EXPECT_EQ(stranger->hear(kHeaderBytes), frame(Kind::kRefused, 0));
  expect_the_end();  // though it has not hung up
}

// Answers that a peer asks for and does not take stay within bounds: no further requests are read,
// and the kernel ends the connection when nothing was taken for 3 s.
TEST_F(TcpHostile, OneThatTakesNoAnswersIsEnded) {
  const auto many = [](const std::vector<std::byte>& one) {
    std::vector<std::byte> all;
    for (int i = 0; i < 100; ++i)
      all.insert(all.end(), one.begin(), one.end());
    return all;
  };
  for (const auto& asks :
       {many(read_frame(in(*readable_), kRegionBytes)),
        many(atomic_frame(Kind::kFetchAdd, {.target = in(*words_), .compare_or_add = 1}))}) {
    const auto stranger = meet();
    std::size_t begun = 0;
    while (connection_->alive() && !soon_.passed()) {
      begun = (begun + stranger->offer(Bytes(asks).subspan(begun))) % asks.size();
      std::array<Completion, 1> one{};
      if (queue_->poll(one) != 0) {
        EXPECT_EQ(one[0].kind, Completion::Kind::kDisconnected);
        break;
      }
    }
    EXPECT_FALSE(connection_->alive());
    connection_.reset();
  }
  expect_service();
}

// TCPREG-1: half of a long READ is on its way when its region goes.
TEST_F(TcpHostile, ARegionThatGoesWhileItIsReadEndsTheConnection) {
  constexpr std::size_t kLong = std::size_t{64} << 20;
  auto region = need(transport_->allocate(kLong, Access::kRemoteRead));
  std::ranges::fill(region->bytes(), std::byte{7});
  const auto stranger = meet();
  ASSERT_TRUE(stranger->say(read_frame(in(*region), kLong)));
  EXPECT_EQ(stranger->hear(kHeaderBytes), frame(Kind::kData, kLong));
  region.reset();
  const auto got = stranger->hear(kLong);
  EXPECT_LT(got.size(), kLong);
  EXPECT_TRUE(std::ranges::all_of(got, [](std::byte b) { return b == std::byte{7}; }));
  expect_the_end();
}

// TCPQ-2: half of a message has come, and its buffer is this connection's until it goes.
TEST_F(TcpHostile, HalfAMessageKeepsNoBufferBeyondTheEnd) {
  const std::vector<std::byte> half(kBufferBytes / 2);
  for (std::uint32_t i = 0; i < 3 * kBuffers; ++i) {
    const auto stranger = meet();
    ASSERT_TRUE(stranger->say(frame(Kind::kSend, kBufferBytes, half)));
    if (i % 2 == 0) {
      stranger->hang_up();
      expect_the_end();
    }
    connection_.reset();
  }
  const auto stranger = meet();
  for (std::uint32_t i = 0; i < kBuffers; ++i)
    ASSERT_TRUE(stranger->say(frame(Kind::kSend, 1, Bytes(half).first(1))));
  for (std::uint32_t i = 0; i < kBuffers; ++i)
    EXPECT_EQ(next().kind, Completion::Kind::kReceive);
}

// It would keep the buffer from others.
TEST_F(TcpHostile, OneThatSendsHalfAMessageAndNoMoreIsEnded) {
  const auto stranger = meet();
  const std::vector<std::byte> half(kBufferBytes / 2);
  ASSERT_TRUE(stranger->say(frame(Kind::kSend, kBufferBytes, half)));
  expect_the_end();
  EXPECT_TRUE(stranger->is_at_the_end());
}

// Messages wait for buffers in the socket, and READs behind them too; nothing is lost or changed.
TEST_F(TcpHostile, OneThatSendsMoreThanThereAreBuffersForWaits) {
  const auto stranger = meet();
  constexpr std::uint32_t kMessages = 5 * kBuffers;
  std::vector<std::byte> all;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    const std::vector<std::byte> message(kBufferBytes, static_cast<std::byte>(i));
    const auto one = frame(Kind::kSend, kBufferBytes, message);
    all.insert(all.end(), one.begin(), one.end());
  }
  const auto read = read_frame(in(*readable_), 8);
  all.insert(all.end(), read.begin(), read.end());
  ASSERT_TRUE(stranger->say(all));
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    const Completion one = next();
    ASSERT_EQ(one.kind, Completion::Kind::kReceive);
    ASSERT_EQ(one.message.size(), kBufferBytes);
    EXPECT_EQ(one.message.front(), static_cast<std::byte>(i));
    EXPECT_EQ(one.message.back(), static_cast<std::byte>(i));
    const std::uint32_t buffer = one.receive_buffer;
    queue_->release({&buffer, 1});
  }
  EXPECT_EQ(stranger->hear(kHeaderBytes + 8), frame(Kind::kData, 8, readable_->bytes().first(8)));
}

}  // namespace
}  // namespace rkv::rdma::tcp::test
