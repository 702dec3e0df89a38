// The exchange between threads over loopback, with hostile callers and hostile peers among them.
#include "rkv/rdma/group/exchange.h"

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <limits>
#include <thread>

#include "code_of.h"
#include "common/clock.h"
#include "common/random.h"
#include "rdma/extras/group/exchange_frame.h"

namespace rkv::rdma {
namespace {

using rkv::rdma::testing::code_of;

using detail::FrameHeader;
using detail::FrameKind;
using detail::Socket;
using ::testing::HasSubstr;

constexpr int kPatienceMs = 10'000;
constexpr int kShortMs = 100;  // for calls that must end by their deadline

Deadline soon(int ms = kPatienceMs) {
  static const SteadyClock clock;
  return Deadline::after_ms(clock, ms);
}

// Open ports, and the cluster that they form.
struct Doors {
  std::vector<ExchangeListener> listeners;
  std::optional<Cluster> cluster;
  explicit Doors(std::size_t ranks) {
    std::vector<HostPort> addresses;
    for (std::size_t i = 0; i < ranks; ++i) {
      listeners.push_back(
          std::move(*ExchangeListener::open({.host = "127.0.0.1", .port = 0}, soon())));
      addresses.push_back({.host = "127.0.0.1", .port = listeners.back().port()});
    }
    cluster = *Cluster::of(addresses);
  }
  Result<Exchange> connect(std::uint32_t rank, int ms = kPatienceMs, std::string* problem = nullptr,
                           const ExchangeOptions& options = {}) {
    return Exchange::connect(*cluster, rank, std::move(listeners[rank]), soon(ms), options,
                             problem);
  }
};

Bytes text(std::string_view words) {
  return as_bytes(words);
}

// A caller or listener that does not follow the protocol.
struct Stranger {
  Socket socket;
  explicit Stranger(std::uint16_t port) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.fd(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  explicit Stranger(Socket accepted) : socket(std::move(accepted)) {}
  // Accepts the next caller of `door`.
  static Stranger answering(const ExchangeListener& door) {
    pollfd one{.fd = door.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&one, 1, kPatienceMs), 1);
    return Stranger(Socket(::accept4(door.fd(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  void say(Bytes bytes) const {
    EXPECT_EQ(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void say(const FrameHeader& header, Bytes payload = {}) const {
    say(detail::encode(header, payload));
  }
  // Returns a frame, or nothing when the other side closes.
  std::optional<std::pair<FrameHeader, Payload>> hear() const {
    detail::FrameReader reader;
    for (;;) {
      pollfd one{.fd = socket.fd(), .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, kPatienceMs) != 1) return std::nullopt;
      const Result<bool> whole = reader.read(socket, 1 << 20);
      if (!whole) return std::nullopt;
      if (!*whole) continue;
      return std::pair(*detail::decode(reader.frame()),
                       Payload(reader.payload().begin(), reader.payload().end()));
    }
  }
};

FrameHeader hello(const Cluster& cluster, std::uint32_t from, std::uint32_t to) {
  return {.kind = FrameKind::kHello,
          .from = from,
          .to = to,
          .round = cluster.size(),
          .digest = cluster.digest()};
}

TEST(Exchanges, GiveEveryoneWhatTheOthersHaveForIt) {
  constexpr std::uint32_t kRanks = 5;
  Doors doors(kRanks);
  const auto payload = [](std::uint32_t from, std::uint32_t to, std::uint32_t round) {
    const std::size_t length = round == 1 ? 60'000 + from * 10 + to : from * 10 + to + round;
    return Payload(length, static_cast<std::byte>(from * 16 + to + round));
  };
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::string problem;
      Result<Exchange> exchange = doors.connect(rank, kPatienceMs, &problem);
      ASSERT_TRUE(exchange) << to_string(exchange.error()) << " " << problem;
      EXPECT_EQ(exchange->rank(), rank);
      EXPECT_EQ(exchange->size(), kRanks);
      for (std::uint32_t round = 0; round < 20; ++round) {
        std::vector<Payload> mine;
        for (std::uint32_t to = 0; to < kRanks; ++to)
          mine.push_back(payload(rank, to, round));
        const std::vector<Bytes> spans(mine.begin(), mine.end());
        const auto got = exchange->all_to_all(spans, soon(), &problem);
        ASSERT_TRUE(got) << to_string(got.error()) << " " << problem;
        for (std::uint32_t from = 0; from < kRanks; ++from)
          ASSERT_EQ((*got)[from], payload(from, rank, round)) << from << " to " << rank;
      }
      EXPECT_TRUE(exchange->meet(soon()));
    });
  }
  for (std::thread& thread : threads)
    thread.join();
}

TEST(Exchanges, OfOneRankNeedNobody) {
  Doors doors(1);
  Result<Exchange> exchange = doors.connect(0);
  ASSERT_TRUE(exchange);
  EXPECT_EQ(exchange->all_gather(text("me"), soon())->front().size(), 2U);
}

// At first a peer at rank 1's address disconnects. A second one echoes this side's own bytes, as
// TCP does when a socket connects to itself. Then nothing answers. The test sees each attempt, so
// rank 0 must dial again to find rank 1.
TEST(Exchanges, WaitForPeersThatAreNotUpYet) {
  Doors doors(2);
  const std::uint16_t port = doors.listeners[1].port();
  std::thread early([&] { EXPECT_TRUE(doors.connect(0)); });
  {
    const ExchangeListener passing = std::move(doors.listeners[1]);
    std::ignore = Stranger::answering(passing);
    const Stranger echo = Stranger::answering(passing);
    const auto heard = echo.hear();
    ASSERT_TRUE(heard);
    echo.say(heard->first, heard->second);
    EXPECT_FALSE(echo.hear()) << "it is not taken for an answer";
  }
  doors.listeners[1] =
      std::move(*ExchangeListener::open({.host = "127.0.0.1", .port = port}, soon()));
  EXPECT_TRUE(doors.connect(1));
  early.join();
}

TEST(Exchanges, NameTheRanksThatAreMissing) {
  Doors doors(3);
  {
    const ExchangeListener closed = std::move(doors.listeners[2]);
  }
  std::string problem;
  const Result<Exchange> exchange = doors.connect(1, kShortMs, &problem);
  ASSERT_FALSE(exchange);
  EXPECT_EQ(code_of(exchange), Code::kTimeout);
  EXPECT_THAT(problem, HasSubstr("rank 0 (127.0.0.1:"));
  EXPECT_THAT(problem, HasSubstr("rank 2 (127.0.0.1:"));
}

TEST(Exchanges, OwnMistakesAreRefused) {
  Doors doors(2);
  EXPECT_EQ(code_of(Exchange::connect(*doors.cluster, 2, std::move(doors.listeners[0]), soon())),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(doors.connect(1, kShortMs, nullptr, {.max_payload_bytes = 1U << 30})),
            Code::kInvalidArgument);
  for (const ExchangeOptions& wrong :
       {ExchangeOptions{.retry_ms = 0}, ExchangeOptions{.hello_ms = 0},
        ExchangeOptions{.retry_ms = std::numeric_limits<std::int64_t>::max()},
        ExchangeOptions{.hello_ms = 3'600'001}, ExchangeOptions{.max_strangers = 0}}) {
    Doors more(2);
    EXPECT_EQ(code_of(more.connect(0, kShortMs, nullptr, wrong)), Code::kInvalidArgument);
  }
  const ExchangeListener taken =
      std::move(*ExchangeListener::open({.host = "127.0.0.1", .port = 0}, soon()));
  EXPECT_EQ(code_of(ExchangeListener::open({.host = "127.0.0.1", .port = taken.port()}, soon())),
            Code::kConflict);
}

// Each of these callers reaches rank 1 before rank 0 does, is turned away, and does no harm.
TEST(Exchanges, TurnStrangersAwayAndGoOn) {
  Doors doors(2);
  const Cluster& cluster = *doors.cluster;
  const std::uint16_t port = doors.listeners[1].port();
  std::optional<Result<Exchange>> exchange;
  std::thread server([&] {
    exchange = doors.connect(1, kPatienceMs, nullptr, {.hello_ms = 500, .max_strangers = 4});
  });
  const auto closes_on = [&](Bytes bytes) {
    const Stranger stranger(port);
    if (!bytes.empty()) stranger.say(bytes);
    EXPECT_FALSE(stranger.hear().has_value());
  };
  closes_on(text("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"));
  closes_on(text({"\xff\xff\xff\xff", 4}));  // announces four gigabytes
  closes_on(text({"\0\0\0\x03", 4}));        // shorter than a header
  closes_on(
      text({"\0\0\0\x1c"
            "rkvx\1\7\0\0",
            12}));  // and then nothing
  closes_on({});    // nothing at all
  std::vector<std::byte> wrong = detail::encode(hello(cluster, 0, 1), {});
  wrong[5] ^= std::byte{1};  // the magic
  closes_on(wrong);
  wrong = detail::encode({.kind = FrameKind::kData}, {});
  closes_on(wrong);
  {
    const Stranger truncated(port);
    truncated.say(Bytes(detail::encode(hello(cluster, 0, 1), {})).first(20));
  }
  const auto refused_as = [&](std::vector<std::byte> frame) {
    const Stranger stranger(port);
    stranger.say(frame);
    const auto answer = stranger.hear();
    if (!answer || answer->first.kind != FrameKind::kRefusal) return -1;
    return std::to_integer<int>(answer->second.at(0));
  };
  std::vector<std::byte> newer = detail::encode(hello(cluster, 0, 1), {});
  newer[8] = std::byte{2};
  EXPECT_EQ(refused_as(newer), 1);
  FrameHeader foreign = hello(cluster, 0, 1);
  foreign.digest ^= 1;
  EXPECT_EQ(refused_as(detail::encode(foreign, {})), 2);
  EXPECT_EQ(refused_as(detail::encode(hello(cluster, 1, 1), {})), 3);
  EXPECT_EQ(refused_as(detail::encode(hello(cluster, 0, 0), {})), 3);
  EXPECT_EQ(refused_as(detail::encode(hello(cluster, 7, 1), {})), 3);
  EXPECT_TRUE(doors.connect(0));
  server.join();
  ASSERT_TRUE(exchange && *exchange);
  EXPECT_EQ((*exchange)->strangers(), 13U);
}

// A connected rank keeps its place; a rank that died can connect again.
TEST(Exchanges, ADuplicateRankIsRefusedUnlessTheFirstHasDied) {
  Doors doors(3);
  const Cluster& cluster = *doors.cluster;
  const std::uint16_t port = doors.listeners[2].port();
  std::thread server([&] { EXPECT_TRUE(doors.connect(2)); });
  std::optional<Stranger> first(std::in_place, port);
  first->say(hello(cluster, 0, 2));
  EXPECT_EQ(first->hear().value().first.kind, FrameKind::kWelcome);
  const Stranger second(port);
  second.say(hello(cluster, 0, 2));
  const auto refused = second.hear();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->second.at(0), std::byte{4});
  first.reset();
  const Stranger third(port);
  third.say(hello(cluster, 0, 2));
  EXPECT_EQ(third.hear().value().first.kind, FrameKind::kWelcome);
  const Stranger other(port);
  other.say(hello(cluster, 1, 2));
  EXPECT_EQ(other.hear().value().first.kind, FrameKind::kWelcome);
  server.join();
}

// The result of rank 0 when rank 1's address answers with these bytes.
Code dial(Doors& doors, const std::vector<std::byte>& answer) {
  std::thread peer([&] {
    const Stranger stranger = Stranger::answering(doors.listeners[1]);
    EXPECT_EQ(stranger.hear().value().first.kind, FrameKind::kHello);
    stranger.say(answer);
    stranger.hear();  // until the other side closes, or continues
  });
  std::string problem;
  Code code = Code::kNotFound;  // accepted
  if (const Result<Exchange> out = doors.connect(0, kPatienceMs, &problem); !out) {
    EXPECT_THAT(problem, HasSubstr("rank 1"));
    code = out.error().code;
  }
  peer.join();
  return code;
}

TEST(Exchanges, ABadAnswerOfARankIsATypedError) {
  const auto code = [](auto change) {
    Doors doors(2);
    FrameHeader header = hello(*doors.cluster, 1, 0);
    header.kind = FrameKind::kWelcome;
    std::vector<std::byte> payload;
    change(header, payload);
    return dial(doors, detail::encode(header, payload));
  };
  constexpr Code kAccepted = Code::kNotFound;  // dial()'s result for an accepted answer
  EXPECT_EQ(code([](FrameHeader&, auto&) {}), kAccepted);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.from = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.to = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.digest ^= 1; }), Code::kConflict);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.kind = FrameKind::kData; }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader&, auto& payload) { payload.resize(1); }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader&, auto& payload) { payload.resize(1000); }), Code::kTooLarge);
  const std::pair<int, Code> refusals[] = {{1, Code::kVersionMismatch},
                                           {2, Code::kConflict},
                                           {3, Code::kInvalidArgument},
                                           {4, Code::kConflict},
                                           {99, Code::kCorrupt}};
  for (const auto& [reason, expected] : refusals) {
    EXPECT_EQ(code([&](FrameHeader& h, auto& payload) {
                h.kind = FrameKind::kRefusal;
                payload.push_back(static_cast<std::byte>(reason));
              }),
              expected)
        << reason;
  }
  Doors doors(2);
  const Bytes http = text("HTTP/1.1 400 Bad Request\r\n\r\n");
  EXPECT_EQ(dial(doors, {http.begin(), http.end()}), Code::kTooLarge);
}

