// The HTTP server against clients that are slow, many or long-winded, by bare sockets.
#include "server/monitor/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "server/monitor/process_facts.h"
#include "server/persistence/files.h"

namespace rkv::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Time that a test moves while the server's thread reads it.
class SharedClock final : public Clock {
 public:
  Nanos now() const override { return now_.load(); }
  void advance(Nanos by) { now_.fetch_add(by); }

 private:
  std::atomic<Nanos> now_{1};
};

class Http : public ::testing::Test {
 protected:
  Http() {
    auto server = HttpServer::start("127.0.0.1:0", {"x", "DB.example.org"}, clock_,
                                    [this](std::string_view path) {
                                      ++asked_;
                                      if (path == "/ok") return HttpAnswer{.body = "fine\n"};
                                      if (path == "/long")
                                        return HttpAnswer{.body = std::string(kLong, 'x')};
                                      return HttpAnswer::not_found();
                                    });
    EXPECT_TRUE(server) << to_string(server.error());
    server_ = std::move(*server);
  }
  Descriptor connect() const {
    Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connect(fd);
    return fd;
  }
  void connect(const Descriptor& fd) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  static void send(const Descriptor& fd, const std::string& text) {
    (void)!::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Everything until the server closes; "(open)" behind it when that does not come.
  static std::string receive(const Descriptor& fd) {
    std::string all;
    for (;;) {
      pollfd ready{.fd = fd.get(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 20'000) <= 0) return all + "(open)";
      char bytes[4096];
      const ssize_t got = recv(fd.get(), bytes, sizeof bytes, 0);
      if (got <= 0) return all;
      all.append(bytes, static_cast<std::size_t>(got));
    }
  }
  std::string ask(const std::string& request) const {
    const Descriptor fd = connect();
    send(fd, request);
    return receive(fd);
  }
  void await_connections(std::size_t count) const {
    while (server_->connections() != count)
      usleep(1000);
  }

  SharedClock clock_;
  static constexpr std::size_t kLong = std::size_t{32} << 20;
  std::atomic<int> asked_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http, AnswersAndCloses) {
  const std::string answer = ask("GET /ok?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("\r\nConnection: close\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\nfine\n")) << answer;
  EXPECT_THAT(ask("GET /other HTTP/1.0\r\n\r\n"), HasSubstr(" 404 "));
}

// A page of elsewhere may have its name lead here (DNS rebinding); then the browser sends that
// name.
TEST_F(Http, OnlyWhoAsksByAnAddressOrANameOfThisHostIsAnswered) {
  const auto answer = [this](const std::string& host) {
    return ask("GET /ok HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  for (const char* good :
       {"127.0.0.1", "127.0.0.1:9471", "10.1.2.3:1", "[::1]", "[::1]:9471", "localhost",
        "LOCALHOST:9471", "a.localhost", "x:80", "db.EXAMPLE.org", "db.example.org.:9471"}) {
    EXPECT_THAT(answer(good), StartsWith("HTTP/1.1 200 ")) << good;
  }
  const int asked = asked_;
  for (const char* bad :
       {"evil.example", "evil.example:9471", "127.0.0.1.evil.example", "x.evil", "evil.example.org",
        "localhost.evil", "[evil]", "[", "", ":1", "1", "0x7f.1"}) {
    const std::string refusal = answer(bad);
    EXPECT_THAT(refusal, StartsWith("HTTP/1.1 421 ")) << bad;
    EXPECT_THAT(refusal, HasSubstr("--metrics-names")) << bad;
  }
  const std::string endless = answer("a" + std::string(10'000, 'b') + ".evil");
  EXPECT_THAT(endless, StartsWith("HTTP/1.1 421 "));
  EXPECT_LT(endless.size(), 1500U);
  EXPECT_EQ(asked_, asked);
}

TEST_F(Http, HeadHasNoBody) {
  const std::string answer = ask("HEAD /ok HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(Http, NothingCanBeChanged) {
  for (const char* verb : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const std::string answer =
        ask(std::string(verb) + " /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\nabc");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << verb;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD")) << verb;
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(Http, LongRequestsAreRefusedAndGarbageIsToo) {
  const std::string path = "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_THAT(ask(path), ::testing::Not(HasSubstr(" 200 ")));
  std::string headers = "GET /ok HTTP/1.1\r\n";
  for (int i = 0; i < 10'000; ++i)
    headers += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_THAT(ask(headers + "\r\n"), ::testing::Not(HasSubstr(" 200 ")));
  std::string garbage;
  for (int i = 0; i < 5000; ++i)
    garbage += static_cast<char>(i * 7919 >> 3);
  (void)ask(garbage + "\r\n\r\n");
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(ask("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("fine"));
}

TEST_F(Http, AClientThatSendsByteAfterByteIsEnded) {
  const Descriptor slow = connect();
  send(slow, "GET /ok HTTP/1.1\r\nX: ");
  await_connections(1);
  for (int i = 0; i < 9; ++i) {  // never silent for long
    clock_.advance(HttpServer::kLongestRequest / 10);
    send(slow, "x");
  }
  EXPECT_EQ(server_->connections(), 1U);
  clock_.advance(HttpServer::kLongestRequest / 10);
  EXPECT_EQ(receive(slow), "");
  await_connections(0);
}

TEST_F(Http, AClientThatReadsNothingIsEnded) {
  const Descriptor slow = connect();
  send(slow, "GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
  while (asked_ == 0)
    usleep(1000);
  clock_.advance(HttpServer::kLongestRequest);
  await_connections(0);
  EXPECT_LT(receive(slow).size(), std::size_t{kLong});
}

TEST_F(Http, WhoHoldsConnectionsOpenShutsNobodyOut) {
  std::vector<Descriptor> silent;
  for (std::size_t i = 0; i < 4 * HttpServer::kConnections; ++i) {
    silent.push_back(connect());
    send(silent.back(), "GET /ok HT");
    if (i % HttpServer::kConnections != 0) continue;
    EXPECT_THAT(ask("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("fine")) << i;
  }
  EXPECT_THAT(ask("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("fine"));
  EXPECT_EQ(receive(silent.front()), "") << "the oldest had to go";
}

// A probe that is slow, beside a host that connects again and again.
TEST_F(Http, WhoConnectsWithoutPauseEndsItsOwnConnections) {
  Descriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in other{};
  other.sin_family = AF_INET;
  other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
  ASSERT_EQ(bind(probe.get(), reinterpret_cast<sockaddr*>(&other), sizeof other), 0);
  connect(probe);
  send(probe, "GET /ok HT");
  await_connections(1);
  std::vector<Descriptor> flood;
  for (std::size_t i = 0; i < 4 * HttpServer::kConnections; ++i)
    flood.push_back(connect());
  EXPECT_EQ(receive(flood.front()), "") << "the oldest of the host that has most";
  send(probe, "TP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(receive(probe), HasSubstr("fine"));
}

// Not under the sanitizers: UBSan looks whether an object is one by way of a pipe, and takes it for
// none where there are no descriptors left.
#ifndef __SANITIZE_ADDRESS__
// No file can be opened any more while this lives.
class NoFiles {
 public:
  NoFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{.rlim_cur = 256, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (;;) {
      Descriptor taken(dup(STDERR_FILENO));
      if (taken.get() < 0) return;
      taken_.push_back(std::move(taken));
    }
  }
  ~NoFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoFiles(const NoFiles&) = delete;
  NoFiles& operator=(const NoFiles&) = delete;

 private:
  rlimit before_{};
  std::vector<Descriptor> taken_;
};

TEST_F(Http, WithoutADescriptorConnectionsAreClosedAndTheLogSaysWhy) {
  std::atomic<int> told = 0;
  set_event_sink([&](const LogEvent& event) {
    if (event.name == "http_no_files") ++told;
  });
  std::vector<Descriptor> sockets;
  for (int i = 0; i < 3; ++i)
    sockets.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoFiles none;
    EXPECT_FALSE(ProcessFacts::now().open_files) << "nobody can count them";
    for (const Descriptor& one : sockets) {
      connect(one);
      EXPECT_EQ(receive(one), "");
    }
  }
  EXPECT_EQ(told, 3);
  EXPECT_THAT(ask("GET /ok HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("fine"));
  set_event_sink(
      [](const LogEvent& event) { std::fprintf(stderr, "%s\n", std::string(event.text).c_str()); });
}

#endif

TEST_F(Http, ATakenPortAndAWrongAddressAreErrors) {
  const auto nothing = [](std::string_view) { return HttpAnswer{}; };
  const auto taken =
      HttpServer::start("127.0.0.1:" + std::to_string(server_->port()), {}, clock_, nothing);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, Code::kConflict);
  EXPECT_THAT(to_string(taken.error()), HasSubstr("the port is in use"));
  const auto elsewhere = HttpServer::start("192.0.2.77:0", {}, clock_, nothing);
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code, Code::kUnreachable);
}

}  // namespace
}  // namespace rkv::server
