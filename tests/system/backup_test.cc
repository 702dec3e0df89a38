// Data that is copied while it is served, looked at, and restored: kvclient backup, kvserver
// --verify, kvserver --restore.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "common/random.h"
#include "tests/support/files.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::longest_file;
using testing::read_file;
using testing::write_file;

std::vector<std::string> with_backups(const ScratchDirectory& scratch) {
  return {"--memory",           "32MiB",        "--data-dir",
          scratch.path("data"), "--backup-dir", scratch.path("backups")};
}

Ended kvserver(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), RKV_KVSERVER);
  return run_program(std::move(arguments));
}
Ended verify(const std::string& directory) {
  return kvserver({"--verify", "--data-dir", directory});
}
Ended restore(const std::string& backup, const std::string& directory) {
  return kvserver({"--restore", backup, "--data-dir", directory});
}

void expect_failure(const Ended& ended, int status, const std::string& names) {
  EXPECT_EQ(ended.status, status) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr(names));
}

// Names and bytes.
std::map<std::string, std::string> files_of(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    files[entry.path()] = entry.is_regular_file() ? read_file(entry.path()) : "";
  return files;
}

// The acknowledged writes: for each key the number last written, with its version.
struct Known {
  std::uint64_t number = 0;
  std::uint64_t version = 0;
};
class Ledger {
 public:
  void acknowledged(const std::string& key, const Known& known) {
    const std::scoped_lock lock(mutex_);
    known_[key] = known;
    ++count_;
  }
  std::map<std::string, Known> now() const {
    const std::scoped_lock lock(mutex_);
    return known_;
  }
  std::uint64_t count() const {
    const std::scoped_lock lock(mutex_);
    return count_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Known> known_;
  std::uint64_t count_ = 0;
};

std::string value_of(std::uint64_t number) {
  return fmt::format("{} {}", number, std::string(number % 3000, 'v'));
}

// PUTs of all lengths, DELETEs of other keys, counters by requests and by atomics.
void write_until(const std::atomic<bool>& stop, Client client, int writer, Ledger& ledger) {
  const std::string cell = fmt::format("cell{}", writer);
  auto counter = client.open_counter(cell);
  ASSERT_TRUE(counter) << to_string(counter.error());
  for (std::uint64_t i = 1; !stop; ++i) {
    const std::string key = fmt::format("key{}-{}", writer, i % 50);
    const auto put = client.put(key, value_of(i));
    ASSERT_TRUE(put) << to_string(put.error());
    ledger.acknowledged(key, {.number = i, .version = *put});
    const std::string count = fmt::format("count{}", writer);
    const auto counted = client.incr(count);
    ASSERT_TRUE(counted) << to_string(counted.error());
    ledger.acknowledged(count, {static_cast<std::uint64_t>(counted->number), counted->version});
    const auto added = client.incr(*counter);
    ASSERT_TRUE(added) << to_string(added.error());
    ledger.acknowledged(cell, {.number = static_cast<std::uint64_t>(added->number)});
    if (i % 7 == 0) {
      const std::string brief = fmt::format("brief{}", writer);
      ASSERT_TRUE(client.put(brief, "x"));
      ASSERT_TRUE(client.remove(brief));
    }
  }
}

// All that was acknowledged `before` the backup is there, or something later that was written.
void expect_all(Client& client, const std::map<std::string, Known>& before,
                const std::map<std::string, Known>& after) {
  for (const auto& [key, known] : before) {
    const auto got = client.get(key);
    ASSERT_TRUE(got) << key << ": " << to_string(got.error());
    const Known& last = after.at(key);
    std::uint64_t number = 0;
    if (got->is_counter) {
      number = static_cast<std::uint64_t>(client.get_counter(key)->number);
    } else {
      number = std::stoull(got->value);
      EXPECT_EQ(got->value, value_of(number)) << key;
    }
    EXPECT_GE(number, known.number) << key;
    EXPECT_LE(number, last.number) << key;
    if (known.version == 0) continue;
    EXPECT_GE(got->version, known.version) << key;
    EXPECT_LE(got->version, last.version) << key;
    EXPECT_EQ(got->version == known.version, number == known.number) << key;
  }
}

TEST(Backup, UnderLoadHoldsEverythingAcknowledgedBefore) {
  ScratchDirectory scratch;
  Server server(with_backups(scratch));
  Client client = server.client();
  Ledger ledger;
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer)
    writers.emplace_back([&, writer] { write_until(stop, server.client(), writer, ledger); });
  constexpr int kBackups = 3;
  std::vector<std::map<std::string, Known>> before;
  std::uint64_t last_version = 0;
  for (int i = 0; i < kBackups; ++i) {
    const std::uint64_t so_far = ledger.count();
    while (ledger.count() < so_far + 500)
      std::this_thread::yield();
    before.push_back(ledger.now());
    const auto made = client.backup(fmt::format("b{}", i));
    ASSERT_TRUE(made) << to_string(made.error()) << client.last_refusal();
    for (const auto& [key, known] : before.back())
      EXPECT_LE(known.version, *made) << key;
    EXPECT_GT(*made, last_version);
    last_version = *made;
  }
  EXPECT_EQ(server_stat(client, "backups"), static_cast<std::uint64_t>(kBackups));
  stop = true;
  for (std::thread& writer : writers)
    writer.join();
  const auto after = ledger.now();
  const std::uint64_t boot = server_stat(client, "boot");
  server.kill();
  for (int i = 0; i < kBackups; ++i) {
    const std::string backup = scratch.path(fmt::format("backups/b{}", i));
    const std::string directory = scratch.path(fmt::format("restored{}", i));
    const auto bytes = files_of(backup);
    EXPECT_EQ(verify(backup).status, 0);
    const Ended restored = restore(backup, directory);
    ASSERT_EQ(restored.status, 0) << restored.output;
    EXPECT_THAT(restored.output, HasSubstr("kvserver --data-dir " + directory));
    EXPECT_EQ(files_of(backup), bytes) << "the backup was changed";
    Server again({"--memory", "32MiB", "--data-dir", directory});
    Client reader = again.client();
    expect_all(reader, before[static_cast<std::size_t>(i)], after);
    // The server that was backed up has given out more since; it may even have started again.
    const auto put = reader.put("new", "version");
    ASSERT_TRUE(put);
    for (const auto& [key, known] : after)
      EXPECT_GT(*put, known.version) << key;
    EXPECT_GT(server_stat(reader, "boot"), boot + 65'536);
    EXPECT_EQ(again.stop(), 0);
    EXPECT_EQ(verify(directory).status, 0);
  }
}

// A server killed while it was being written to, and the data directory looked at as it was left.
TEST(Backup, WhatAKilledServerLeavesIsSound) {
  ScratchDirectory scratch;
  Server server(with_backups(scratch));
  Ledger ledger;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    Client client = server.client({.timeout = std::chrono::seconds(2)});
    for (std::uint64_t i = 0; !stop; ++i) {
      if (!client.put(fmt::format("key{}", i % 100), value_of(i))) return;
      ledger.acknowledged("any", {});
    }
  });
  while (ledger.count() < 2000)
    std::this_thread::yield();
  server.kill();
  stop = true;
  writer.join();
  const auto before = files_of(scratch.path("data"));
  const Ended looked = verify(scratch.path("data"));
  EXPECT_EQ(looked.status, 0) << looked.output;
  EXPECT_THAT(looked.output, HasSubstr("problems         0"));
  EXPECT_EQ(files_of(scratch.path("data")), before);
  // A stopped server's directory can be restored from like a backup.
  EXPECT_EQ(restore(scratch.path("data"), scratch.path("copy")).status, 0);
}

