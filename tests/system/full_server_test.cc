// Many more connection requests than a server has places, while all places are in use, and as many
// without a proof to a server with users: each is refused in one sentence, costs the server nothing
// that stays, and hurts no client.
//
// RKV_FULL_SERVER_REQUESTS: how many over verbs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "tests/system/raw.h"
#include "tests/system/users.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr int kPlaces = 4;

std::size_t descriptors_of(pid_t pid) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& one :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid)))
    ++count;
  return count;
}

// Without huge pages: the kernel may make one of small pages at any time, which adds up to 2 MiB.
std::uint64_t resident_kib(pid_t pid) {
  std::ifstream rollup(fmt::format("/proc/{}/smaps_rollup", pid));
  std::uint64_t kib = 0;
  for (std::string name; rollup >> name;) {
    std::uint64_t size = 0;
    if (name == "Rss:" && rollup >> size) kib += size;
    if ((name == "AnonHugePages:" || name == "ShmemPmdMapped:") && rollup >> size) kib -= size;
  }
  EXPECT_GT(kib, 0U);
  return kib;
}

// Clients at work, until the end of this object.
class Workers {
 public:
  explicit Workers(const std::function<Client()>& new_client) {
    for (int i = 0; i < kPlaces; ++i) {
      threads_.emplace_back([this, i, client = new_client()]() mutable {
        const std::string key = fmt::format("key {}", i);
        for (std::uint64_t round = 0; !over_.load(); ++round) {
          const std::string value = std::to_string(round);
          if (!client.put(key, value)) failed_.fetch_add(1);
          const auto got = client.get(key);
          if (!got || got->value != value) failed_.fetch_add(1);
          done_.fetch_add(1);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        reconnects_.fetch_add(client.stats().reconnects);
      });
    }
  }
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void stop() {
    over_.store(true);
    for (std::thread& one : threads_)
      if (one.joinable()) one.join();
  }
  std::uint64_t done() const { return done_.load(); }
  std::uint64_t failed() const { return failed_.load(); }
  std::uint64_t reconnects() const { return reconnects_.load(); }

 private:
  std::atomic<bool> over_{false};
  std::atomic<std::uint64_t> done_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::atomic<std::uint64_t> reconnects_{0};
  std::vector<std::thread> threads_;
};

int requests() {
  if (test_transport() != Transport::kVerbs) return 3000;
  const char* const given = std::getenv("RKV_FULL_SERVER_REQUESTS");
  return given == nullptr ? 150 : std::atoi(given);
}

// EXPECTs that so many requests are refused with this sentence, and are nothing to the server and
// to its clients.
void expect_refusals(Server& server, const std::function<Client()>& new_client,
                     const std::string& sentence) {
  const int warm_up = requests() / 10;
  const pid_t pid = server.process().pid();
  Workers workers(new_client);
  const auto transport = make_transport(server.address());
  std::size_t descriptors = 0;
  std::uint64_t resident = 0;
  std::uint64_t done_before = 0;
  for (int i = 0; i < requests(); ++i) {
    if (i == warm_up) {
      descriptors = descriptors_of(pid);
      resident = resident_kib(pid);
      done_before = workers.done();
    }
    const Raw one(*transport, server.address(), {});
    ASSERT_FALSE(one.connected()) << "request " << i;
    ASSERT_EQ(one.refusal(), sentence);
  }
  // Those of the last requests are closed by a thread that may not have run.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (descriptors_of(pid) > descriptors + 8 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(descriptors_of(pid), descriptors + 8) << "of requests under way at the two counts";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // The log's file and the allocator's caches move it by some; a leak of 1 KiB each by 2.7 MiB.
  const std::uint64_t now_resident = resident_kib(pid);
  fmt::print("{} requests after {}: {} KiB, then {}\n", requests(), warm_up, resident,
             now_resident);
  EXPECT_LE(now_resident, resident + 2048);
#else
  (void)resident;
#endif
  EXPECT_GT(workers.done(), done_before + kPlaces) << "the clients stand still";
  workers.stop();
  EXPECT_EQ(workers.failed(), 0U);
  EXPECT_EQ(workers.reconnects(), 0U);
}

// The ends of the workers' connections come after the new client, if the server is busy.
void expect_to_be_alone(Client& client) {
  const auto connections = [&] { return server_stat(client, "connections"); };
  for (int i = 0; i < 1000 && connections() != 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(connections(), 1U);
}

TEST(FullServer, RefusesThousandsAndServesItsClients) {
  Server server({"--memory", "32MiB", "--max-clients", std::to_string(kPlaces)});
  expect_refusals(
      server, [&] { return server.client(); },
      fmt::format("the server has {} clients, its limit: try again later, or raise "
                  "--max-clients",
                  kPlaces));
  Client client = server.client();
  EXPECT_GE(server_stat(client, "connections_refused"), static_cast<std::uint64_t>(requests()));
  expect_to_be_alone(client);
  server.stop_and_check();
}

// Before its proof a peer takes no place, and nobody gives one up for it.
class FullServerOfUsers : public UsersTest {};

TEST_F(FullServerOfUsers, RefusesThousandsWithoutAProof) {
  // Without a disk, whose database keeps what the clients write in memory for a while.
  server_.emplace(std::vector<std::string>{"--memory", "32MiB", "--users", users_, "--max-clients",
                                           std::to_string(kPlaces)});
  expect_refusals(
      *server_, [&] { return client("bob"); },
      "the server has users: give a user and its secret (--user, --secret-file)");
  Client anna = client("anna");
  expect_to_be_alone(anna);
  server_->stop_and_check();
}

}  // namespace
}  // namespace rkv::testing_support
