// Mistakes of a user: each gets an exit code, and one clear sentence on stderr.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/system/device_atomics.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

std::string server_address(int port) {
  return fmt::format("{}:{}", test_address(), port);
}

// Ended with this status, and what it printed names what is wrong.
void expect_failure(const Ended& ended, int status, const std::string& names) {
  EXPECT_EQ(ended.status, status) << ended.output;
  EXPECT_NE(ended.output.find(names), std::string::npos) << ended.output;
}

// The lines a program printed without the log's ordinary ones.
std::size_t complaints(const std::string& output) {
  std::size_t lines = 0;
  std::size_t at = 0;
  while (at < output.size()) {
    const std::size_t end = std::min(output.find('\n', at), output.size());
    const std::string line = output.substr(at, end - at);
    const bool ordinary = line.find(" info: ") != std::string::npos ||
                          line.find(" warning: no --data-dir") != std::string::npos ||
                          line.find("as --no-auth says") != std::string::npos;
    if (!line.empty() && !ordinary) ++lines;
    at = end + 1;
  }
  return lines;
}

struct Wrong {
  std::vector<std::string> arguments;
  int status;
  std::string names;  // a word of the sentence
};

TEST(BadInput, KvserverSaysWhatIsWrongInOneSentence) {
  ScratchDirectory scratch;
  std::ofstream(scratch.path("file")) << "not a directory";
  std::filesystem::create_symlink("nothing", scratch.path("dangling"));
  const std::string here = server_address(21001);
  const std::vector<Wrong> table = {
      {{"--no-such-flag"}, 2, "no-such-flag"},
      {{"--listen", "nowhere"}, 2, "nowhere"},
      {{"--listen", "127.0.0.1:99999"}, 2, "99999"},
      {{"--memory", "lots"}, 2, "lots"},
      {{"--memory", "1MiB", "--listen", here}, 2, "memory"},
      {{"--poll", "sometimes"}, 2, "sometimes"},
      {{"--transport", "pigeon"}, 2, "pigeon"},
      {{"--config", scratch.path("absent.toml")}, 2, "absent.toml"},
      {{"--config", "/"}, 2, "Is a directory"},
      {{"--data-dir", ""}, 2, "must not be empty"},
      {{"--listen", here, "--data-dir", scratch.path("dangling")}, 4, "a dangling symbolic link"},
      {{"--listen", here, "--data-dir", scratch.path("new"), "--require-data", "yes"},
       4,
       "holds no data"},
      {{"--listen", "203.0.113.77:7471"}, 3, "203.0.113.77"},
      {{"--listen", here, "--data-dir", scratch.path("file")}, 4, "file"},
      {{"--listen", here, "--data-dir", "/proc/nowhere"}, 4, "/proc/nowhere"}};
  for (const Wrong& wrong : table) {
    std::vector<std::string> argv = {RKV_KVSERVER, "--no-auth"};
    argv.insert(argv.end(), wrong.arguments.begin(), wrong.arguments.end());
    SCOPED_TRACE(fmt::format("kvserver {}", fmt::join(wrong.arguments, " ")));
    const Ended ended = run_program(argv, 120);
    expect_failure(ended, wrong.status, wrong.names);
    EXPECT_EQ(complaints(ended.output), 1U) << ended.output;
  }
}

TEST(BadInput, KvclientSaysWhatIsWrongInOneSentence) {
  Server server;
  const std::vector<Wrong> table = {{{"get", "--no-such-flag", "k"}, 2, "no-such-flag"},
                                    {{"frobnicate"}, 2, "frobnicate"},
                                    {{"get"}, 2, "KEY"},
                                    {{"get", ""}, 2, "empty"},
                                    {{"put", std::string(1025, 'k'), "v"}, 2, "1024"},
                                    {{"get", "absent"}, 1, "not found"},
                                    {{"del", "absent"}, 1, "not found"},
                                    {{"load", "/no/such/file"}, 4, "/no/such/file"},
                                    {{"--output", "xml", "ping"}, 2, "xml"},
                                    {{"--timeout", "soon", "ping"}, 2, "soon"}};
  for (const Wrong& wrong : table) {
    SCOPED_TRACE(wrong.arguments.front() + " ... " + wrong.names);
    const Ended ended = kvclient(server.address(), wrong.arguments);
    expect_failure(ended, wrong.status, wrong.names);
    EXPECT_EQ(complaints(ended.output), 1U) << ended.output;
  }
  expect_failure(kvclient("nowhere", {"ping"}), 2, "nowhere");
  expect_failure(kvclient(server_address(1), {"--timeout", "3s", "ping"}), 3, "");
  // Nothing of all that disturbed the server.
  Client client = server.client();
  EXPECT_TRUE(client.put("still", "there"));
}

// Memory for the cells, 64 MiB, but not for what is kept beside them.
TEST(BadInput, MoreCountersThanMemoryAreRefusedInOneSentence) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs more address space than the limit";
#endif
  const std::vector<std::string> command = {
      "/bin/sh", "-c",
      fmt::format(
          "ulimit -v 400000; exec {} --no-auth --memory 16MiB --listen {} --counter-cells 8388608",
          RKV_KVSERVER, server_address(21003))};
  if (!device_has_atomics()) {  // no cells are made
    Process server(command);
    EXPECT_TRUE(server.wait_for_output("kvserver ready")) << server.output();
    EXPECT_NE(server.output().find("no one-sided counters"), std::string::npos) << server.output();
    server.signal(SIGTERM);
    EXPECT_EQ(server.wait().status, 0) << server.output();
    return;
  }
  const Ended ended = run_program(command);
  expect_failure(ended, 3, "--counter-cells");
  EXPECT_EQ(complaints(ended.output), 1U) << ended.output;
}

