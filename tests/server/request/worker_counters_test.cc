// A whole server in this process, looked at over HTTP while clients work, while it ticks and while
// it stops: for ThreadSanitizer, which sees workers, applier, main thread and HTTP thread.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <charconv>
#include <cstdio>
#include <thread>

#include "common/log.h"
#include "rdma/choose.h"
#include "rkv/client.h"
#include "server/server.h"
#include "tests/server/persistence/support.h"
#include "tests/support/look.h"

namespace rkv::server {
namespace {

// The port that the log names.
std::atomic<std::uint16_t> metrics_port = 0;

class ServerMetrics : public ::testing::Test {
 protected:
  void SetUp() override {
    set_event_sink([](const LogEvent& event) {
      if (event.name != "metrics_listening") return;
      for (const LogField& field : event.fields) {
        std::uint16_t port = 0;
        if (field.name != "port") continue;
        std::from_chars(field.value.data(), field.value.data() + field.value.size(), port);
        metrics_port = port;
      }
    });
  }
  void TearDown() override {
    set_event_sink([](const LogEvent& event) {
      std::fprintf(stderr, "%s\n", std::string(event.text).c_str());
    });
  }

  const test::TempDir scratch_;
  const SteadyClock clock_;
};

TEST_F(ServerMetrics, AreReadBesideAllThatWritesThem) {
  Options options;
  options.listen = "127.0.0.1:0";
  options.data_dir = scratch_.file("data");
  options.memory_bytes = std::uint64_t{32} << 20;
  options.threads = 2;
  options.transport = rdma::TransportKind::kShm;
  options.metrics = "127.0.0.1:0";
  Server server(options, clock_,
                [](const Options& of) { return rdma::choose_for_server({.kind = of.transport}); });
  const auto failure = server.start();
  ASSERT_FALSE(failure) << failure->sentence;
  rkv::testing::Looker looker(metrics_port);
  std::atomic<bool> done = false;
  std::thread client_thread([&] {
    ClientOptions wanted;
    wanted.server = fmt::format("127.0.0.1:{}", server.port());
    wanted.transport = rkv::Transport::kShm;
    auto client = Client::connect(wanted);
    EXPECT_TRUE(client);
    for (int i = 0; client && (i < 500 || looker.rounds() < 3) && !HasFailure(); ++i) {
      const std::string key = fmt::format("key-{}", i % 100);
      EXPECT_TRUE(client->put(key, "value"));
      EXPECT_TRUE(client->incr("counter", 1));
      EXPECT_TRUE(client->remove(key));
      EXPECT_TRUE(i % 100 != 0 || client->flush());
    }
    done = true;
  });
  while (!done) {  // as the main thread does, but without a pause
    server.tick();
    std::this_thread::yield();
  }
  client_thread.join();
  looker.may_stop();
  EXPECT_FALSE(server.stop());
  looker.join();
  EXPECT_GE(looker.rounds(), 3);
}

}  // namespace
}  // namespace rkv::server
