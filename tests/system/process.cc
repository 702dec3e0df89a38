#include "tests/system/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "common/check.h"

namespace rkv::testing_support {

namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
SteadyTime after_s(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}
// Between looks at a condition that no descriptor announces.
void pause_briefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings)
    out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Process::Process(std::vector<std::string> argv, std::vector<std::string> environment) {
  char name[] = "/tmp/rkv-test-XXXXXX";
  const int log = mkstemp(name);
  RKV_CHECK(log >= 0, "cannot make a temporary file");
  log_path_ = name;

  for (char** entry = environ; *entry != nullptr; ++entry)
    environment.emplace_back(*entry);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, log, 1);
  posix_spawn_file_actions_adddup2(&actions, log, 2);
  posix_spawn_file_actions_addclose(&actions, log);
  std::vector<char*> args = pointers(argv);
  std::vector<char*> env = pointers(environment);
  const int error = posix_spawn(&pid_, args[0], &actions, nullptr, args.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  close(log);
  RKV_CHECK(error == 0, "cannot start the program under test: is it built?");
}

Process::~Process() {
  if (!reap(false)) {
    signal(SIGKILL);
    reap(true);
  }
  unlink(log_path_.c_str());
}

bool Process::reap(bool block) {
  if (ended_) return true;
  int status = 0;
  if (waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  ended_ = true;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

bool Process::running() {
  return !reap(false);
}

void Process::signal(int number) const {
  if (ended_) return;
  kill(pid_, number);
  if (number != SIGSTOP) return;
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
}

Ended Process::wait(int limit_s) {
  const auto end = after_s(limit_s);
  while (!reap(false)) {
    if (std::chrono::steady_clock::now() > end) {
      signal(SIGKILL);
      reap(true);
      break;
    }
    pause_briefly();
  }
  return {.status = status_, .output = output()};
}

bool Process::wait_for_output(const std::string& text, int limit_s) {
  const auto end = after_s(limit_s);
  while (true) {
    const bool ended = reap(false);  // before the look: what it wrote last is still seen
    if (output().find(text) != std::string::npos) return true;
    if (ended || std::chrono::steady_clock::now() > end) return false;
    pause_briefly();
  }
}

std::string Process::output() const {
  std::ifstream in(log_path_, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

Ended run_program(std::vector<std::string> argv, int limit_s) {
  return Process(std::move(argv)).wait(limit_s);
}

}  // namespace rkv::testing_support
