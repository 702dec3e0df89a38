// A server that is looked at over HTTP all the time, while it works and while it stops.
// tests/metrics has what is in the answers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/look.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using testing::Looker;

std::uint16_t metrics_port(const std::string& log) {
  const std::string before = "page on http://127.0.0.1:";
  const std::size_t at = log.find(before);
  EXPECT_NE(at, std::string::npos) << log;
  return static_cast<std::uint16_t>(std::strtoul(log.c_str() + at + before.size(), nullptr, 10));
}

TEST(Metrics, AreThereUnderLoadAndWhileTheServerStops) {
  const ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data"), "--metrics", "0"});
  const std::uint16_t port = metrics_port(server.process().output());
  std::list<Looker> lookers;
  for (int i = 0; i < 2; ++i)
    lookers.emplace_back(port);
  const auto all_have_seen = [&](int rounds) {
    return std::all_of(lookers.begin(), lookers.end(),
                       [&](const Looker& one) { return one.rounds() >= rounds; });
  };
  // Two clients, until all who look have seen the load and there was enough of it.
  std::atomic<int> puts = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 2; ++c) {
    clients.emplace_back([&, c] {
      Client client = server.client();
      for (int i = 0; i < 2000 || (!all_have_seen(3) && !::testing::Test::HasFailure()); ++i) {
        const std::string key = fmt::format("key-{}-{}", c, i % 5000);
        ASSERT_TRUE(client.put(key, fmt::format("{:0>200}", i)));
        ASSERT_TRUE(client.get(key));
        ++puts;
      }
    });
  }
  for (std::thread& client : clients)
    client.join();
  const std::string text = testing::look_at(port, "/metrics").text;
  EXPECT_NE(text.find("kvserver_requests_total{operation=\"put\",status=\"ok\"} "),
            std::string::npos);
  for (Looker& one : lookers)
    one.may_stop();
  EXPECT_EQ(server.stop(), 0) << server.process().output();
  for (Looker& one : lookers)
    one.join();
  EXPECT_GE(puts, 4000);
}

}  // namespace
}  // namespace rkv::testing_support
