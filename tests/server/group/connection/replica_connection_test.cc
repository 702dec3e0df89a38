// Whole messages over a connection: REPCON-1 to REPCON-3 over real sockets, also with an end that
// sends garbage, stops reading or goes in the middle of a message.
#include "server/group/connection/replica_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <asio/connect.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include "common/random.h"
#include "tests/server/group/connection/connections.h"
#include "tests/server/group/connection/longest_allocation.h"

namespace rkv::server::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An end that speaks TLS with the right secret, and sends any bytes.
class AnyBytes : public Connections {
 protected:
  void SetUp() override {
    stream_.reset();
    taken_.clear();
    listen(a_secret());
    asio::ip::tcp::socket socket(io_);
    asio::error_code error;
    socket.connect({asio::ip::address_v4::loopback(), listener_->port()}, error);
    ASSERT_FALSE(error) << error.message();
    auto tls = ReplicaTls::make(a_secret(), ReplicaTls::Side::kClient);
    ASSERT_TRUE(tls);
    const auto handshake = std::make_shared<ReplicaHandshake>(
        std::make_unique<EncryptedStream>(std::move(socket), std::move(*tls)), [this](auto made) {
          ASSERT_TRUE(made) << made.error().why;
          stream_ = std::move(*made);
        });
    handshake->start(kPatience);
    ASSERT_TRUE(run_until([&] { return stream_ && !taken_.empty(); }));
    called_.emplace(std::move(taken_.front()));
    called_->start();
  }
  void write(Bytes bytes) {
    bool is_written = false;
    asio::async_write(stream_->stream, asio::buffer(bytes.data(), bytes.size()),
                      [&](const asio::error_code&, std::size_t) { is_written = true; });
    ASSERT_TRUE(run_until([&] { return is_written; }));
  }
  void expect_end(const char* why) {
    ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
    EXPECT_THAT(called_->ends, ElementsAre(HasSubstr(why)));
    EXPECT_TRUE(called_->got.empty());
  }
  std::unique_ptr<EncryptedStream> stream_;
};

TEST_F(AnyBytes, GarbageEndsTheConnection) {
  write(std::vector<std::byte>(1000, std::byte{'x'}));
  expect_end("not a message");
}

TEST_F(AnyBytes, AnotherVersionIsNamed) {
  auto message = *a_message(1, 0);
  message[4] = std::byte{99};
  write(message);
  expect_end("install the same rkv");
}

