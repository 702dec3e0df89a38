// The gate for torn reads, over shared memory, where a GET is cheap enough for many millions:
// writers in processes of their own change a few keys without pause, in place, moving, removing and
// putting again, while a reader GETs them one-sidedly. Each value says whether it is whole.
//
// RKV_GATE_GETS: how many GETs in all.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <vector>

#include "common/random.h"
#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

constexpr std::uint64_t kWriters = 2;
constexpr std::uint64_t kKeysEach = 3;
constexpr std::uint64_t kKeys = kWriters * kKeysEach;
constexpr std::uint64_t kReaders = 1;  // leaves the writers a processor where there are two

struct Counts {
  std::uint64_t values = 0;
  std::uint64_t missing = 0;
  std::uint64_t torn = 0;       // returned although not whole
  std::uint64_t backwards = 0;  // older than what this reader had read before
  std::string error;
};

Counts read(Client& client, std::uint64_t gets, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < kKeys; ++i)
    names.push_back(fmt::format("gate-{}", i));
  std::vector<std::uint64_t> newest(kKeys, 0);
  std::vector<std::byte> buffer(std::size_t{128} << 10);
  Counts counts;
  for (std::uint64_t i = 0; i < gets; ++i) {
    const std::uint64_t key = random.below(kKeys);
    const auto got = client.get_into(names[key], buffer);
    if (!got && got.error().code == Code::kNotFound) {
      ++counts.missing;
      continue;
    }
    if (!got) {
      counts.error = to_string(got.error());
      return counts;
    }
    ++counts.values;
    std::uint64_t counter = 0;
    const std::string_view value(reinterpret_cast<const char*>(buffer.data()), got->bytes);
    if (!is_whole(value, &counter)) {
      ++counts.torn;
    } else if (counter < newest[key]) {
      ++counts.backwards;
    } else {
      newest[key] = counter;
    }
  }
  return counts;
}

TEST(TornReadGate, NoTornValueIsReturnedAndTearsAreSeen) {
  const char* wanted = std::getenv("RKV_GATE_GETS");
  ASSERT_NE(wanted, nullptr) << "RKV_GATE_GETS says how many GETs: run this by ctest";
  const std::uint64_t gets = std::strtoull(wanted, nullptr, 10);
  ASSERT_GT(gets, 0U);
  Server server({"--memory", "64MiB"});
  std::vector<std::unique_ptr<Process>> writers;
  for (std::uint64_t i = 0; i < kWriters; ++i) {
    writers.push_back(std::make_unique<Process>(
        std::vector<std::string>{RKV_GATE_WRITER, server.address(), std::to_string(i * kKeysEach),
                                 std::to_string(kKeysEach), std::to_string(i + 1)}));
    ASSERT_TRUE(writers.back()->wait_for_output("storming")) << writers.back()->output();
  }
  std::vector<Client> clients;
  for (std::uint64_t i = 0; i < kReaders; ++i)
    clients.push_back(server.client());
  std::vector<std::future<Counts>> readers;
  for (std::uint64_t i = 0; i < kReaders; ++i) {
    readers.push_back(std::async(std::launch::async,
                                 [&, i] { return read(clients[i], gets / kReaders, 100 + i); }));
  }
  ClientStats all{};
  for (std::uint64_t i = 0; i < kReaders; ++i) {
    const Counts counts = readers[i].get();
    EXPECT_EQ(counts.error, "");
    EXPECT_EQ(counts.torn, 0U);
    EXPECT_EQ(counts.backwards, 0U);
    EXPECT_GT(counts.values, gets / kReaders / 2);
    EXPECT_GT(counts.missing, 0U) << "nothing was removed";
    all += clients[i].stats();
  }
  for (const auto& writer : writers)
    EXPECT_TRUE(writer->running()) << writer->output();
  const std::uint64_t puts = server_stat(clients.front(), "puts");
  std::printf("%lu GETs, %lu one-sided, %lu READs, %lu tears detected, %lu retries; %lu PUTs\n",
              all.gets, all.one_sided_gets, all.rdma_reads, all.tears_detected, all.retries, puts);
  EXPECT_GE(all.gets, gets / kReaders * kReaders);
  EXPECT_GT(all.tears_detected, 0U) << "a storm that tears nothing proves nothing";
  EXPECT_GT(puts, 1000U);
  server.stop_and_check();
}

}  // namespace
}  // namespace rkv::testing_support
