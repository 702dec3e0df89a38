// A server whose disk, or that of its backups, is full, read-only or another one: what clients
// learn, what goes on, and that nothing accepted is missing afterwards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "common/random.h"
#include "tests/support/files.h"
#include "tests/system/small_disk.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::longest_file;
using ::testing::Not;
using testing::read_file;
using testing::write_file;

void await_disk(Client& client, const std::string& state) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (;;) {
    const auto stats = client.server_stats();
    ASSERT_TRUE(stats) << to_string(stats.error());
    if (nlohmann::json::parse(*stats).at("disk_state") == state) return;
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << *stats;
    std::this_thread::yield();
  }
}

std::string disk_state(Client& client) {
  const auto stats = client.server_stats();
  if (!stats) return to_string(stats.error());
  return nlohmann::json::parse(*stats).at("disk_state");
}

int count_of(const std::string& part, const std::string& text) {
  int count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

// So that a table takes the room that its values take.
std::string incompressible(std::uint64_t seed, std::size_t length) {
  Random random(seed);
  std::string bytes(length, '\0');
  for (char& byte : bytes)
    byte = static_cast<char>(random());
  return bytes;
}

// PUTs of all levels, and what they have made.
class Load {
 public:
  void run(Client& client, int keys, std::size_t length) {
    const Durability levels[] = {Durability::kMemory, Durability::kWal, Durability::kSync};
    for (int i = 0; i < keys; ++i) {
      const std::string key = fmt::format("key{}", i % 200);
      const std::string value = incompressible(++number_, length);
      const auto put = client.put_with(key, value, {.durability = levels[i % 3]});
      if (put) {
        known_[key] = value;
        continue;
      }
      ASSERT_EQ(put.error().code, Code::kIo) << to_string(put.error());
      EXPECT_THAT(client.last_refusal(),
                  AnyOf(HasSubstr("the server's disk"), HasSubstr("no free file descriptor")));
      ++refused_;
      // It is in memory, seen by everybody, and will be saved.
      if (put.error().write == WriteOutcome::kMayHaveHappened) known_[key] = value;
    }
  }
  void expect_all(Client& client) const {
    for (const auto& [key, value] : known_) {
      const auto got = client.get(key);
      ASSERT_TRUE(got) << key << ": " << to_string(got.error());
      ASSERT_EQ(got->value, value) << key;
    }
  }
  // A value that is not whole is reported so.
  int damaged(Client& client) const {
    int damaged = 0;
    for (const auto& [key, value] : known_) {
      const auto got = client.get(key);
      damaged += got ? 0 : 1;
      if (got) {
        EXPECT_EQ(got->value, value) << key;
      } else {
        EXPECT_EQ(got.error().code, Code::kCorrupt) << key << ": " << to_string(got.error());
      }
    }
    return damaged;
  }
  int refused() const { return refused_; }

 private:
  std::map<std::string, std::string> known_;
  std::uint64_t number_ = 0;
  int refused_ = 0;
};

TEST(Disk, FullRefusesWritesServesReadsAndGoesOn) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 24);
  Server server({"--memory", "64MiB", "--data-dir", disk.file("data"), "--backup-dir",
                 scratch.path("backups")});
  Client client = server.client();
  Load load;
  load.run(client, 300, 2000);
  EXPECT_EQ(load.refused(), 0);
  for (int round = 0; round < 2; ++round) {
    disk.fill();
    // It may find a little room once more, in files that the database has done with.
    while (load.refused() < 10 * (round + 1) || disk_state(client) != "full")
      ASSERT_NO_FATAL_FAILURE(load.run(client, 20, 20'000));
    EXPECT_EQ(client.put("refused", "x").error().code, Code::kIo);
    EXPECT_THAT(client.last_refusal(), HasSubstr("the server's disk is full"));
    EXPECT_EQ(client.put("refused", "x").error().write, WriteOutcome::kNotApplied);
    EXPECT_EQ(client.get("refused").error().code, Code::kNotFound);
    EXPECT_EQ(client.flush().error().code, Code::kIo);
    EXPECT_THAT(client.last_refusal(),
                HasSubstr("disk is full: the latest writes are in memory only"));
    EXPECT_EQ(client.scan().error().code, Code::kIo);
    EXPECT_THAT(client.last_refusal(), HasSubstr("disk is full: scans miss"));
    EXPECT_EQ(client.backup("b").error().code, Code::kIo);
    EXPECT_THAT(client.last_refusal(), HasSubstr("disk is full: backups are refused"));
    load.expect_all(client);
    disk.free_space();
    ASSERT_NO_FATAL_FAILURE(await_disk(client, "ok"));
    load.run(client, 30, 2000);
    ASSERT_TRUE(client.flush());
    load.expect_all(client);
  }
  EXPECT_EQ(server_stat(client, "disk_failures"), 2U);
  const std::string log = server.process().output();
  EXPECT_EQ(count_of("writes are refused", log), 2) << log;
  EXPECT_EQ(count_of("is ok again", log), 2) << log;
  EXPECT_LE(count_of(" error: database", log), 8) << log;
  server.kill();  // all of it is synced
  server.start();
  Client again = server.client();
  load.expect_all(again);
}

// Most of the data is on disk alone: a disk that takes no writes is read from as before, and also
// by a server that has not loaded it yet.
TEST(Disk, FullServesReadsOfWhatIsNotInMemory) {
  for (const bool loading : {false, true}) {
    SCOPED_TRACE(loading ? "while loading" : "larger than memory");
    ScratchDirectory scratch;
    const SmallDisk disk(scratch.path("disk"), 192);
    std::vector<std::string> arguments = {"--data-dir", disk.file("data"), "--memory",
                                          loading ? "64MiB" : "16MiB"};
    if (loading) arguments.insert(arguments.end(), {"--load-rate", "1MiB"});
    Server server(arguments);
    Load load;
    {
      Client client = server.client();
      load.run(client, 200, 200'000);
      ASSERT_EQ(load.refused(), 0);
      ASSERT_TRUE(client.flush());
    }
    if (loading) {
      ASSERT_EQ(server.stop(), 0);
      server.start();
    }
    Client client = server.client();
    disk.fill();
    while (load.refused() < 10 || disk_state(client) != "full")
      ASSERT_NO_FATAL_FAILURE(load.run(client, 20, 100'000));
    for (int round = 0; round < 3; ++round)  // with tries to recover in between
      ASSERT_NO_FATAL_FAILURE(load.expect_all(client)) << round;
    disk.free_space();
    ASSERT_NO_FATAL_FAILURE(await_disk(client, "ok"));
    ASSERT_NO_FATAL_FAILURE(load.expect_all(client));
  }
}

// Nobody would find the data that a server writes after that.
TEST(Disk, ADataDirectoryThatIsRemovedTakesNoDurableWrite) {
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  ASSERT_TRUE(client.put_with("before", "x", {.durability = Durability::kSync}));
  fs::rename(scratch.path("data"), scratch.path("elsewhere"));
  const auto put = client.put_with("after", "x", {.durability = Durability::kSync});
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kIo);
  EXPECT_THAT(client.last_refusal(), AnyOf(HasSubstr("is missing"), HasSubstr("was missing")));
  ASSERT_NO_FATAL_FAILURE(await_disk(client, "missing"));
  EXPECT_FALSE(client.flush());
  EXPECT_EQ(client.get("before")->value, "x");
  fs::rename(scratch.path("elsewhere"), scratch.path("data"));
  ASSERT_NO_FATAL_FAILURE(await_disk(client, "ok"));
  ASSERT_TRUE(client.put_with("again", "x", {.durability = Durability::kSync}));
  server.kill();
  server.start();
  Client reader = server.client();
  for (const char* key : {"before", "after", "again"})
    EXPECT_EQ(reader.get(key)->value, "x") << key;
}

// Out of descriptors, which is not a fault of the disk and passes.
TEST(Disk, WithoutADescriptorItSaysSoAndGoesOnWhenThereIsOne) {
  ScratchDirectory scratch;
  Server server({"--memory", "128MiB", "--data-dir", scratch.path("data")});
  Client client = server.client();
  ASSERT_TRUE(client.put_with("before", "x", {.durability = Durability::kSync}));
  rlimit before{};
  ASSERT_EQ(prlimit(server.process().pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{.rlim_cur = 4, .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(server.process().pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  Load load;
  while (disk_state(client) != "no-files")  // a new log is due after 32 MiB
    ASSERT_NO_FATAL_FAILURE(load.run(client, 50, 100'000));
  EXPECT_FALSE(client.put("refused", "x"));
  EXPECT_THAT(client.last_refusal(), HasSubstr("no free file descriptor"));
  ASSERT_NO_FATAL_FAILURE(load.expect_all(client));
  ASSERT_EQ(prlimit(server.process().pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  ASSERT_NO_FATAL_FAILURE(await_disk(client, "ok"));
  ASSERT_TRUE(client.flush());
  server.kill();
  server.start();
  Client reader = server.client();
  ASSERT_NO_FATAL_FAILURE(load.expect_all(reader));
}

// Whatever the umask of who starts it: values, seed and mark are the owner's alone.
TEST(Disk, NobodyElseMayReadAFile) {
  ScratchDirectory scratch;
  const mode_t before = umask(0);
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("new/data"), "--backup-dir",
                 scratch.path("backups")});
  umask(before);
  Client client = server.client();
  ASSERT_TRUE(client.put_with("key", "value", {.durability = Durability::kSync}));
  ASSERT_TRUE(client.backup("b")) << client.last_refusal();
  int looked_at = 0;
  const auto expect_private = [&](const fs::path& path) {
    ++looked_at;
    const auto others = fs::perms::group_all | fs::perms::others_all;
    EXPECT_EQ(fs::status(path).permissions() & others, fs::perms::none) << path;
  };
  for (const std::string& top : {scratch.path("new"), scratch.path("backups")}) {
    expect_private(top);
    for (const auto& entry : fs::recursive_directory_iterator(top))
      expect_private(entry.path());
  }
  EXPECT_GT(looked_at, 12);
  EXPECT_EQ(server.stop(), 0);
  const Ended restored = run_program({RKV_KVSERVER, "--restore", scratch.path("backups/b"),
                                      "--data-dir", scratch.path("restored")});
  ASSERT_EQ(restored.status, 0) << restored.output;
  for (const auto& entry : fs::recursive_directory_iterator(scratch.path("restored")))
    expect_private(entry.path());
}

// A copy may have been made by a tool that gives everybody the right to read.
TEST(Disk, ADirectoryThatOthersMayEnterIsNamedAtTheStart) {
  ScratchDirectory scratch;
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
  const std::string remedy = "chmod -R go= " + scratch.path("data");
  EXPECT_THAT(server.process().output(), Not(HasSubstr(remedy)));
  ASSERT_EQ(server.stop(), 0);
  for (const char* const name : {"data", "data/db"}) {
    fs::permissions(scratch.path(name), fs::perms::group_read | fs::perms::group_exec,
                    fs::perm_options::add);
  }
  server.start();
  EXPECT_THAT(server.process().output(), HasSubstr(remedy));
}

// Ended while the disk is full: the exit status says that something is lost, and a start on the
// full disk what to do.
TEST(Disk, AStopAndAStartOnAFullDiskSaySo) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 8);
  const std::string data = disk.file("data");
  Server server({"--memory", "64MiB", "--data-dir", data});
  Load load;
  {
    Client client = server.client();
    load.run(client, 100, 2000);
    ASSERT_TRUE(client.flush());
  }
  ASSERT_EQ(server.stop(), 0);
  disk.fill();
  const Ended ended =
      run_program({RKV_KVSERVER, "--no-auth", "--listen", server.address(), "--data-dir", data});
  EXPECT_EQ(ended.status, 6) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("free space"));
  disk.free_space();
  server.start();
  Client client = server.client();
  load.expect_all(client);
}

// It waits for its supposed predecessor, which is this process, and does not wait when it
// is to end.
TEST(Disk, ASignalDuringTheStartEndsIt) {
  ScratchDirectory scratch;
  const std::string data = scratch.path("data");
  fs::create_directory(data);
  const std::string stat = read_file("/proc/self/stat");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string started;
  for (int field = 3; field <= 22; ++field)
    fields >> started;
  write_file(data + "/LOCK", fmt::format("{} {} {}", getpid(), started,
                                         read_file("/proc/sys/kernel/random/boot_id")));
  for (const int signal : {SIGTERM, SIGINT}) {
    Process server({RKV_KVSERVER, "--no-auth", "--listen", "127.0.0.1:0", "--data-dir", data});
    ASSERT_TRUE(server.wait_for_output("waiting for the previous server"));
    server.signal(signal);
    const Ended ended = server.wait(20);  // of the 30 s that it would wait
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("stopped before the start was complete"));
  }
}

TEST(Disk, AReadOnlyDirectoryIsVerifiedAndNotStartedOn) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 8);
  const std::string data = disk.file("data");
  {
    Server server({"--memory", "64MiB", "--data-dir", data});
    ASSERT_TRUE(server.client().put("key", "value"));
    ASSERT_EQ(server.stop(), 0);
  }
  disk.set_read_only();
  const Ended started =
      run_program({RKV_KVSERVER, "--no-auth", "--listen", "127.0.0.1:0", "--data-dir", data});
  EXPECT_EQ(started.status, 4) << started.output;
  EXPECT_THAT(started.output, HasSubstr("mount"));
  const Ended verified = run_program({RKV_KVSERVER, "--verify", "--data-dir", data});
  EXPECT_EQ(verified.status, 0) << verified.output;
  EXPECT_THAT(verified.output, HasSubstr("records          1\n"));
}

// The damaged file is named, nothing is lost by trying, and with the byte restored all is there.
TEST(Disk, DamageIsToldAtTheStartAndByVerify) {
  ScratchDirectory scratch;
  const std::string data = scratch.path("data");
  Server server({"--memory", "64MiB", "--data-dir", data});
  Load load;
  for (int life = 0; life < 2; ++life) {  // what is in the log goes to tables at the next start
    Client client = server.client();
    load.run(client, 150, 3000);
    ASSERT_TRUE(client.flush());
    load.run(client, 150, 3000);
    ASSERT_TRUE(client.flush());
    server.kill();
    if (life == 0) server.start();
  }
  const auto run = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {RKV_KVSERVER, "--no-auth", "--data-dir", data});
    return run_program(std::move(flags));
  };
  for (const char* part : {".log", "MANIFEST", ".sst", "CURRENT"}) {
    SCOPED_TRACE(part);
    const ScratchDirectory copy;
    fs::copy(data, copy.path("data"), fs::copy_options::recursive);
    const fs::path file = longest_file(data + "/db", part);
    std::string bytes = read_file(file);
    const std::size_t at = bytes.size() / 3;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    write_file(file, bytes);
    const Ended verified = run({"--verify"});
    EXPECT_EQ(verified.status, 4) << verified.output;
    EXPECT_THAT(verified.output, HasSubstr("problem: "));
    if (std::string_view(part) == ".sst") {
      // Met when the records are loaded, by when the server serves already: what it can.
      Server damaged({"--memory", "64MiB", "--data-dir", data});
      Client client = damaged.client();
      EXPECT_LT(load.damaged(client), 100) << "of 200, a block holds a few";
      while (damaged.process().output().find("restore a backup") == std::string::npos) {
      }
      EXPECT_GT(server_stat(client, "damaged_reads"), 0U);
      ASSERT_NO_FATAL_FAILURE(await_disk(client, "ok"));
      EXPECT_TRUE(client.put("new", "value")) << "which needs no old table";
    } else {
      const Ended started = run({"--listen", "127.0.0.1:0"});
      EXPECT_EQ(started.status, 4) << started.output;
      EXPECT_THAT(started.output, HasSubstr("restore a backup"));
    }
    fs::remove_all(data);
    fs::copy(copy.path("data"), data, fs::copy_options::recursive);
  }
  // The way out of a damaged log.
  const fs::path log = longest_file(data + "/db", ".log");
  std::string bytes = read_file(log);
  bytes[bytes.size() / 3] = static_cast<char>(bytes[bytes.size() / 3] ^ 0x40);
  write_file(log, bytes);
  Server accepting({"--memory", "64MiB", "--data-dir", data, "--accept-damaged-log"});
  EXPECT_THAT(accepting.process().output(), HasSubstr("without the writes after the damage"));
  Client client = accepting.client();
  while (server_stat(client, "loading") != 0) {  // it serves already
  }
  EXPECT_GT(server_stat(client, "records"), 0U) << "what was before it";
}

// A backup that finds no room is not there, and costs the server nothing else.
TEST(Disk, ABackupThatFindsNoRoomIsNotThere) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 2);
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data"), "--backup-dir",
                 disk.file("backups")});
  Client client = server.client();
  Load load;
  load.run(client, 200, 40'000);
  EXPECT_EQ(client.backup("b").error().code, Code::kIo);
  EXPECT_THAT(client.last_refusal(), HasSubstr("no space for the backup"));
  EXPECT_FALSE(fs::exists(disk.file("backups/b")));
  EXPECT_TRUE(fs::is_empty(disk.file("backups"))) << "what was made takes no room";
  load.run(client, 30, 2000);
  EXPECT_EQ(load.refused(), 0);
  load.expect_all(client);
}