TEST_F(AnyBytes, ALengthAboveTheLimitEndsTheConnection) {
  auto message = *a_message(1, 0);
  store_le(message.data() + 8, std::uint32_t{0xFFFF'FFFF});
  longest_allocation = 0;
  write(message);
  expect_end("not a message");
  EXPECT_LT(longest_allocation.load(), std::size_t{1} << 20);
}

// REPCON-3: the announcement costs nothing, what arrives costs twice its size.
TEST_F(AnyBytes, MemoryGrowsWithWhatArrives) {
  const auto message = a_message(1, kMaxBlockBytes);
  for (const std::size_t part : {std::size_t{24}, std::size_t{300'000}, std::size_t{3'000'000}}) {
    if (part != 24) SetUp();
    longest_allocation = 0;
    write(Bytes(*message).first(part));
    // The end is seen after all that came before it.
    stream_->close();
    ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
    EXPECT_THAT(called_->ends, ElementsAre(HasSubstr("in the middle of a message")));
    EXPECT_LE(longest_allocation.load(), std::max(std::size_t{128} << 10, 2 * part)) << part;
    if (part > 24) {
      EXPECT_GE(longest_allocation.load(), part) << "the checker sees allocations";
    }
  }
}

TEST_F(AnyBytes, AHalfHeadThenTheEnd) {
  write(Bytes(*a_message(1, 0)).first(10));
  stream_->close();
  expect_end("in the middle of a message");
}

TEST_F(AnyBytes, AnEndBetweenMessagesIsToldApart) {
  write(*a_message(1, 5));
  stream_->close();
  ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
  EXPECT_THAT(called_->ends, ElementsAre(HasSubstr("ended the connection")));
  EXPECT_EQ(called_->got.size(), 1U);
}

class Messages : public Connections {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(make_pair()); }
};

// A backlog of short messages is told of many at a time, the last one too; a long one once.
TEST_F(Messages, ThoseOfABacklogAreDeliveredTogether) {
  constexpr std::size_t kMessages = 2000;
  std::size_t got = 0;
  std::vector<std::size_t> told;  // how many had come each time
  called_->connection->start({.on_message = [&](auto) { ++got; },
                              .on_end = [](auto) {},
                              .on_delivered = [&] { told.push_back(got); }});
  caller_->start();
  const std::vector<ReplicaConnection::SharedBytes> backlog(kMessages, a_message(1, 40));
  caller_->connection->send(backlog);
  ASSERT_TRUE(run_until([&] { return !told.empty() && told.back() == kMessages; }));
  EXPECT_LT(told.size(), kMessages / 10);
  told.clear();
  const auto large = a_message(2, std::size_t{3} << 20);
  caller_->connection->send({&large, 1});
  ASSERT_TRUE(run_until([&] { return !told.empty(); }));
  EXPECT_THAT(told, ElementsAre(kMessages + 1)) << "nothing is said of a part";
}

TEST_F(Messages, ArriveWholeInOrderBothWays) {
  caller_->start();
  called_->start();
  std::vector<ReplicaConnection::SharedBytes> sent;
  Random random(test_seed());
  for (std::uint64_t i = 1; i <= 5000; ++i)
    sent.push_back(a_message(i, i % 100 == 0 ? 300'000 : random.below(300)));
  caller_->connection->send(sent);
  called_->connection->send(sent);
  ASSERT_TRUE(run_until(
      [&] { return caller_->got.size() == sent.size() && called_->got.size() == sent.size(); }));
  for (std::size_t i = 0; i < sent.size(); ++i) {
    ASSERT_EQ(caller_->got[i], *sent[i]) << i;
    ASSERT_EQ(called_->got[i], *sent[i]) << i;
  }
  ASSERT_TRUE(run_until([&] { return caller_->connection->queued_bytes() == 0; }));
  EXPECT_TRUE(caller_->ends.empty());
}

TEST_F(Messages, TheLongestArrive) {
  called_->start();
  const auto message = a_message(1, kMaxBlockBytes);
  const auto half = a_message(2, kMaxBlockBytes / 2);
  for (const auto& each : {message, half, message})
    caller_->connection->send(each);
  EXPECT_EQ(caller_->connection->queued_bytes(), 2 * message->size() + half->size());
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 3; }));
  EXPECT_EQ(called_->got[0], *message);
  EXPECT_EQ(called_->got[1], *half);
  EXPECT_TRUE(decode_replication(called_->got[2]));
}

TEST_F(Messages, AnEndThatStopsReadingBlocksNobody) {
  caller_->start();
  std::size_t sent = 0;
  for (std::uint64_t i = 1; i <= 8; ++i) {
    const auto message = a_message(i, std::size_t{16} << 20);
    sent += message->size();
    caller_->connection->send(message);
  }
  EXPECT_EQ(caller_->connection->queued_bytes(), sent);
  // Another connection goes on meanwhile.
  auto outcome = connect(a_secret(), address());
  ASSERT_TRUE(outcome);
  ASSERT_TRUE(run_until([&] { return !taken_.empty(); }));
  End second(std::move(taken_.front()));
  second.start();
  (*outcome)->send(a_message(77, 1'000'000));
  ASSERT_TRUE(run_until([&] { return second.got.size() == 1; }));
  EXPECT_GT(caller_->connection->queued_bytes(), sent / 2);
  called_->start();
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 8; }));
  ASSERT_TRUE(run_until([&] { return caller_->connection->queued_bytes() == 0; }));
}

