// Servers and clients killed with SIGKILL at bad moments.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/system/whole_value.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

std::string name_of(std::uint64_t number) {
  return fmt::format("crash-{:06}", number);
}

std::string loaded_value(std::uint64_t number) {
  return std::string(100 + number % 400, static_cast<char>('a' + number % 26));
}

// A kvclient that loads records crash-000000 on is running while the server is killed. Returns how
// many records it was given, 0 if it had stored them all before the kill.
std::uint64_t kill_during_load(Server& server, Client& client, const ScratchDirectory& scratch,
                               std::uint64_t records) {
  std::ofstream file(scratch.path("records.tsv"));
  for (std::uint64_t i = 0; i < records; ++i)
    file << name_of(i) << '\t' << loaded_value(i) << '\n';
  file.close();
  Process loader({RKV_KVCLIENT, "--server", server.address(), "--timeout", "2s", "load",
                  scratch.path("records.tsv")});
  while (server_stat(client, "records") < 500 && loader.running()) {
  }
  server.kill();
  const Ended ended = loader.wait();
  if (ended.status == 0) return 0;
  EXPECT_TRUE(ended.status == 3 || ended.status == 4) << ended.status << ended.output;
  return records;
}

// The server is killed in the middle of a pipelined load by another process. Acknowledged records
// may be lost with the server's memory. The values that survive are whole.
TEST(Crash, AServerKilledInTheMiddleOfALoadLosesNoValueInPart) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  // The machine may leave this process without a processor until the load is over: more records
  // then.
  std::uint64_t records = 0;
  for (std::uint64_t asked = 20'000; records == 0 && asked <= 320'000; asked *= 2) {
    records = kill_during_load(server, client, scratch, asked);
    if (records == 0) std::filesystem::remove_all(scratch.path("data"));
    server.start();
    if (records == 0) client = server.client();  // of another store
  }
  ASSERT_GT(records, 0) << "each load was over before the kill";
  std::uint64_t survived = 0;
  std::vector<std::string> names(records);
  for (std::uint64_t i = 0; i < records; ++i)
    names[i] = name_of(i);
  const std::vector<std::string_view> keys(names.begin(), names.end());
  client.multi_get_into(
      keys,
      [&](std::size_t i, const Result<ValueView>& got) {
        if (!got) {
          EXPECT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
          return;
        }
        EXPECT_EQ(got->value, loaded_value(i));
        ++survived;
      },
      std::chrono::seconds(60));
  std::printf("%lu of %lu records survived\n", survived, records);
  EXPECT_LT(survived, records);
  server.stop_and_check();
}

// A prefix of the commit order that holds everything flushed survives a kill.
TEST(Crash, AServerKilledDuringALoadKeepsAPrefixWithAllThatWasFlushed) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  std::uint64_t next = 0;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 150; ++i, ++next) {
      ASSERT_TRUE(client.put(name_of(next), whole_value(next, 20)));
    }
    ASSERT_TRUE(client.flush());
    const std::uint64_t flushed = next;
    for (int i = 0; i < 100; ++i, ++next) {
      ASSERT_TRUE(client.put(name_of(next), whole_value(next, 20)));
    }
    server.kill();
    server.start();
    // The same client finds its way back: new epoch, everything cached forgotten.
    std::uint64_t survived = 0;
    for (std::uint64_t i = 0; i < next; ++i) {
      const auto got = client.get(name_of(i));
      if (!got) {
        ASSERT_EQ(got.error().code, Code::kNotFound) << to_string(got.error());
        continue;
      }
      EXPECT_EQ(got->value, whole_value(i, 20)) << name_of(i);
      EXPECT_EQ(survived, i) << "a hole before " << name_of(i);
      survived = i + 1;
    }
    EXPECT_GE(survived, flushed);
    // The last of them may be lost: the next flush does not promise that they are on disk.
    EXPECT_EQ(client.flush().error().code, Code::kStale);
    next = survived;
    EXPECT_GE(client.stats().reconnects, 1U);
  }
  server.stop_and_check();
}

// A kill takes writes with it that were acknowledged: no flush and no backup of the next server
// stands for them.
TEST(Crash, NeitherFlushNorBackupStandsForWritesThatAKilledServerHasLost) {
  ScratchDirectory scratch;
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("data"), "--backup-dir",
                 scratch.path("backups"), "--durability", "memory", "--sync-interval", "60m"});
  Client client = server.client();
  for (const bool backup : {false, true}) {
    const auto save = [&] { return backup ? client.backup("b") : client.flush(); };
    ASSERT_TRUE(client.put("key", "value"));
    server.kill();
    server.start();
    // A backup is asked for once: not over the connection that has ended.
    ASSERT_TRUE(client.ping());
    const auto saved = save();
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, Code::kStale);
    EXPECT_EQ(saved.error().write, WriteOutcome::kNotApplied);
    EXPECT_TRUE(save()) << "said once";
    ASSERT_TRUE(client.put("key", "value"));
    ASSERT_TRUE(client.flush());
    server.kill();
    server.start();
    EXPECT_TRUE(client.flush()) << "all was on disk";
    EXPECT_EQ(client.get("key")->value, "value");
  }
}

// A GET never answers from the memory of a server that is gone.
TEST(Crash, OperationsOnADeadServerEndByTheirDeadlineWithATypedError) {
  Server server;
  Client client = server.client();
  ASSERT_TRUE(client.put("key", "value"));
  ASSERT_TRUE(client.get("key"));
  server.kill();
  const auto start = std::chrono::steady_clock::now();
  const auto got = client.get("key", std::chrono::milliseconds(2500));
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_FALSE(got);
  const Code code = got.error().code;
  EXPECT_TRUE(code == Code::kTimeout || code == Code::kDisconnected || code == Code::kUnreachable)
      << to_string(got.error());
  EXPECT_EQ(got.error().write, WriteOutcome::kNotApplied);
  // The deadline, and as much again for a machine that is busy with other things.
  EXPECT_LT(took, std::chrono::milliseconds(5000));
}

TEST(Crash, ClientsKilledInTheMiddleOfRequestsDisturbNobody) {
  Server server;
  Client survivor = server.client();
  ASSERT_TRUE(survivor.put("mine", "0"));
  const std::uint64_t at_rest = server_stat(survivor, "connections");
  for (int round = 0; round < 5; ++round) {
    Process writer({RKV_STORM_WRITER, server.address(), "0", "4", "500"});
    ASSERT_TRUE(writer.wait_for_output("storming")) << writer.output();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(survivor.put("mine", std::to_string(i)));
      ASSERT_TRUE(survivor.get("storm-1"));
    }
    writer.signal(SIGKILL);
    writer.wait();
    for (int i = 0; i < 50; ++i) {
      ASSERT_TRUE(survivor.put("mine", std::to_string(i)));
      const auto got = survivor.get("mine");
      ASSERT_TRUE(got);
      EXPECT_EQ(got->value, std::to_string(i));
    }
  }
  // Their connections are given back; no time is fixed for it, hence the bounded wait.
  std::uint64_t left = 0;
  for (int i = 0; i < 3000 && (left = server_stat(survivor, "connections")) != at_rest; ++i) {
  }
  EXPECT_EQ(left, at_rest);
  EXPECT_EQ(survivor.stats().reconnects, 0U);
  server.stop_and_check();
}

}  // namespace
}  // namespace rkv::testing_support
