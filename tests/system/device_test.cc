// A server whose RDMA device goes away and comes back: SoftRoCE's is taken from under it, in a VM
// of the test's own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/support/look.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class DeviceTest : public ::testing::Test {
 protected:
  DeviceTest() : server_({"--memory", "64MiB", "--metrics", "0", "--threads", "2"}) {
    const std::string before = "page on http://127.0.0.1:";
    const std::string log = server_.process().output();
    const std::size_t at = log.find(before);
    EXPECT_NE(at, std::string::npos) << log;
    port_ = static_cast<std::uint16_t>(std::strtoul(log.c_str() + at + before.size(), nullptr, 10));
  }
  ~DeviceTest() override { EXPECT_EQ(server_.stop(), 0) << server_.process().output(); }

  static void shell(const std::string& command) {
    const Ended ended = run_program({"/bin/sh", "-c", command});
    EXPECT_EQ(ended.status, 0) << command << "\n" << ended.output;
  }
  std::string readyz() const { return testing::look_at(port_, "/readyz").text; }
  // The awaited state may take a busy machine a minute.
  void until_ready_says(const std::string& what) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::string text = readyz();
    while (text.find(what) == std::string::npos && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      text = readyz();
    }
    EXPECT_THAT(text, HasSubstr(what));
  }
  void until_all_serve() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (readyz().find("verbs: ") != std::string::npos &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_THAT(readyz(), HasSubstr("ready\n"));
    EXPECT_THAT(readyz(), Not(HasSubstr("verbs: ")));
  }
  // A process of its own, so that this one never holds the device.
  Ended kvclient_over(const char* transport, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {RKV_KVCLIENT, "--server", server_.address(), "--transport",
                                         transport, "--timeout", "60s"});
    return run_program(std::move(arguments));
  }
  std::string said_over(const char* transport, std::vector<std::string> arguments) const {
    const Ended ended = kvclient_over(transport, std::move(arguments));
    EXPECT_EQ(ended.status, 0) << ended.output;
    return ended.output;
  }

  Server server_;
  std::uint16_t port_ = 0;
};

// First of all: a process that has used the device over verbs holds it until it ends (librdmacm),
// and a driver that has to wait for that does not remove it.
TEST_F(DeviceTest, IsRemovedAndAnotherOneIsServedFrom) {
  Client local = server_.client({.transport = Transport::kShm});
  for (int i = 0; i < 300; ++i)
    ASSERT_TRUE(local.put(fmt::format("key{}", i), fmt::format("value{}", i)));
  EXPECT_THAT(said_over("verbs", {"get", "key7"}), HasSubstr("value7"));
  said_over("verbs", {"incr", "--one-sided", "count", "5"});
  for (int round = 1; round <= 2; ++round) {
    SCOPED_TRACE(round);
    // The second time with its link, as when an adapter is pulled.
    shell(round == 1 ? "timeout 60 rdma link delete rxe0" : "timeout 60 ip link delete dummy0");
    until_ready_says("verbs: waits for a device: the device was removed");
    EXPECT_THAT(readyz(), HasSubstr("200 ")) << "shared memory serves";
    if (round == 1) {  // later the address is not one of this host, which newcomers go by
      const Ended doctor = kvclient_over("shm", {"--output", "json", "doctor"});
      EXPECT_EQ(doctor.status, 4) << doctor.output;
      EXPECT_THAT(doctor.output,
                  HasSubstr("the server's verbs is waiting: the device was removed"));
    }
    EXPECT_EQ(local.get("key7")->value, "value7");
    ASSERT_TRUE(local.put("key7", "value7"));
    EXPECT_EQ(local.incr("count", 1)->number, 5 + 2 * round - 1) << "no device is needed for it";
    shell(round == 1 ? "rdma link add rxe0 type rxe netdev dummy0"
                     : "ip link add dummy0 type dummy && ip link set dummy0 mtu 4200 up && "
                       "ip addr add $RKV_RDMA_ADDRESS/24 dev dummy0 && "
                       "rdma link add rxe0 type rxe netdev dummy0");
    until_all_serve();
    EXPECT_THAT(said_over("verbs", {"get", "key299"}), HasSubstr("value299"));
    said_over("verbs", {"put", "key0", "value0"});
    said_over("verbs", {"incr", "--one-sided", "count", "1"});
    EXPECT_EQ(local.get_counter("count")->number, 5 + 2 * round);
  }
  EXPECT_EQ(local.stats().reconnects, 0U) << "those on this host notice nothing";
  const Json stats = Json::parse(*local.server_stats());
  EXPECT_EQ(stats.at("endpoints").at(0).at("devices_lost"), 2);
}

TEST_F(DeviceTest, APortThatIsDownIsShown) {
  shell("ip link set dummy0 down");
  until_ready_says("verbs: carries no traffic: port 1 is DOWN");
  shell("ip link set dummy0 up");
  until_all_serve();
  EXPECT_THAT(said_over("verbs", {"ping"}), HasSubstr("us"));
  EXPECT_THAT(server_.process().output(), Not(HasSubstr("lost its device")));
}

// The device is there all the time, but the server has to open it again: a client keeps its own
// half, and is served again with what it knew of the server's memory being wrong.
TEST_F(DeviceTest, AConnectedClientIsServedAgain) {
  Client remote = server_.client({.transport = Transport::kVerbs});
  for (int i = 0; i < 300; ++i)
    ASSERT_TRUE(remote.put(fmt::format("key{}", i), fmt::format("value{}", i)));
  auto counter = remote.open_counter("count");
  ASSERT_TRUE(counter);
  EXPECT_EQ(remote.incr(*counter, 5)->number, 5);
  for (int round = 1; round <= 2; ++round) {
    SCOPED_TRACE(round);
    // Another address takes the place of ours in the table of GIDs, which comes back behind it.
    const std::string other = fmt::format("192.168.99.{}/24", round);
    shell("ip addr del $RKV_RDMA_ADDRESS/24 dev dummy0 && ip addr add " + other +
          " dev dummy0 && sleep 0.5 && ip addr add $RKV_RDMA_ADDRESS/24 dev dummy0");
    EXPECT_TRUE(server_.process().wait_for_output("moved to another index"));
    until_all_serve();
    for (int i = 0; i < 300; i += 13) {
      const auto got = remote.get(fmt::format("key{}", i));
      ASSERT_TRUE(got) << to_string(got.error());
      EXPECT_EQ(got->value, fmt::format("value{}", i));
    }
    const auto counted = remote.incr(*counter, 1);
    ASSERT_TRUE(counted) << to_string(counted.error());
    EXPECT_EQ(counted->number, 5 + round);
    EXPECT_EQ(remote.stats().reconnects, static_cast<std::uint64_t>(round)) << "once each time";
  }
}

}  // namespace
}  // namespace rkv::testing_support
