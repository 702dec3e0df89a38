#include "tests/history/other_host.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/check.h"

namespace rkv::history {
namespace {

// To the monitor of the machine's emulator, which is a port of this machine (tests/softroce/vm.sh).
void tell_monitor(const std::string& command) {
  for (const auto& port : std::filesystem::directory_iterator("/sys/class/virtio-ports")) {
    std::string name;
    std::ifstream(port.path() / "name") >> name;
    if (name != "monitor2") continue;
    std::ofstream("/dev" / port.path().filename()) << command << "\n";
    return;
  }
  FAIL() << "no port of the second machine's monitor";
}

}  // namespace

std::string OtherHost::address() {
  const char* const given = std::getenv("RKV_NODE2_ADDRESS");
  return given == nullptr ? "" : given;
}

OtherHost::OtherHost() {
  RKV_CHECK(!address().empty(),
            "no second machine: run this by ./run test, or in ./run softroce --nodes 2");
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  RKV_CHECK(pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(out.data(), O_CLOEXEC) == 0, "no pipes");
  std::string program = "/run/softroce/node2";
  std::string shell = "sh";
  const std::array<char*, 3> argv = {program.data(), shell.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, out[1], 2);
  const int error = posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  RKV_CHECK(error == 0, "cannot start a shell on the second machine");
  close(in[0]);
  close(out[1]);
  input_ = in[1];
  output_ = out[0];
  (void)signal(SIGPIPE, SIG_IGN);  // the machine may end
}

OtherHost::~OtherHost() {
  close(input_);
  close(output_);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::string OtherHost::read_until(const std::string& end) {
  constexpr int kLimitMs = 60'000;
  std::size_t from = 0;  // `end` does not begin before it
  for (;;) {
    const std::size_t at = unread_.find(end, from);
    const std::size_t line_end = at == std::string::npos ? at : unread_.find('\n', at);
    if (line_end != std::string::npos) {
      std::string text = unread_.substr(0, line_end);
      unread_.erase(0, line_end + 1);
      return text;
    }
    pollfd readable{.fd = output_, .events = POLLIN, .revents = 0};
    std::array<char, 16384> bytes{};
    const ssize_t got =
        poll(&readable, 1, kLimitMs) == 1 ? read(output_, bytes.data(), bytes.size()) : 0;
    RKV_CHECK(got > 0, ("the second machine does not answer: " + unread_).c_str());
    if (at == std::string::npos) from = unread_.size() - std::min(unread_.size(), end.size());
    unread_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

std::string OtherHost::run(const std::string& command) {
  const std::string end = fmt::format("the end of command {}: ", ++commands_);
  const std::string line = fmt::format("{}\necho \"{}$?\"\n", command, end);
  RKV_CHECK(write(input_, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
            "the second machine's shell has ended");
  std::string output = read_until(end);
  const std::size_t at = output.find(end);
  EXPECT_EQ(output.substr(at + end.size()), "0") << command << "\n" << output;
  output.resize(at);
  return output;
}

void OtherHost::pause_machine() const {
  tell_monitor("stop");
}
void OtherHost::continue_machine() const {
  tell_monitor("cont");
}
void OtherHost::end_machine() const {
  tell_monitor("quit");
}

}  // namespace rkv::history