TEST(Backup, DamageIsFoundAndNotRestored) {
  ScratchDirectory scratch;
  Server server(with_backups(scratch));
  Client client = server.client();
  for (std::uint64_t i = 0; i < 300; ++i)
    ASSERT_TRUE(client.put(fmt::format("key{}", i), value_of(i)));
  ASSERT_EQ(kvclient(server.address(), {"backup", "b"}).status, 0);
  ASSERT_EQ(server.stop(), 0);
  const std::string backup = scratch.path("backups/b");
  const std::string target = scratch.path("target");
  const auto expect_damaged = [&](const std::string& what) {
    SCOPED_TRACE(what);
    expect_failure(verify(backup), 4, "is damaged");
    expect_failure(restore(backup, target), 4, "nothing was restored");
    EXPECT_FALSE(fs::exists(target));
  };
  const fs::path table = longest_file(backup + "/db", ".sst");
  const std::string sound = read_file(table);
  fs::remove(table);  // not written through the link: the server's own file is the same one
  std::string flipped = sound;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 0x10);
  write_file(table, flipped);
  expect_damaged("a flipped byte");
  write_file(table, sound.substr(0, sound.size() / 2));
  expect_damaged("a short file");
  write_file(table, sound);
  const fs::path manifest = longest_file(backup + "/db", "MANIFEST");
  const std::string list = read_file(manifest);
  fs::remove(manifest);
  expect_damaged("no MANIFEST");
  write_file(manifest, list);
  EXPECT_EQ(verify(backup).status, 0);
  EXPECT_EQ(restore(backup, target).status, 0);
}

