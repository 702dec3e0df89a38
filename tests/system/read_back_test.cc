// A data directory read by RocksDB's own tool, record by record, and a restore that is killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Record {
  std::uint64_t version = 0;
  std::string value;
  bool operator==(const Record&) const = default;
};
using Records = std::map<std::string, Record>;

std::string value_of(std::uint64_t number) {
  return fmt::format("{} {}", number, std::string(number * 37 % 5000, 'v'));
}

// Everything the server has, as a client sees it.
Records write_and_read(Client& client) {
  for (std::uint64_t i = 0; i < 400; ++i) {
    EXPECT_TRUE(client.put(fmt::format("key{}", i % 150), value_of(i)));
    if (i % 5 == 0) {
      EXPECT_TRUE(client.put_with("lives", "x", {.ttl = std::chrono::hours(1)}));
    }
    if (i % 9 == 0) (void)client.remove(fmt::format("key{}", i % 40));
  }
  EXPECT_TRUE(client.put(std::string("\0\xFF\n: ", 5), std::string("\0\0", 2)));
  EXPECT_TRUE(client.put("large", std::string(300'000, 'l')));
  EXPECT_TRUE(client.put("empty", ""));
  EXPECT_TRUE(client.flush());
  std::vector<std::string> keys = {"lives", "large", "empty", std::string("\0\xFF\n: ", 5)};
  for (int i = 0; i < 150; ++i)
    keys.push_back(fmt::format("key{}", i));
  Records records;
  for (const std::string& key : keys) {
    const auto got = client.get(key);
    if (got) records[key] = {got->version, got->value};
  }
  return records;
}

std::string from_hex(std::string_view text) {
  EXPECT_TRUE(text.starts_with("0x") && text.size() % 2 == 0) << text.substr(0, 80);
  std::string bytes;
  for (std::size_t i = 2; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16));
  return bytes;
}

// Returns the output of `ldb scan` for a copy, since ldb opens the database for writing.
Records read_by_ldb(const std::string& data) {
  const ScratchDirectory scratch;
  fs::copy(data + "/db", scratch.path("db"), fs::copy_options::recursive);
  const Ended ended =
      run_program({"/usr/bin/ldb", "--db=" + scratch.path("db"), "--hex", "scan"}, 120);
  EXPECT_EQ(ended.status, 0) << ended.output.substr(0, 2000);
  Records records;
  std::istringstream lines(ended.output);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(" : ");
    if (colon == std::string::npos) {
      ADD_FAILURE() << line.substr(0, 200);
      continue;
    }
    const std::string key = from_hex(line.substr(0, colon));
    const std::string stored = from_hex(line.substr(colon + 3));
    if (stored.size() < 16) {
      ADD_FAILURE() << key << " has " << stored.size() << " bytes";
      continue;
    }
    Record record{.value = stored.substr(16)};  // version, traits, value: persistence/database.h
    std::memcpy(&record.version, stored.data(), sizeof record.version);
    EXPECT_TRUE(records.emplace(key, std::move(record)).second) << key;
  }
  return records;
}

// In the log after a kill, in tables after the next start.
TEST(ReadBack, RocksDbsOwnToolFindsEveryRecord) {
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  Records expected;
  {
    Client client = server.client();
    expected = write_and_read(client);
  }
  ASSERT_GT(expected.size(), 100U);
  server.kill();
  EXPECT_EQ(read_by_ldb(scratch.path("data")), expected);
  server.start();
  ASSERT_EQ(server.stop(), 0);
  EXPECT_EQ(read_by_ldb(scratch.path("data")), expected);
}

// Killed at any moment there is nothing to start on, or all of it; and it can be done again.
TEST(ReadBack, ARestoreThatIsKilledCanBeRepeated) {
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  Records expected;
  {
    Client client = server.client();
    expected = write_and_read(client);
  }
  ASSERT_EQ(server.stop(), 0);
  const std::string target = scratch.path("target");
  int cut_short = 0;
  for (const char* sign : {"restoring", "restoring/db", "restoring/db/CURRENT", "db", "nothing"}) {
    SCOPED_TRACE(sign);
    fs::remove_all(target);
    Process restore({RKV_KVSERVER, "--restore", scratch.path("data"), "--data-dir", target});
    while (restore.running() && !fs::exists(target + "/" + sign)) {
    }
    restore.signal(SIGKILL);
    const bool done = restore.wait().status == 0;
    if (fs::exists(target + "/restoring") || !fs::exists(target + "/db")) {
      ASSERT_FALSE(done);
      ++cut_short;
      if (!fs::exists(target + "/restoring")) continue;  // it had not begun
      const Ended started = run_program({RKV_KVSERVER, "--no-auth", "--data-dir", target});
      EXPECT_EQ(started.status, 4) << started.output;
      EXPECT_THAT(started.output, HasSubstr("remove it and restore again"));
      continue;
    }
    EXPECT_EQ(read_by_ldb(target), expected);
  }
  EXPECT_GT(cut_short, 0);
  fs::remove_all(target);
  EXPECT_EQ(
      run_program({RKV_KVSERVER, "--restore", scratch.path("data"), "--data-dir", target}).status,
      0);
  EXPECT_EQ(read_by_ldb(target), expected);
}

}  // namespace
}  // namespace rkv::testing_support
