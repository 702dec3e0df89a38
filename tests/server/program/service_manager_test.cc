// Reports to systemd, over a socket like systemd's own.
#include "server/program/service_manager.h"
#include "tests/support/manual_clock.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <thread>

namespace rkv::server {
namespace {

// The manager's end. The name is the process's own: tests run beside each other.
class Listener {
 public:
  Listener() : name_("@rkv-service-manager-test-" + std::to_string(getpid())) {
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data() + 1, name_.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), length), 0);
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const std::string& name() const { return name_; }
  // Others' messages, until there is no room for one more.
  int fill() const {
    const int other = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    socklen_t length = sizeof address;
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    int sent = 0;
    while (sendto(other, "STATUS=1", 8, 0, reinterpret_cast<sockaddr*>(&address), length) == 8)
      ++sent;
    close(other);
    return sent;
  }
  // The next message, as soon as there is one; "" when none comes.
  std::string await() {
    pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
    poll(&ready, 1, 20'000);
    return next();
  }
  // The next message; "" when there is none.
  std::string next() {
    std::array<char, 256> text{};
    const ssize_t length = recv(socket_, text.data(), text.size(), 0);
    return length < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(length));
  }

 private:
  std::string name_;
  int socket_;
};

class ServiceManagerTest : public ::testing::Test {
 protected:
  ServiceManager make() {
    return ServiceManager(
        [this](const char* name) {
          const auto found = environment_.find(name);
          return found == environment_.end() ? nullptr : found->second.c_str();
        },
        clock_);
  }

  Listener systemd_;
  ManualClock clock_;
  std::map<std::string, std::string> environment_ = {{"NOTIFY_SOCKET", systemd_.name()}};
};

TEST_F(ServiceManagerTest, TellsThatItIsReadyAndThatItStops) {
  ServiceManager manager = make();
  EXPECT_EQ(systemd_.next(), "");
  manager.ready();
  EXPECT_EQ(systemd_.next(), "READY=1");
  clock_.advance(3600 * kNanosPerSecond);
  manager.tick();
  EXPECT_EQ(systemd_.next(), "") << "no watchdog was asked for";
  manager.stopping();
  EXPECT_EQ(systemd_.next(), "STOPPING=1");
}

TEST_F(ServiceManagerTest, IsAliveAtHalfOfTheWatchdogsTime) {
  environment_["WATCHDOG_USEC"] = "2000000";
  environment_["WATCHDOG_PID"] = std::to_string(getpid());
  ServiceManager manager = make();
  manager.ready();
  EXPECT_EQ(systemd_.next(), "READY=1");
  for (int round = 0; round < 3; ++round) {
    clock_.advance(kNanosPerSecond - 1);
    manager.tick();
    EXPECT_EQ(systemd_.next(), "");
    clock_.advance(1);
    manager.tick();
    EXPECT_EQ(systemd_.next(), "WATCHDOG=1");
  }
  manager.stopping();
  EXPECT_EQ(systemd_.next(), "STOPPING=1\nWATCHDOG=1");
}

TEST_F(ServiceManagerTest, WhatFindsNoRoomIsToldLater) {
  environment_["WATCHDOG_USEC"] = "2000000";
  ServiceManager manager = make();
  const auto take_others = [&](int count) {
    for (int i = 0; i < count; ++i)
      EXPECT_EQ(systemd_.next(), "STATUS=1");
  };
  int others = systemd_.fill();
  ASSERT_GT(others, 0);
  manager.ready();
  manager.tick();
  take_others(others);
  EXPECT_EQ(systemd_.next(), "");
  manager.tick();
  EXPECT_EQ(systemd_.next(), "READY=1");
  manager.tick();
  EXPECT_EQ(systemd_.next(), "") << "once";

  others = systemd_.fill();
  clock_.advance(kNanosPerSecond);
  manager.tick();
  take_others(others);
  EXPECT_EQ(systemd_.next(), "");
  clock_.advance(100 * kNanosPerMs);
  manager.tick();
  EXPECT_EQ(systemd_.next(), "WATCHDOG=1") << "at the next tick, not half of the time later";
}

TEST_F(ServiceManagerTest, StoppingWaitsForRoom) {
  ServiceManager manager = make();
  const int others = systemd_.fill();
  std::thread systemd([&] {
    for (int i = 0; i < others; ++i)
      EXPECT_EQ(systemd_.await(), "STATUS=1");
    EXPECT_EQ(systemd_.await(), "STOPPING=1");
  });
  manager.stopping();
  systemd.join();
}

TEST_F(ServiceManagerTest, AWatchdogOfAnotherProcessIsNotOurs) {
  environment_["WATCHDOG_USEC"] = "2";
  environment_["WATCHDOG_PID"] = "1";
  ServiceManager manager = make();
  manager.ready();
  EXPECT_EQ(systemd_.next(), "READY=1");
  clock_.advance(kNanosPerSecond);
  manager.tick();
  EXPECT_EQ(systemd_.next(), "");
}

TEST_F(ServiceManagerTest, BadSettingsAreNoReasonNotToServe) {
  environment_["WATCHDOG_USEC"] = "soon";
  ServiceManager manager = make();
  manager.ready();
  EXPECT_EQ(systemd_.next(), "READY=1");
  clock_.advance(kNanosPerSecond);
  manager.tick();
  EXPECT_EQ(systemd_.next(), "");
  for (const std::string& name : {std::string(), std::string("nowhere"), std::string("/no/such"),
                                  "/" + std::string(200, 'x')}) {
    environment_["NOTIFY_SOCKET"] = name;
    ServiceManager nobody = make();
    nobody.ready();
    nobody.stopping();
    EXPECT_EQ(systemd_.next(), "");
  }
  environment_.erase("NOTIFY_SOCKET");
  ServiceManager none = make();
  none.ready();
}

TEST_F(ServiceManagerTest, PathsAreTold) {
  const std::string path = ::testing::TempDir() + "rkv-notify-" + std::to_string(getpid());
  const int listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), path.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  environment_["NOTIFY_SOCKET"] = path;
  make().ready();
  std::array<char, 16> text{};
  EXPECT_EQ(recv(listener, text.data(), text.size(), 0), 7);
  EXPECT_STREQ(text.data(), "READY=1");
  close(listener);
  unlink(path.c_str());
}

}  // namespace
}  // namespace rkv::server