// Rank 0 is an exchange; this test plays rank 1.
struct Half {
  Doors doors{2};
  std::optional<Exchange> exchange;
  std::optional<Stranger> peer;
  Half() {
    std::thread welcoming([&] {
      peer.emplace(Stranger::answering(doors.listeners[1]));
      std::ignore = peer->hear();
      FrameHeader header = hello(*doors.cluster, 1, 0);
      header.kind = FrameKind::kWelcome;
      peer->say(header);
    });
    exchange = std::move(*doors.connect(0, kPatienceMs, nullptr, {.max_payload_bytes = 100}));
    welcoming.join();
  }
  FrameHeader data() {
    FrameHeader header = hello(*doors.cluster, 1, 0);
    header.kind = FrameKind::kData;
    header.round = 1;
    return header;
  }
  Code round(int ms = kPatienceMs) {
    const auto got = exchange->all_gather(text("mine"), soon(ms));
    return got ? Code::kNotFound : got.error().code;
  }
};

TEST(Exchanges, WhatDoesNotBelongInARoundIsATypedError) {
  constexpr Code kFine = Code::kNotFound;
  const auto code = [](auto change) {
    Half half;
    FrameHeader header = half.data();
    std::vector<std::byte> payload(100);
    change(header, payload);
    half.peer->say(header, payload);
    const Code first = half.round();
    // After an error every call fails.
    if (first != kFine) {
      EXPECT_EQ(half.round(), Code::kDisconnected);
    }
    return first;
  };
  EXPECT_EQ(code([](FrameHeader&, auto&) {}), kFine);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.round = 2; }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.from = 0; }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.to = 1; }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.digest ^= 1; }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader& h, auto&) { h.kind = FrameKind::kHello; }), Code::kCorrupt);
  EXPECT_EQ(code([](FrameHeader&, auto& payload) { payload.resize(101); }), Code::kTooLarge);
}

