// Callers of a TCP port that say nothing, or nonsense, and servers that do.
#include "rdma/transport/tcp/listener.h"

#include <thread>

#include "tests/rdma/transport/tcp/stranger.h"

namespace rkv::rdma::tcp::test {
namespace {

using contract::need;

template <std::size_t length>
std::vector<std::byte> bytes_of(const std::array<std::byte, length>& array) {
  return {array.begin(), array.end()};
}

class TcpPort : public ::testing::Test {
 protected:
  // The next caller that has said hello.
  std::unique_ptr<Incoming> next() { return need(listener_->next(soon())); }
  void listen_once() {
    const SteadyClock clock;
    EXPECT_EQ(need(listener_->next(Deadline::after_ms(clock, 0))), nullptr);
  }
  // Lets the listener hear until `done`; nobody that it hears may be introduced.
  template <class Done>
  void listen_until(Done done) {
    const SteadyClock clock;
    for (const Deadline limit = soon(); !done() && !limit.passed();)
      EXPECT_EQ(need(listener_->next(Deadline::after_ms(clock, 10))), nullptr);
    EXPECT_TRUE(done());
  }
  static bool has_ended(const Stranger& stranger) {
    std::byte ignored{};
    const ssize_t got = ::recv(stranger.fd(), &ignored, 1, MSG_DONTWAIT | MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  const std::unique_ptr<Transport> transport_ = need(open_tcp());
  const std::unique_ptr<Listener> listener_ = need(transport_->listen("127.0.0.1:0"));
};

TEST_F(TcpPort, NonsenseIsNoGreeting) {
  std::array<std::byte, kHelloBytes> nothing{};
  auto no_length = encode(Hello{.receive_bytes = 0});
  auto too_long = encode(Hello{.receive_bytes = kLongest + 1});
  for (const auto& bytes : {nothing, no_length, too_long}) {
    const Stranger stranger(listener_->port());
    ASSERT_TRUE(stranger.say(bytes));
    listen_until([&] { return has_ended(stranger); });
  }
}

TEST_F(TcpPort, AnotherVersionIsToldOurs) {
  const Stranger stranger(listener_->port());
  ASSERT_TRUE(stranger.say(encode(Hello{.version = kVersion + 1, .receive_bytes = 1})));
  listen_until([&] {
    pollfd heard{.fd = stranger.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&heard, 1, 0) == 1;
  });
  EXPECT_EQ(stranger.hear(kAnswerBytes),
            bytes_of(encode(Answer{.kind = Answer::Kind::kWrongVersion})));
}

TEST_F(TcpPort, AGreetingMayComeByteByByte) {
  const Stranger stranger(listener_->port());
  const auto hello = encode(Hello{.receive_bytes = 64});
  for (std::size_t i = 0; i + 1 < hello.size(); ++i) {
    ASSERT_TRUE(stranger.say(Bytes(hello).subspan(i, 1)));
    if (i % 16 == 0) listen_once();
  }
  ASSERT_TRUE(stranger.say(Bytes(hello).last(1)));
  EXPECT_NE(next(), nullptr);
}

// As when a server starts again, and all its clients come back before it accepts the first.
TEST_F(TcpPort, AStormOfCallersIsQueued) {
  std::vector<std::unique_ptr<Stranger>> callers;
  for (int i = 0; i < 400 && !HasFailure(); ++i)
    callers.push_back(std::make_unique<Stranger>(listener_->port()));
  ASSERT_TRUE(callers.back()->greet());
  EXPECT_NE(next(), nullptr);
}

// TCPLISTEN-1
TEST_F(TcpPort, SilentCallersDelayNobodyAndAreEnded) {
  std::vector<std::unique_ptr<Stranger>> silent;
  for (std::size_t i = 0; i < TcpListener::kMaxStrangers + 20; ++i) {
    silent.push_back(std::make_unique<Stranger>(listener_->port()));
    if (i % 16 == 0) listen_once();
  }
  const SteadyClock clock;
  const Nanos began = clock.now();
  const Stranger polite(listener_->port());
  ASSERT_TRUE(polite.greet());
  EXPECT_NE(next(), nullptr);
  EXPECT_LT(clock.now() - began, TcpListener::kPatience) << "it waited for the silent ones";
  listen_until(
      [&] { return std::ranges::all_of(silent, [](const auto& one) { return has_ended(*one); }); });
}

// ---- and the other way round

// Listens, and answers one caller with what the test says.
class OddServer {
 public:
  explicit OddServer(std::vector<std::byte> answer)
      : socket_(need(listen_on(loopback(0)))), thread_([this, answer = std::move(answer)] {
          pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
          ::poll(&waiting, 1, 30'000);
          const Fd caller(::accept(socket_.get(), nullptr, nullptr));
          (void)send_all(caller.get(), answer, soon());
          std::array<std::byte, kHelloBytes> hello{};
          (void)receive_all(caller.get(), hello, soon());
        }) {}
  ~OddServer() { thread_.join(); }
  OddServer(const OddServer&) = delete;
  OddServer& operator=(const OddServer&) = delete;
  std::string address() const { return name_of_own_end(socket_.get()); }

 private:
  const Fd socket_;
  std::thread thread_;
};

Code code_from(std::vector<std::byte> answer) {
  const OddServer server(std::move(answer));
  const auto transport = need(open_tcp());
  const auto queue = need(transport->create_queue({.receive_buffers = 1, .receive_bytes = 64}));
  Rejection rejection;
  const auto made = transport->connect(*queue, {}, server.address(), {}, soon(), &rejection);
  EXPECT_FALSE(made);
  return made ? Code::kInternal : made.error().code;
}

TEST(TcpCaller, WhatIsNoAnswerIsUnderstoodAsNone) {
  EXPECT_EQ(code_from({}), Code::kUnreachable);
  EXPECT_EQ(code_from(std::vector<std::byte>(kAnswerBytes)), Code::kUnreachable);
  EXPECT_EQ(code_from(bytes_of(encode(Answer{.length = 0}))), Code::kUnreachable);
  EXPECT_EQ(code_from(bytes_of(encode(Answer{.length = kLongest + 1}))), Code::kUnreachable);
  const Answer endless{.kind = Answer::Kind::kReject, .length = kRejectDataBytes + 1};
  EXPECT_EQ(code_from(bytes_of(encode(endless))), Code::kUnreachable);
  const Answer odd{.kind = static_cast<Answer::Kind>(9), .length = 1};
  EXPECT_EQ(code_from(bytes_of(encode(odd))), Code::kUnreachable);
}

TEST(TcpCaller, AnotherVersionIsSaid) {
  const Answer other{.version = kVersion + 1, .kind = Answer::Kind::kWrongVersion};
  EXPECT_EQ(code_from(bytes_of(encode(other))), Code::kVersionMismatch);
}

}  // namespace
}  // namespace rkv::rdma::tcp::test