// Where a library cannot start a thread it ends the program; so do we, with a sentence, before it.
TEST(BadInput, LimitsTooLowForAServerAreNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizers need more address space than the limits";
#endif
  const auto start = [](const char* limit, int kib) {
    ScratchDirectory scratch;
    const std::string command =
        fmt::format("ulimit {} {}; exec {} --no-auth --memory 16MiB --listen {} --data-dir {}",
                    limit, kib, RKV_KVSERVER, server_address(21005), scratch.path("data"));
    Process server({"/bin/sh", "-c", command});
    if (server.wait_for_output("kvserver ready")) {
      server.signal(SIGTERM);
      EXPECT_EQ(server.wait().status, 0) << limit << " " << kib;
      return true;
    }
    const Ended ended = server.wait();
    SCOPED_TRACE(fmt::format("ulimit {} {}", limit, kib));
    expect_failure(ended, 3, "");
    EXPECT_EQ(complaints(ended.output), 1U) << ended.output;
    return false;
  };
  EXPECT_FALSE(start("-s", 64));
  EXPECT_TRUE(start("-s", 512));
  EXPECT_FALSE(start("-v", 100'000));
  for (int kib = 150'000; kib < 700'000; kib += 50'000)
    start("-v", kib);
  EXPECT_TRUE(start("-v", 2'000'000));
}

TEST(BadInput, AMisspeltVariableIsNamedInTheLog) {
  Process server(
      {RKV_KVSERVER, "--no-auth", "--memory", "16MiB", "--listen", server_address(21006)},
      {"KVSERVER_DATADIR=/nowhere"});
  EXPECT_TRUE(server.wait_for_output("KVSERVER_DATADIR is not an option's variable"));
  EXPECT_TRUE(server.wait_for_output("kvserver ready"));
}

TEST(BadInput, DataThatIsRequiredIsFoundAgain) {
  ScratchDirectory scratch;
  Server first({"--memory", "16MiB", "--data-dir", scratch.path("data")});
  EXPECT_EQ(first.stop(), 0);
  Server again({"--memory", "16MiB", "--data-dir", scratch.path("data"), "--require-data", "yes"});
  EXPECT_EQ(again.stop(), 0);
}

TEST(BadInput, AValueOverTheLimitIsRefused) {
  ScratchDirectory scratch;
  Server server;
  std::ofstream(scratch.path("big.tsv")) << "key\t" << std::string((16 << 20) + 1, 'v') << "\n";
  expect_failure(kvclient(server.address(), {"load", scratch.path("big.tsv")}), 4, "16 MiB");
  Client client = server.client();
  EXPECT_EQ(client.put("key", std::string((16 << 20) + 1, 'v')).error().code, Code::kTooLarge);
  EXPECT_EQ(client.put("", "v").error().code, Code::kInvalidArgument);
  EXPECT_TRUE(client.put("key", std::string(128 << 10, 'v')));
  EXPECT_EQ(client.get("key")->value.size(), std::size_t{128} << 10);
}

TEST(BadInput, APortTakenAndADirectoryLockedNameTheOther) {
  ScratchDirectory scratch;
  Server server({"--memory", "16MiB", "--data-dir", scratch.path("data")});
  const Ended port =
      run_program({RKV_KVSERVER, "--no-auth", "--listen", server.address(), "--memory", "16MiB"});
  expect_failure(port, 3, server.address().substr(server.address().find(':')));
  const Ended directory = run_program({RKV_KVSERVER, "--no-auth", "--listen", server_address(21002),
                                       "--memory", "16MiB", "--data-dir", scratch.path("data")});
  expect_failure(directory, 6, std::to_string(server.process().pid()));
  Client client = server.client();
  EXPECT_TRUE(client.put("still", "there"));
}

TEST(BadVerbsInput, AMissingDeviceIsNamed) {
  const Ended ended = run_program(
      {RKV_KVSERVER, "--no-auth", "--listen", server_address(21004), "-d", "mlx9_9"}, 120);
  expect_failure(ended, 3, "mlx9_9");
  EXPECT_EQ(complaints(ended.output), 1U) << ended.output;
}

TEST(BadInput, AServerWithoutAPlaceIsWaitedForUntilTheTimeout) {
  Server server({"--memory", "16MiB", "--max-clients", "1"});
  std::optional<Client> only(server.client());
  expect_failure(kvclient(server.address(), {"--timeout", "300ms", "ping"}), 3, "--max-clients");
  Process patient({RKV_KVCLIENT, "--server", server.address(), "--timeout", "60s", "ping"});
  ASSERT_TRUE(server.process().wait_for_output("is refused"));
  only.reset();
  EXPECT_EQ(patient.wait().status, 0);
}

// Root may lock any amount of memory, so the capability is given up first (setpriv, util-linux).
TEST(BadVerbsInput, TooLittleLockableMemorySaysHowToRaiseIt) {
  const Ended ended =
      run_program({"/usr/bin/prlimit", "--memlock=1048576", "/usr/bin/setpriv",
                   "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", RKV_KVSERVER, "--no-auth",
                   "--listen", server_address(21003), "--memory", "64MiB"});
  expect_failure(ended, 3, "memlock");
}

}  // namespace
}  // namespace rkv::testing_support
