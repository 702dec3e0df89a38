// Several processes at work on one server, every byte compared.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/random.h"
#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

// Records of many sizes, binary values included; TSV's escapes are the client's business.
void write_records(const std::string& path, const std::string& prefix, std::uint64_t seed,
                   std::size_t count) {
  Random random(seed);
  std::ofstream out(path);
  for (std::size_t i = 0; i < count; ++i) {
    std::string value(random.below(40) == 0 ? random.below(100'000) : random.below(1500), 'x');
    for (char& c : value)
      c = static_cast<char>('a' + random.below(26));
    out << prefix << i << '\t' << value << '\n';
  }
}

TEST(Store, SeveralClientProcessesLoadAndEveryByteIsReadBack) {
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  std::vector<std::string> files;
  std::vector<std::unique_ptr<Process>> loaders;
  for (int i = 0; i < 3; ++i) {
    files.push_back(scratch.path(fmt::format("records-{}.tsv", i)));
    write_records(files.back(), fmt::format("client{}-", i), static_cast<std::uint64_t>(i) + 1,
                  400);
    loaders.push_back(std::make_unique<Process>(std::vector<std::string>{
        RKV_KVCLIENT, "--server", server.address(), "load", files.back()}));
  }
  for (auto& loader : loaders) {
    const Ended ended = loader->wait(240);
    EXPECT_EQ(ended.status, 0) << ended.output;
  }
  for (const std::string& file : files) {
    const Ended ended = kvclient(server.address(), {"--output", "json", "verify", file});
    ASSERT_EQ(ended.status, 0) << ended.output;
    const auto result = nlohmann::json::parse(ended.output);
    EXPECT_EQ(result["records"], 400);
    EXPECT_EQ(result["mismatches"], 0);
    EXPECT_EQ(result["missing"], 0);
    EXPECT_EQ(result["one_sided_gets"], 400);
  }
  // Stopped and started again: the same bytes, from disk.
  EXPECT_EQ(server.stop(), 0) << server.process().output();
  server.start();
  for (const std::string& file : files) {
    const Ended ended = kvclient(server.address(), {"verify", file});
    EXPECT_EQ(ended.status, 0) << ended.output;
  }
}

TEST(Store, TheServersProcessTakesNoPartInAGet) {
  Server server;
  Client client = server.client();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.put(fmt::format("key{}", i), "value"));
  }
  // Stopped: it could not answer if it were asked.
  server.process().signal(SIGSTOP);
  for (int i = 0; i < 5000; ++i) {
    const auto got = client.get(fmt::format("key{}", i % 100));
    ASSERT_TRUE(got) << to_string(got.error());
    ASSERT_EQ(got->value, "value");
  }
  EXPECT_EQ(client.get("absent").error().code, Code::kNotFound);
  server.process().signal(SIGCONT);
  EXPECT_EQ(server_stat(client, "two_sided_gets"), 0U);
  const ClientStats stats = client.stats();
  EXPECT_EQ(stats.one_sided_gets, 5001U);
  // The cache is warm after the first round: one READ a GET.
  EXPECT_LE(stats.rdma_reads, 5001U + 2 * 100U);
}

// The first line of a file of /proc that begins so, without its beginning.
std::string line_of(const std::filesystem::path& file, std::string_view start) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return {};
}

// Returns the number of threads that have named themselves workers, and how many of them stay on
// `cpu`.
std::pair<int, int> workers_on(pid_t pid, const std::string& cpu) {
  std::pair<int, int> found;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid))) {
    if (line_of(task.path() / "comm", "") != "rkv-worker") continue;
    ++found.first;
    if (line_of(task.path() / "status", "Cpus_allowed_list:\t") == cpu) ++found.second;
  }
  return found;
}