TEST(Backup, WrongUsesGetOneSentence) {
  ScratchDirectory scratch;
  Server server(with_backups(scratch));
  Client client = server.client();
  ASSERT_TRUE(client.put("key", "value"));
  expect_failure(verify(scratch.path("data")), 4, std::to_string(server.process().pid()));
  expect_failure(restore(scratch.path("data"), scratch.path("x")), 4, "in use by process");
  EXPECT_EQ(kvclient(server.address(), {"--output", "json", "backup", "b"}).status, 0);
  expect_failure(kvclient(server.address(), {"backup", "b"}), 5, "choose another name");
  for (const char* name : {"../b", "..", "/tmp/b", "a/b", ".b", ""})
    expect_failure(kvclient(server.address(), {"backup", name}), 2, "name");
  expect_failure(kvclient(server.address(), {"backup"}), 2, "NAME");
  EXPECT_EQ(client.backup("a\nb").error().code, Code::kInvalidArgument);

  const std::string backup = scratch.path("backups/b");
  expect_failure(verify(scratch.path("absent")), 4, "absent");
  expect_failure(verify(scratch.path("backups")), 4, "db is missing");
  EXPECT_FALSE(fs::exists(scratch.path("absent")));
  expect_failure(restore(scratch.path("absent"), scratch.path("x")), 4, "absent");
  expect_failure(restore(backup, scratch.path("data")), 4, "not an empty directory");
  expect_failure(restore(backup, "/proc/nowhere"), 4, "/proc/nowhere");
  expect_failure(kvserver({"--verify"}), 2, "--data-dir");
  expect_failure(kvserver({"--restore", backup}), 2, "--data-dir");
  expect_failure(kvserver({"--backup-dir", backup}), 2, "data-dir");
  EXPECT_FALSE(fs::exists(scratch.path("x")));
  expect_failure(verify(scratch.path("absent")), 4, "give --data-dir the directory of a backup");
  expect_failure(restore(scratch.path("absent"), scratch.path("x")), 4, "give --restore");
  const auto before = files_of(backup);
  for (const char* name : {"/new", "/db/new", "", "/.."})
    expect_failure(restore(backup, backup + name), 4, "directory");
  EXPECT_EQ(files_of(backup), before) << "a backup is left as it is";

  // Where a name that a client chooses could be one that the server needs.
  const std::string data = scratch.path("other");
  fs::create_directory(scratch.path("other"));
  fs::create_symlink(data, scratch.path("link"));
  for (const std::string& inside : {data, data + "/", data + "/db", data + "/backups/all",
                                    scratch.path("link/x"), scratch.path("no/../other")}) {
    SCOPED_TRACE(inside);
    const Ended ended = kvserver({"--no-auth", "--data-dir", data, "--backup-dir", inside});
    expect_failure(ended, 4, "give --backup-dir a directory outside of it");
  }

  // The rest of an interrupted restore is not data to start on.
  fs::create_directories(scratch.path("half/restoring/db"));
  expect_failure(kvserver({"--no-auth", "--data-dir", scratch.path("half")}), 4,
                 "interrupted restore");
  expect_failure(verify(scratch.path("half")), 4, "interrupted restore");
  expect_failure(restore(backup, scratch.path("half")), 4, "not an empty directory");
}

Ended shell(const std::string& command) {
  return run_program({"/bin/sh", "-c", command});
}

