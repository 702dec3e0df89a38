// Two machines, one of which falls silent without a word while nothing is in flight: how soon the
// other one notices, and what it gives back.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "rkv/client.h"
#include "tests/history/netem.h"
#include "tests/history/other_server.h"
#include "tests/system/world.h"

namespace rkv::history {
namespace {

using namespace std::chrono_literals;
using testing_support::Process;
using testing_support::Server;

// server/MANUAL.md and client/README.md promise 3 s. The machines are emulated, and a thread may
// wait for a processor.
constexpr Nanos kBound = 3 * kNanosPerSecond + 500 * kNanosPerMs;

// RKV_DEAD_HOST_ROUNDS: how many of each cut; the ordinary run has a few.
std::size_t rounds() {
  const char* const given = std::getenv("RKV_DEAD_HOST_ROUNDS");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 3;
}

// A counter of this machine's device.
std::uint64_t device_counter(const std::string& name) {
  std::uint64_t count = 0;
  std::ifstream file("/sys/class/infiniband/rxe0/ports/1/hw_counters/" + name);
  EXPECT_TRUE(file >> count) << name;
  return count;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

void report(const char* what, std::vector<Nanos> took) {
  std::ranges::sort(took);
  fmt::print("{}: least {:.2f} s, median {:.2f} s, most {:.2f} s\n", what,
             static_cast<double>(took.front()) / 1e9,
             static_cast<double>(took[took.size() / 2]) / 1e9,
             static_cast<double>(took.back()) / 1e9);
}

class DeadHost : public ::testing::Test {
 protected:
  // On the other machine: asks once, and is then idle for good.
  static std::unique_ptr<Process> idle_client(const std::string& address) {
    auto client = std::make_unique<Process>(std::vector<std::string>{
        "/run/softroce/node2", "sh", "-c",
        fmt::format("(echo ping; sleep 600) | {} --server {} --transport verbs", RKV_KVCLIENT,
                    address)});
    EXPECT_TRUE(client->wait_for_output(" us")) << client->output();
    return client;
  }

  const SteadyClock clock_;
  OtherHost host_;
  Netem link_{host_};
};

// A server with one place: a client of its own gets it when the idle one of the other host is gone.
TEST_F(DeadHost, TheServerNoticesThatAnIdleClientsHostIsGone) {
  Server server({"--memory", "32MiB", "--max-clients", "1"});
  std::vector<Nanos> took;
  for (std::size_t round = 1; round <= rounds(); ++round) {
    const auto idle = idle_client(server.address());
    ASSERT_EQ(count(server.process().output(), "has ended"), 2 * (round - 1));
    const Nanos cut = clock_.now();  // before either end is cut
    link_.cut();
    while (count(server.process().output(), "has ended") < 2 * round - 1) {
      ASSERT_LT(clock_.now() - cut, 60 * kNanosPerSecond) << "it does not notice";
      std::this_thread::sleep_for(5ms);
    }
    took.push_back(clock_.now() - cut);
    EXPECT_LT(took.back(), kBound);
    {
      ClientOptions options{.server = server.address(), .transport = Transport::kVerbs};
      options.timeout = options.connect_timeout = 1s;
      auto next = Client::connect(options);
      EXPECT_TRUE(next) << "the place is not free: " << to_string(next.error());
    }
    while (count(server.process().output(), "has ended") < 2 * round) {
      ASSERT_LT(clock_.now() - cut, 60 * kNanosPerSecond);
      std::this_thread::sleep_for(5ms);
    }
    link_.restore();
  }
  report("the server notices after", took);
  server.stop_and_check();
}

// The client has sent a request, which has arrived, and waits for the answer. When the bound has
// passed, the link and the server are well again: the old connection would bring the answer now. A
// client that has given it up connects again, and asks what has become of its write.
TEST_F(DeadHost, AClientThatWaitsNoticesThatItsServersHostIsGone) {
  OtherServer server(host_);
  auto client = Client::connect({.server = server.address(), .transport = Transport::kVerbs});
  ASSERT_TRUE(client) << to_string(client.error());
  for (std::uint64_t round = 1; round <= rounds(); ++round) {
    ASSERT_TRUE(client->put("key", "value", 30s));
    EXPECT_EQ(client->stats().reconnects, round - 1);
    server.suspend();
    const std::uint64_t before = device_counter("rcvd_pkts");
    Result<std::uint64_t> put = fail(Code::kInternal, nullptr);
    std::thread writer([&] { put = client->put("key", "changed", 30s); });
    while (device_counter("rcvd_pkts") == before)
      std::this_thread::sleep_for(1ms);
    const Nanos cut = clock_.now();  // before either end is cut
    link_.cut();
    while (clock_.now() - cut < kBound)
      std::this_thread::sleep_for(5ms);
    link_.restore();
    server.go_on();
    writer.join();
    EXPECT_TRUE(put) << to_string(put.error());
    EXPECT_EQ(client->stats().reconnects, round) << "it has not noticed";
    EXPECT_EQ(client->stats().outcomes_asked, round);
    fmt::print("the write ended {:.2f} s after the link was cut\n",
               static_cast<double>(clock_.now() - cut) / 1e9);
  }
  server.stop_and_check();
}

// An idle connection stays. Each look at a silent peer is at least one packet that arrives. That
// holds while no look is sent again (rdma/transport/verbs/README.md): the round trip is shorter
// than the time after which SoftRoCE repeats, unless an emulated processor stands still. The device
// counts what came twice, and the client then has another try.
TEST_F(DeadHost, AnIdleConnectionStays) {
  constexpr int kTries = 5;
  OtherServer server(host_);
  auto client = Client::connect({.server = server.address(), .transport = Transport::kVerbs});
  ASSERT_TRUE(client) << to_string(client.error());
  ASSERT_TRUE(client->ping());
  for (const char* const how : {"loss 0%", "delay 20ms"}) {
    std::uint64_t came_twice = 0;
    for (int tries = 0; tries == 0 || came_twice != 0; ++tries) {
      ASSERT_LT(tries, kTries) << how << ": packets are sent again in each try";
      const std::uint64_t reconnects = client->stats().reconnects;
      const std::uint64_t twice_before = device_counter("duplicate_request");
      link_.disturb(how);
      const std::uint64_t before = device_counter("rcvd_pkts");
      const Nanos deadline = clock_.now() + 60 * kNanosPerSecond;
      while (device_counter("rcvd_pkts") < before + 10 && clock_.now() < deadline)
        std::this_thread::sleep_for(10ms);
      const std::uint64_t packets = device_counter("rcvd_pkts") - before;
      link_.restore();
      EXPECT_TRUE(client->ping());
      came_twice = device_counter("duplicate_request") - twice_before;
      const std::uint64_t lost = client->stats().reconnects - reconnects;
      fmt::print("{}: {} reconnects, {} packets came twice\n", how, lost, came_twice);
      EXPECT_TRUE(lost == 0 || came_twice != 0) << how << ": a connection was lost without a cause";
      EXPECT_TRUE(packets >= 10 || came_twice != 0)
          << how << ": the server does not look after its client; " << packets << " packets\n"
          << server.process().output();
    }
  }
  server.stop_and_check();
}

// The answer to a READ is under way when the time of its caller is up: nothing of it lands in
// memory that the caller has back.
TEST_F(DeadHost, ALateReadLeavesItsCallersMemoryAlone) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  constexpr std::byte kPattern{0x77};
  OtherServer server(host_);
  auto client = Client::connect({.server = server.address(), .transport = Transport::kVerbs});
  ASSERT_TRUE(client) << to_string(client.error());
  ASSERT_TRUE(client->put("key", std::string(kBytes, 'v'), 30s));
  auto buffer = client->allocate_buffer(kBytes);
  ASSERT_TRUE(buffer) << to_string(buffer.error());
  int late = 0;
  for (int round = 0; round < 10; ++round) {
    ASSERT_TRUE(client->get_into("key", *buffer, {.timeout = 30s}));  // the READs of its place too
    link_.disturb("delay 60ms");
    // One way takes 60 ms, and a GET two or three round trips.
    const auto got =
        client->get_into("key", *buffer, {.timeout = std::chrono::milliseconds(100 + 30 * round)});
    late += got ? 0 : 1;
    std::ranges::fill(buffer->bytes(), kPattern);
    while (!link_.is_empty())
      std::this_thread::sleep_for(5ms);
    EXPECT_EQ(std::ranges::count(buffer->bytes(), kPattern), static_cast<std::ptrdiff_t>(kBytes))
        << "round " << round;
    link_.restore();
  }
  fmt::print("{} of 10 GETs were late\n", late);
  EXPECT_GE(late, 3);
  server.stop_and_check();
}

// The last one: the other machine does not come back.
TEST_F(DeadHost, TheServerNoticesThatAnIdleClientsMachineHasEnded) {
  Server server({"--memory", "32MiB", "--max-clients", "1"});
  const auto idle = idle_client(server.address());
  const Nanos ended = clock_.now();
  host_.end_machine();
  while (count(server.process().output(), "has ended") == 0) {
    ASSERT_LT(clock_.now() - ended, 60 * kNanosPerSecond) << "it does not notice";
    std::this_thread::sleep_for(5ms);
  }
  report("the server notices the end of a machine after", {clock_.now() - ended});
  EXPECT_LT(clock_.now() - ended, kBound);
  server.stop_and_check();
}

}  // namespace
}  // namespace rkv::history
