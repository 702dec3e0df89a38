// Verbs of kvclient against a server: exists, ttl, stats --watch, bench.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/check.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Json = nlohmann::json;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  return lines;
}

TEST(KvClient, ExistsCountsKeysAndItsStatusTellsWhetherAllExist) {
  Server server;
  Client client = server.client();
  ASSERT_TRUE(client.put("a", "1"));
  ASSERT_TRUE(client.put("b", std::string(100'000, 'b')));
  const Ended both = kvclient(server.address(), {"exists", "a", "b"});
  EXPECT_EQ(both.output, "2\n");
  EXPECT_EQ(both.status, 0);
  const Ended one = kvclient(server.address(), {"exists", "a", "absent", "a"});
  EXPECT_EQ(one.output, "2\n") << "a key that is named twice counts twice";
  EXPECT_EQ(one.status, 1);
  const Ended json = kvclient(server.address(), {"--output", "json", "exists", "a", "absent"});
  EXPECT_EQ(json.status, 1);
  EXPECT_EQ(Json::parse(json.output),
            Json::parse(R"([{"key":"a","found":true},{"key":"absent","found":false}])"));
}

TEST(KvClient, TtlIsWhatIsLeftAndAsPutTakesIt) {
  Server server;
  ASSERT_EQ(kvclient(server.address(), {"put", "--ttl", "1h", "mortal", "v"}).status, 0);
  ASSERT_EQ(kvclient(server.address(), {"put", "immortal", "v"}).status, 0);
  const Ended left = kvclient(server.address(), {"ttl", "mortal"});
  EXPECT_EQ(left.status, 0);
  ASSERT_THAT(left.output, MatchesRegex("[0-9]+ms\n"));
  EXPECT_LE(std::stoul(left.output), 3'600'000U + 200U);  // it lives for up to 200 ms longer
  EXPECT_GT(std::stoul(left.output), 3'000'000U);
  const std::string text = left.output.substr(0, left.output.size() - 1);
  EXPECT_EQ(kvclient(server.address(), {"put", "--ttl", text, "other", "v"}).status, 0);
  EXPECT_EQ(kvclient(server.address(), {"ttl", "immortal"}).output, "none\n");
  EXPECT_EQ(kvclient(server.address(), {"ttl", "absent"}).status, 1);
  const Json json =
      Json::parse(kvclient(server.address(), {"--output", "json", "ttl", "mortal"}).output);
  EXPECT_TRUE(json.at("found").get<bool>());
  EXPECT_GT(json.at("ttl_ms").get<std::uint64_t>(), 3'000'000U);
  EXPECT_GT(json.at("expires_at_ms").get<std::uint64_t>(), 1'700'000'000'000U);
  const Json none =
      Json::parse(kvclient(server.address(), {"--output", "json", "ttl", "immortal"}).output);
  EXPECT_FALSE(none.contains("ttl_ms"));
}

TEST(KvClient, TouchChangesWhatIsLeft) {
  Server server;
  const auto run = [&](std::vector<std::string> arguments) {
    return kvclient(server.address(), std::move(arguments));
  };
  EXPECT_EQ(run({"touch", "key", "1h"}).status, 1) << "there is no such key";
  ASSERT_EQ(run({"put", "key", "value"}).status, 0);
  EXPECT_EQ(run({"touch", "key", "1h"}).status, 0);
  EXPECT_THAT(run({"ttl", "key"}).output, MatchesRegex("[0-9]+ms\n"));
  EXPECT_EQ(run({"touch", "key", "none"}).status, 0);
  EXPECT_EQ(run({"ttl", "key"}).output, "none\n");
  EXPECT_EQ(run({"get", "key"}).output, "value");
  EXPECT_EQ(run({"touch", "--if-version", "999", "key", "1h"}).status, 5);
  const Ended json = run({"--output", "json", "touch", "key", "1h"});
  EXPECT_TRUE(Json::parse(json.output).at("found").get<bool>());
  for (const char* wrong : {"", "0", "soon", "1.5s", "400d"}) {
    const Ended refused = run({"touch", "key", wrong});
    EXPECT_EQ(refused.status, 2) << wrong;
    EXPECT_NE(refused.output.find("a time from 1ms to 366d"), std::string::npos) << refused.output;
  }
  EXPECT_EQ(run({"touch", "key"}).status, 2);
}

TEST(KvClient, StatsAreWatchedLineByLine) {
  Server server;
  Process watch({RKV_KVCLIENT, "--server", server.address(), "--output", "json", "stats",
                 "--watch=100ms", "--count", "20"});
  Client client = server.client();
  // Until lines have come, so that puts fall between two of them.
  for (int i = 0; watch.running() && lines_of(watch.output()).size() < 3; ++i)
    ASSERT_TRUE(client.put("key", std::to_string(i)));
  EXPECT_EQ(watch.wait().status, 0) << watch.output();
  std::vector<std::string> lines = lines_of(watch.output());
  // On standard error, beside them: the server has not answered for 100 ms, on a slow machine.
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("kvclient: "); });
  ASSERT_EQ(lines.size(), 20U) << watch.output();
  double most = 0;
  double processors = 0;
  for (const std::string& line : lines) {
    const Json figures = Json::parse(line);
    most = std::max(most, figures.at("puts_per_s").get<double>());
    processors = std::max(processors, figures.at("processors").get<double>());
  }
  EXPECT_GT(most, 10) << watch.output();
  EXPECT_GT(processors, 0) << watch.output();
  const Json last = Json::parse(lines.back());
  EXPECT_EQ(last.at("records"), 1);
  EXPECT_EQ(last.at("server"), server.address());
}

TEST(KvClient, AWatchGoesOnWithAServerThatStartsAgain) {
  Server server;
  Process watch(
      {RKV_KVCLIENT, "--server", server.address(), "--timeout", "1s", "stats", "--watch=100ms"});
  ASSERT_TRUE(watch.wait_for_output("puts/s")) << watch.output();
  server.kill();
  ASSERT_TRUE(watch.wait_for_output("kvclient: " + server.address())) << watch.output();
  server.start();
  const std::size_t before = lines_of(watch.output()).size();
  const auto has_figures_again = [&] {
    const std::vector<std::string> lines = lines_of(watch.output());
    return lines.size() > before && !lines.back().starts_with("kvclient");
  };
  for (int i = 0; i < 600 && !has_figures_again(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(has_figures_again()) << watch.output();
}

TEST(KvClient, AWatchSaysSoonThatItsOnlyServerDoesNotAnswer) {
  Server server;
  Process watch(
      {RKV_KVCLIENT, "--server", server.address(), "--timeout", "600s", "stats", "--watch=200ms"});
  ASSERT_TRUE(watch.wait_for_output("puts/s")) << watch.output();
  server.kill();
  EXPECT_TRUE(watch.wait_for_output("kvclient: " + server.address() +
                                    ": the server has not answered for 200 ms"))
      << watch.output();
}

// kvclient's shell on a terminal of its own.
class ShellOnTerminal {
 public:
  explicit ShellOnTerminal(std::vector<std::string> argv) {
    // libedit never frees the names of the functions that programs add to it.
    argv.insert(argv.begin(), {"/usr/bin/env", "ASAN_OPTIONS=detect_leaks=0"});
    std::vector<char*> args;
    for (std::string& text : argv)
      args.push_back(text.data());
    args.push_back(nullptr);
    pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    RKV_CHECK(pid_ >= 0, "no pseudo-terminal");
    if (pid_ == 0) {
      execv(args[0], args.data());
      _exit(127);
    }
  }
  ~ShellOnTerminal() {
    if (!status_) ::kill(pid_, SIGKILL);
    status();
    close(terminal_);
  }
  ShellOnTerminal(const ShellOnTerminal&) = delete;
  ShellOnTerminal& operator=(const ShellOnTerminal&) = delete;

  // As a person does.
  void type(std::string_view text) const {
    EXPECT_EQ(write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Blocks until this is shown, and forgets what was shown up to it. False: the shell has ended, or
  // it is not shown within a minute.
  bool shows(const std::string& text) {
    for (;;) {
      const std::size_t at = shown_.find(text);
      if (at != std::string::npos) {
        shown_.erase(0, at + text.size());
        return true;
      }
      if (!read_some(60'000)) return false;
    }
  }
  const std::string& shown() const { return shown_; }
  // Whether it has ended, now or within this time.
  bool ends(int within_ms) {
    while (read_some(within_ms)) {
    }
    return is_over_;
  }
  // How it has ended, as waitpid() says; blocks until then.
  int status() {
    int status = 0;
    if (!status_ && waitpid(pid_, &status, 0) == pid_) status_ = status;
    return status_.value_or(-1);
  }

 private:
  bool read_some(int within_ms) {
    pollfd readable{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, within_ms) != 1) return false;
    std::array<char, 4096> bytes{};
    const ssize_t got = read(terminal_, bytes.data(), bytes.size());
    is_over_ = got <= 0;  // EIO: nobody has the terminal open
    if (!is_over_) shown_.append(bytes.data(), static_cast<std::size_t>(got));
    return !is_over_;
  }

  int terminal_ = -1;
  pid_t pid_ = -1;
  bool is_over_ = false;
  std::optional<int> status_;
  std::string shown_;
};

constexpr const char* kControlC = "\x03";

TEST(KvClient, ControlCEndsAWatchAndNotTheShell) {
  Server server;
  ShellOnTerminal shell({RKV_KVCLIENT, "--server", server.address()});
  for (const char* const value : {"first", "second"}) {
    ASSERT_TRUE(shell.shows("> ")) << shell.shown();
    shell.type("stats --watch=50ms\n");
    ASSERT_TRUE(shell.shows("puts/s")) << shell.shown();
    ASSERT_TRUE(shell.shows("\n")) << shell.shown();
    ASSERT_TRUE(shell.shows("\n")) << shell.shown();  // the first line
    shell.type(kControlC);
    ASSERT_TRUE(shell.shows("> ")) << shell.shown();
    shell.type(std::string("put key ") + value + "\n");
    ASSERT_TRUE(shell.shows("ok")) << shell.shown();
    EXPECT_EQ(server.client().get("key")->value, value);
  }
  shell.type("exit\n");
  EXPECT_TRUE(shell.ends(60'000)) << shell.shown();
  EXPECT_EQ(shell.status(), 0) << shell.shown();
}

// The watch waits for a server that does not answer, for longer than the test: only the second
// Ctrl-C can end it.
TEST(KvClient, ASecondControlCEndsTheShellOfAWatchThatWaits) {
  Server server;
  ShellOnTerminal shell({RKV_KVCLIENT, "--server", server.address(), "--timeout", "600s"});
  ASSERT_TRUE(shell.shows("> ")) << shell.shown();
  shell.type("stats --watch=100ms\n");
  ASSERT_TRUE(shell.shows("puts/s")) << shell.shown();
  server.process().signal(SIGSTOP);
  ASSERT_TRUE(shell.shows("the server has not answered")) << shell.shown();
  for (int i = 0; i < 600 && !shell.ends(100); ++i)
    shell.type(kControlC);
  ASSERT_TRUE(shell.ends(0)) << shell.shown();
  const int status = shell.status();
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  server.process().signal(SIGCONT);
}

// Outside of the shell it ends the program, as that of any other.
TEST(KvClient, ControlCEndsTheProgramThatWatches) {
  Server server;
  Process watch({RKV_KVCLIENT, "--server", server.address(), "stats", "--watch=50ms"});
  ASSERT_TRUE(watch.wait_for_output("puts/s")) << watch.output();
  watch.signal(SIGINT);
  EXPECT_EQ(watch.wait().status, -SIGINT) << watch.output();
}

TEST(KvClient, BenchShowsFourFiguresAndLeavesNoKey) {
  Server server;
  Client client = server.client();
  const Ended table = kvclient(server.address(), {"bench", "--time", "200ms", "--keys", "1000"});
  EXPECT_EQ(table.status, 0) << table.output;
  EXPECT_THAT(table.output, HasSubstr("1000 records of 100 bytes"));
  const Ended json = kvclient(server.address(), {"--output", "json", "bench", "--time", "200ms",
                                                 "--keys", "1000", "--value-bytes", "1000"});
  EXPECT_EQ(json.status, 0) << json.output;
  const Json figures = Json::parse(json.output).at("figures");
  ASSERT_EQ(figures.size(), 4U);
  for (const Json& figure : figures) {
    const auto name = figure.at("operation").get<std::string>();
    EXPECT_THAT(table.output, HasSubstr(name));
    EXPECT_GT(figure.at("per_second").get<double>(), 0) << name;
    const double reads = figure.at("rdma_reads_each").get<double>();
    if (name.starts_with("get")) {
      EXPECT_GE(reads, 1) << name;
    } else {
      EXPECT_LT(reads, 0.1) << name;
    }
  }
  // They have expired, and the server takes them away.
  for (int i = 0; i < 600 && server_stat(client, "records") != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(server_stat(client, "records"), 0U);
}

}  // namespace
}  // namespace rkv::testing_support