// Offline runs whose output or files find no room end with a sentence, and leave nothing.
TEST(Backup, VerifyAndRestoreSayWhenTheyCannotWrite) {
  ScratchDirectory scratch;
  {
    Server server(with_backups(scratch));
    Client client = server.client();
    Random random(1);
    std::string value(500'000, '\0');  // that does not compress
    for (char& byte : value)
      byte = static_cast<char>(random());
    ASSERT_TRUE(client.put("key", value));
    ASSERT_TRUE(client.backup("b"));
  }
  const std::string backup = scratch.path("backups/b");
  const std::string target = scratch.path("target");
  const std::string restoring = fmt::format("{} --restore {}", RKV_KVSERVER, backup);
  const Ended limited =
      shell(fmt::format("ulimit -f 128; exec {} --data-dir {}", restoring, target));
  expect_failure(limited, 4, "File too large");
  EXPECT_FALSE(fs::exists(target));
  expect_failure(shell(fmt::format("exec {} --data-dir {} > /dev/full", restoring, target)), 5,
                 "standard output");
  EXPECT_EQ(verify(target).status, 0) << "done all the same";
  expect_failure(
      shell(fmt::format("exec {} --verify --data-dir {} > /dev/full", RKV_KVSERVER, target)), 5,
      "standard output");
}

TEST(Backup, IsRefusedWhereTheServerHasNoDirectoryForIt) {
  ScratchDirectory scratch;
  for (const bool persistent : {false, true}) {
    std::vector<std::string> arguments = {"--memory", "16MiB"};
    if (persistent) arguments.insert(arguments.end(), {"--data-dir", scratch.path("data")});
    Server server(arguments);
    Client client = server.client();
    EXPECT_EQ(client.backup("b").error().code, Code::kUnsupported);
    EXPECT_THAT(client.last_refusal(), HasSubstr("--backup-dir"));
    expect_failure(kvclient(server.address(), {"backup", "b"}), 4, "--backup-dir");
  }
}

// While the server takes its time, from a shell that is connected to it.
TEST(Backup, TellsHowLongItTakesWhereItIsAskedFor) {
  const ScratchDirectory scratch;
  Server server(with_backups(scratch));
  const Ended quick = kvclient(server.address(), {"backup", "quick"});
  EXPECT_EQ(quick.status, 0);
  EXPECT_TRUE(quick.output.starts_with("made the backup quick, ")) << quick.output;
  EXPECT_EQ(std::ranges::count(quick.output, '\n'), 1) << "nobody has asked how far it is";
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Process shell({"/bin/sh", "-c", "exec \"$0\" --server \"$1\" <\"$2\"", RKV_KVCLIENT,
                 server.address(), pipe});
  std::ofstream commands(pipe);
  commands << "put key value\nget key\n" << std::flush;
  ASSERT_TRUE(shell.wait_for_output("value")) << shell.output();
  server.process().signal(SIGSTOP);
  commands << "backup --progress slow\n" << std::flush;
  const bool waits = shell.wait_for_output("making the backup, 2 s\n");
  server.process().signal(SIGCONT);
  commands << "backup next\n" << std::flush;
  commands.close();
  const Ended ended = shell.wait();
  EXPECT_TRUE(waits) << ended.output;
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_TRUE(fs::exists(scratch.path("backups/slow")));
  EXPECT_TRUE(fs::exists(scratch.path("backups/next")));
}

// Restored into a directory that is there and empty, such as a mount point.
TEST(Backup, RestoresIntoAnEmptyDirectory) {
  ScratchDirectory scratch;
  {
    Server server(with_backups(scratch));
    Client client = server.client();
    ASSERT_TRUE(client.put("key", "value"));
    ASSERT_TRUE(client.put_with("passing", "x", {.ttl = std::chrono::hours(1)}));
    ASSERT_TRUE(client.put("large", std::string(300'000, 'l')));
    ASSERT_TRUE(client.backup("b"));
  }
  fs::create_directory(scratch.path("empty"));
  EXPECT_EQ(restore(scratch.path("backups/b"), scratch.path("empty")).status, 0);
  Server server({"--memory", "32MiB", "--data-dir", scratch.path("empty")});
  Client client = server.client();
  EXPECT_EQ(client.get("key")->value, "value");
  EXPECT_NE(client.get("passing")->expires_at_ms, 0U);
  EXPECT_EQ(client.get("large")->value, std::string(300'000, 'l'));
}

}  // namespace
}  // namespace rkv::testing_support