// As the kernel tells of its threads, which name and place themselves once they run.
TEST(Store, WorkersStayOnTheProcessorsNamed) {
  const std::string cpu = std::to_string(::sched_getcpu());
  Server server({"--memory", "32MiB", "--threads", "2", "--cpus", cpu});
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::pair<int, int> found;
  while ((found = workers_on(server.process().pid(), cpu)) != std::pair(2, 2)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end)
        << found.second << " of " << found.first << " workers stay on processor " << cpu;
  }
}

TEST(Store, FullMemoryIsAClearAnswerAndLosesNothing) {
  Server server({"--memory", "16MiB"});
  Client client = server.client({.cache_bytes = 0});
  std::uint64_t stored = 0;
  Error error{};
  while (stored < 1000) {
    const auto put = client.put(fmt::format("big-{}", stored), whole_value(stored, 8192),
                                std::chrono::milliseconds(2000));
    if (!put) {
      error = put.error();
      break;
    }
    ++stored;
  }
  ASSERT_EQ(error.code, Code::kOutOfMemory) << to_string(error) << " after " << stored;
  EXPECT_EQ(error.write, WriteOutcome::kNotApplied);
  EXPECT_GT(stored, 100U);
  for (std::uint64_t i = 0; i < stored; ++i) {
    const auto got = client.get(fmt::format("big-{}", i));
    ASSERT_TRUE(got) << i << ": " << to_string(got.error());
    EXPECT_EQ(got->value, whole_value(i, 8192)) << i;
  }
  EXPECT_EQ(client.get(fmt::format("big-{}", stored)).error().code, Code::kNotFound);
  for (std::uint64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(client.remove(fmt::format("big-{}", i)));
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_TRUE(client.put(fmt::format("again-{}", i), whole_value(i, 8192))) << i;
  }
}

// Records that fitted once fit again: the index's hash seed is kept with the data.
TEST(Store, AServerThatWasFullStartsAgainWithTheSameMemory) {
  ScratchDirectory scratch;
  Server server({"--memory", "16MiB", "--data-dir", scratch.path("data")});
  Client client = server.client({.cache_bytes = 0});
  std::vector<std::string> names;
  bool full = false;
  while (!full && names.size() < 1'000'000) {
    std::vector<std::string> batch;
    for (int i = 0; i < 4000; ++i)
      batch.push_back(fmt::format("full-{}", names.size() + batch.size()));
    std::vector<KeyValue> items;
    for (const std::string& name : batch)
      items.push_back({.key = name, .value = name});
    const auto results = client.multi_put(items, std::chrono::minutes(2));
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i]) {
        names.push_back(batch[i]);
      } else {
        ASSERT_EQ(results[i].error().code, Code::kOutOfMemory) << to_string(results[i].error());
        full = true;
      }
    }
  }
  ASSERT_TRUE(full);
  EXPECT_EQ(server.stop(), 0) << server.process().output();
  server.start();
  while (server_stat(client, "loading") != 0) {
  }
  EXPECT_EQ(server_stat(client, "records") + server_stat(client, "records_on_disk"), names.size());
  for (std::size_t i = 0; i < names.size(); i += names.size() / 500) {
    const auto got = client.get(names[i]);
    ASSERT_TRUE(got) << names[i] << ": " << to_string(got.error());
    EXPECT_EQ(got->value, names[i]);
  }
}

TEST(Store, MultiGetKeepsTheOrderAndEachKeysOwnStatus) {
  Server server;
  Client client = server.client();
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i)
    names.push_back(fmt::format("n{}", i));
  for (int i = 0; i < 300; i += 2) {
    ASSERT_TRUE(client.put(names[static_cast<std::size_t>(i)], fmt::format("v{}", i)));
  }
  const std::vector<std::string_view> keys(names.begin(), names.end());
  const auto values = client.multi_get(keys);
  ASSERT_EQ(values.size(), keys.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 2 == 0) {
      ASSERT_TRUE(values[i]) << to_string(values[i].error());
      EXPECT_EQ(values[i]->value, fmt::format("v{}", i));
    } else {
      EXPECT_EQ(values[i].error().code, Code::kNotFound);
    }
  }
}

}  // namespace
}  // namespace rkv::testing_support