// On the disk of the data, when that is full: no backup, and afterwards both go on.
TEST(Disk, ABackupOnTheFullDiskOfTheDataIsRefused) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 24);
  Server server(
      {"--memory", "64MiB", "--data-dir", disk.file("data"), "--backup-dir", disk.file("backups")});
  Client client = server.client();
  Load load;
  load.run(client, 100, 5000);
  ASSERT_TRUE(client.flush());
  disk.fill();
  EXPECT_EQ(client.backup("b").error().code, Code::kIo);
  EXPECT_FALSE(fs::exists(disk.file("backups/b")));
  load.run(client, 20, 2000);
  load.expect_all(client);
  disk.free_space();
  ASSERT_NO_FATAL_FAILURE(await_disk(client, "ok"));
  load.run(client, 20, 2000);
  ASSERT_TRUE(client.flush());
  EXPECT_TRUE(client.backup("b")) << client.last_refusal();
  EXPECT_EQ(run_program({RKV_KVSERVER, "--verify", "--data-dir", disk.file("backups/b")}).status,
            0);
  load.expect_all(client);
}

// No hard links to another file system: the backup is a copy, and as whole.
TEST(Disk, ABackupOnAnotherFileSystemIsACopy) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 32);
  const std::string backup = disk.file("backups/b");
  Server server({"--memory", "64MiB", "--data-dir", scratch.path("data"), "--backup-dir",
                 disk.file("backups")});
  Load load;
  {
    Client client = server.client();
    load.run(client, 300, 5000);
    ASSERT_TRUE(client.backup("b")) << client.last_refusal();
  }
  server.kill();
  fs::remove_all(scratch.path("data"));
  EXPECT_EQ(run_program({RKV_KVSERVER, "--verify", "--data-dir", backup}).status, 0);
  const Ended ended =
      run_program({RKV_KVSERVER, "--restore", backup, "--data-dir", scratch.path("data")});
  ASSERT_EQ(ended.status, 0) << ended.output;
  server.start();
  Client client = server.client();
  load.expect_all(client);
}

TEST(Disk, ARestoreThatFindsNoRoomLeavesNothing) {
  ScratchDirectory scratch;
  const SmallDisk disk(scratch.path("disk"), 2);
  {
    Server server({"--memory", "64MiB", "--data-dir", scratch.path("data")});
    Client client = server.client();
    Load().run(client, 200, 40'000);
    ASSERT_EQ(server.stop(), 0);
  }
  const Ended ended = run_program(
      {RKV_KVSERVER, "--restore", scratch.path("data"), "--data-dir", disk.file("restored")});
  EXPECT_EQ(ended.status, 4) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("No space left"));
  EXPECT_FALSE(fs::exists(disk.file("restored")));
}

}  // namespace
}  // namespace rkv::testing_support