TEST_F(Messages, OnSentComesWithEachFallOfTheQueue) {
  called_->start();
  std::vector<std::size_t> queued;
  caller_->connection->start(
      {.on_message = [](auto) {},
       .on_end = [](auto) {},
       .on_sent = [&] { queued.push_back(caller_->connection->queued_bytes()); }});
  for (std::uint64_t i = 1; i <= 3; ++i)
    caller_->connection->send(a_message(i, 100'000));
  ASSERT_TRUE(run_until([&] { return !queued.empty() && queued.back() == 0; }));
  const std::size_t each = a_message(1, 100'000)->size();
  EXPECT_THAT(queued, ElementsAre(2 * each, each, 0U));
}

// REPCON-2
TEST_F(Messages, ACloseEndsBothEndsOnce) {
  caller_->start();
  called_->start();
  caller_->connection->close();
  EXPECT_TRUE(caller_->ends.empty()) << "called from within close()";
  caller_->connection->close();
  caller_->connection->send(a_message(1, 10));
  EXPECT_EQ(caller_->connection->queued_bytes(), 0U);
  ASSERT_TRUE(run_until([&] { return !caller_->ends.empty() && !called_->ends.empty(); }));
  io_.restart();
  io_.poll();
  EXPECT_THAT(caller_->ends, ElementsAre(HasSubstr("this replica ended")));
  EXPECT_THAT(called_->ends, ElementsAre(HasSubstr("ended the connection")));
  EXPECT_TRUE(called_->got.empty());
}

TEST_F(Messages, ACloseBeforeTheStartIsReported) {
  caller_->connection->close();
  io_.restart();
  io_.poll();
  caller_->start();
  ASSERT_TRUE(run_until([&] { return !caller_->ends.empty(); }));
  EXPECT_EQ(caller_->ends.size(), 1U);
}

// As the first message says what a connection is for.
TEST_F(Messages, AConnectionIsHandedOverInItsCallback) {
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t ends = 0;
  called_->connection->start(
      {.on_message =
           [&](auto) {
             ++before;
             called_->connection->hand_over(
                 {.on_message = [&](auto) { ++after; }, .on_end = [&](auto) { ++ends; }});
           },
       .on_end = [](auto) { FAIL(); }});
  for (std::uint64_t i = 1; i <= 5; ++i)
    caller_->connection->send(a_message(i, 10));
  ASSERT_TRUE(run_until([&] { return after == 4; }));
  EXPECT_EQ(before, 1U);
  caller_->connection->close();
  ASSERT_TRUE(run_until([&] { return ends == 1; }));
}

TEST_F(Messages, ACloseInOnMessageStopsMessages) {
  std::size_t count = 0;
  std::size_t ends = 0;
  called_->connection->start({.on_message =
                                  [&](auto) {
                                    ++count;
                                    called_->connection->close();
                                  },
                              .on_end = [&](auto) { ++ends; }});
  for (std::uint64_t i = 1; i <= 10; ++i)
    caller_->connection->send(a_message(i, 10));
  ASSERT_TRUE(run_until([&] { return ends != 0; }));
  io_.restart();
  io_.poll();
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(ends, 1U);
}

TEST_F(Messages, ADestructionInEachCallbackIsSafe) {
  for (const std::string where : {"on_message", "on_sent", "on_end"}) {
    if (where != "on_message") make_pair();
    const auto here = std::make_shared<std::string>(where);  // the sanitizers see a use of it later
    bool called = false;
    const auto destroy = [&, here](const char* in) {
      if (*here != in) return;
      called_->connection.reset();
      called = *here == in;
    };
    called_->connection->start({.on_message = [=](auto) { destroy("on_message"); },
                                .on_end = [=](auto) { destroy("on_end"); },
                                .on_sent = [=] { destroy("on_sent"); }});
    called_->connection->send(a_message(1, 10));
    caller_->connection->send(a_message(1, 10));
    if (where == "on_end") caller_->connection->close();
    ASSERT_TRUE(run_until([&] { return called; })) << where;
  }
}

TEST_F(Messages, ADestructionDuringAWriteIsSafe) {
  caller_->start();
  called_->start();
  for (std::uint64_t i = 1; i <= 3; ++i)
    caller_->connection->send(a_message(i, std::size_t{16} << 20));  // not held here
  ASSERT_TRUE(run_until([&] { return !called_->got.empty(); }));
  caller_->connection.reset();
  ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
  EXPECT_TRUE(caller_->ends.empty()) << "a callback after the destruction";
  called_.reset();
  listener_.reset();
  io_.restart();
  io_.run();  // nothing is left
}

TEST_F(Messages, CallbacksThatHoldTheConnectionAreFreed) {
  for (const bool from_here : {true, false}) {
    if (!from_here) make_pair();
    const std::shared_ptr<ReplicaConnection> held = std::move(called_->connection);
    held->start({.on_message = [held](auto) {}, .on_end = [held](auto) {}});
    (from_here ? held : std::shared_ptr<ReplicaConnection>(std::move(caller_->connection)))
        ->close();
    ASSERT_TRUE(run_until([&] { return held.use_count() == 1; }));
  }
}

// Bytes that change on the way, or an end of TCP alone, are the end of the connection.
class Relay {
 public:
  using tcp = asio::ip::tcp;
  Relay(asio::io_context& io, std::uint16_t to)
      : acceptor_(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)), in_(io), out_(io) {
    acceptor_.async_accept(in_, [this, to](const asio::error_code& error) {
      if (error) return;
      asio::error_code failed;
      out_.connect({asio::ip::address_v4::loopback(), to}, failed);
      ASSERT_FALSE(failed);
      pass(in_, out_, there_, true);
      pass(out_, in_, back_, false);
    });
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }
  bool flip_next = false;
  std::string seen;  // on the way there

 private:
  void pass(tcp::socket& from, tcp::socket& to, std::array<char, 4096>& buffer, bool is_there) {
    from.async_read_some(asio::buffer(buffer), [=, this, &from, &to, &buffer](
                                                   const asio::error_code& error, std::size_t got) {
      asio::error_code failed;
      if (error) {
        to.close(failed);
        return;
      }
      if (is_there) {
        seen.append(buffer.data(), got);
        if (std::exchange(flip_next, false)) buffer[got / 2] ^= 1;
      }
      asio::write(to, asio::buffer(buffer.data(), got), failed);
      if (!failed) pass(from, to, buffer, is_there);
    });
  }
  tcp::acceptor acceptor_;
  tcp::socket in_;
  tcp::socket out_;
  std::array<char, 4096> there_{};
  std::array<char, 4096> back_{};
};

class Relayed : public Connections {
 protected:
  void SetUp() override {
    listen(a_secret());
    relay_.emplace(io_, listener_->port());
    auto outcome = connect(a_secret(), "127.0.0.1:" + std::to_string(relay_->port()));
    ASSERT_TRUE(outcome) << outcome.error().why;
    ASSERT_TRUE(run_until([&] { return !taken_.empty(); }));
    caller_.emplace(std::move(*outcome));
    called_.emplace(std::move(taken_.back()));
    called_->start();
  }
  std::optional<Relay> relay_;
};

TEST_F(Relayed, NobodyInBetweenReadsMessages) {
  const std::string word = "a value that nobody else may see";
  auto bytes = std::make_shared<std::vector<std::byte>>();
  for (const char letter : word)
    bytes->push_back(static_cast<std::byte>(letter));
  Entries entries{.term = 1, .number = 1, .previous = {}, .marks = {}};
  entries.block = {.previous = {}, .last = {.term = 1, .version = 1}, .bytes = bytes};
  const auto message = std::make_shared<const std::vector<std::byte>>(encode(entries));
  ASSERT_NE(as_text(*message).find(word), std::string::npos);
  caller_->connection->send(message);
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 1; }));
  EXPECT_GT(relay_->seen.size(), message->size());
  EXPECT_EQ(relay_->seen.find(word), std::string::npos);
}

TEST_F(Relayed, NobodyInBetweenChangesMessages) {
  caller_->connection->send(a_message(1, 100));
  ASSERT_TRUE(run_until([&] { return called_->got.size() == 1; }));
  relay_->flip_next = true;
  caller_->connection->send(a_message(2, 100));
  ASSERT_TRUE(run_until([&] { return !called_->ends.empty(); }));
  EXPECT_EQ(called_->got.size(), 1U);
  EXPECT_THAT(called_->ends, ElementsAre(HasSubstr("the connection to")));
}

}  // namespace
}  // namespace rkv::server::test
