// The cost of a client for the server over verbs: registered memory, and mapped rings of the
// device's queues. Both are counted by the system to the page, and do not depend on what was used.
// The server's own notes on a client, some 7 KiB, come to it: 64 KiB is the promise for all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>

#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::uint64_t kMostKiB = 52;

// VmPin counts what is registered (proc(5)).
std::uint64_t registered_kib(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmPin: %" SCNu64, &kib) == 1) return kib;
  }
  ADD_FAILURE() << "no VmPin";
  return 0;
}

std::uint64_t rings_kib(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  std::uint64_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    if (line.find("/dev/infiniband/uverbs") == std::string::npos) continue;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64, &from, &to) == 2) bytes += to - from;
  }
  return bytes / 1024;
}

// Returns the memory of a server that is made for `clients` clients, all of which are connected.
std::uint64_t kib_with(std::size_t clients) {
  Server server({"--memory", "32MiB", "--max-clients", std::to_string(clients)});
  std::vector<Client> all;
  for (std::size_t i = 0; i < clients; ++i) {
    all.push_back(server.client());
    EXPECT_TRUE(all.back().put("key", "value"));
  }
  const pid_t pid = server.process().pid();
  const std::uint64_t registered = registered_kib(pid);
  const std::uint64_t rings = rings_kib(pid);
  EXPECT_GT(registered, 0U);
  return registered + rings;
}

TEST(VerbsMemory, OneMoreClientIsCheap) {
  constexpr std::size_t kFew = 2;
  constexpr std::size_t kMore = 32;
  const std::uint64_t few = kib_with(kFew);
  const std::uint64_t many = kib_with(kFew + kMore);
  ASSERT_GT(many, few);
  EXPECT_LE((many - few) / kMore, kMostKiB) << few << " KiB, with " << kMore << " more " << many;
}

}  // namespace
}  // namespace rkv::testing_support