TEST(Exchanges, PeersThatLeaveOrStallEndARound) {
  Half silent;
  EXPECT_EQ(silent.round(kShortMs), Code::kTimeout);
  EXPECT_EQ(silent.round(), Code::kDisconnected);
  Half gone;
  gone.peer.reset();
  EXPECT_EQ(gone.round(), Code::kDisconnected);
  Half torn;
  torn.peer->say(Bytes(detail::encode(torn.data(), {})).first(10));
  torn.peer.reset();
  EXPECT_EQ(torn.round(), Code::kCorrupt);
  Half slow;
  slow.peer->say(Bytes(detail::encode(slow.data(), {})).first(10));
  EXPECT_EQ(slow.round(kShortMs), Code::kTimeout);
  Half own;
  const std::vector<std::byte> much(101);
  EXPECT_EQ(code_of(own.exchange->all_gather(much, soon())), Code::kTooLarge);
}

TEST(ExchangeFrames, ComeBackAsTheyWere) {
  const FrameHeader header = {.kind = FrameKind::kData,
                              .from = 0x01020304,
                              .to = 0x05060708,
                              .round = 0x090a0b0c,
                              .digest = 0x0d0e0f1011121314};
  const std::vector<std::byte> frame = detail::encode(header, text("abc"));
  ASSERT_EQ(frame.size(), 4 + FrameHeader::kBytes + 3);
  EXPECT_EQ(frame[3], std::byte{31});  // big-endian
  EXPECT_EQ(frame[12], std::byte{0x01});
  const auto back = detail::decode(Bytes(frame).subspan(4));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->kind, header.kind);
  EXPECT_EQ(back->from, header.from);
  EXPECT_EQ(back->to, header.to);
  EXPECT_EQ(back->round, header.round);
  EXPECT_EQ(back->digest, header.digest);
}

// A header that is accepted has one form: it is written as it was read.
TEST(ExchangeFrames, AnyBytesAreAnAnswer) {
  Random random(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = detail::encode({.from = 1, .to = 2}, text("payload"));
    for (std::size_t i = random.below(4); i != 0; --i)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random());
    bytes.resize(random.below(bytes.size() + 1));
    if (bytes.size() < 4) continue;
    const auto length = detail::decode_length(std::span<const std::byte, 4>(bytes.data(), 4), 64);
    EXPECT_LE(length.value_or(0), 64U);
    const Bytes frame = Bytes(bytes).subspan(4);
    const Result<FrameHeader> header = detail::decode(frame);
    if (!header) {
      ASSERT_TRUE(code_of(header) == Code::kCorrupt || code_of(header) == Code::kVersionMismatch);
      continue;
    }
    ++accepted;
    const std::vector<std::byte> again =
        detail::encode(*header, frame.subspan(FrameHeader::kBytes));
    ASSERT_TRUE(std::ranges::equal(Bytes(again).subspan(4), frame));
  }
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace rkv::rdma
