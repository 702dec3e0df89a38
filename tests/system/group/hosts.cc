#include "tests/system/group/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "common/check.h"

namespace rkv::testing_support {
namespace {

constexpr const char* kNobody = "02:00:00:00:00:01";  // no host has it
constexpr int kClosed = 100;                          // the place of the rule that closes ports

std::string network_of(pid_t pid) {
  return fmt::format("/proc/{}/ns/net", pid);
}

void run(std::vector<std::string> argv) {
  const std::string text = fmt::format("{}", fmt::join(argv, " "));
  const Ended ended = run_program(std::move(argv));
  if (ended.status != 0) throw std::runtime_error(text + ": " + ended.output);
}

// A command of ip(8), on the network of this thread or of another one.
void ip(const std::string& command, pid_t pid = gettid()) {
  run({"/bin/sh", "-c", fmt::format("nsenter --net={} ip {}", network_of(pid), command)});
}

}  // namespace

Hosts::Hosts(std::size_t count)
    : before_(open(network_of(gettid()).c_str(), O_RDONLY | O_CLOEXEC)) {
  if (unshare(CLONE_NEWNET) != 0)
    throw std::runtime_error("this user may not make a network: run it as root");
  const std::filesystem::path ours = network_of(gettid());
  ip("link set lo up");
  ip("link add bridge type bridge");
  ip("link set bridge up");
  ip(fmt::format("address add {}/24 dev bridge", own_address()));
  ip(fmt::format("address add {}/24 dev bridge", second_address()));
  for (std::size_t host = 0; host < count; ++host) {
    keepers_.push_back(std::make_unique<Process>(
        std::vector<std::string>{"/usr/bin/unshare", "--net", "/bin/sleep", "infinity"}));
    const pid_t keeper = keepers_.back()->pid();
    while (std::filesystem::read_symlink(network_of(keeper)) ==
           std::filesystem::read_symlink(ours)) {
      RKV_CHECK(keepers_.back()->running(), "unshare(1) has failed");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ip(fmt::format("link add to{} type veth peer name eth0 netns {}", host, keeper));
    ip(fmt::format("link set to{} master bridge up", host));
    ip("link set lo up", keeper);
    ip("link set eth0 up", keeper);
    ip(fmt::format("address add {}/24 dev eth0", address(host)), keeper);
  }
}

Hosts::~Hosts() {
  keepers_.clear();
  RKV_CHECK(setns(before_, CLONE_NEWNET) == 0, "cannot return to the network");
  close(before_);
}

std::string Hosts::address(std::size_t host) const {
  return fmt::format("10.77.0.{}", 1 + host);
}
std::string Hosts::own_address() {
  return "10.77.0.253";
}
std::string Hosts::second_address() {
  return "10.77.0.254";
}

std::vector<std::string> Hosts::enter(std::size_t host) const {
  return {"/usr/bin/nsenter", "--net=" + network_of(keepers_.at(host)->pid())};
}

void Hosts::cut(std::size_t host, const std::string& address) const {
  ip(fmt::format("neighbour replace {} lladdr {} nud permanent dev eth0", address, kNobody),
     keepers_.at(host)->pid());
}

// The rule for a host's own addresses is the first one: it is moved behind the new one.
void Hosts::close_port(std::size_t host, int port) const {
  const pid_t keeper = keepers_.at(host)->pid();
  ip(fmt::format("rule add pref {} iif eth0 ipproto tcp dport {} blackhole", kClosed, port),
     keeper);
  ip(fmt::format("rule add pref {} lookup local", kClosed + 1), keeper);
  ip("rule delete pref 0", keeper);
}

void Hosts::heal() const {
  for (const auto& keeper : keepers_) {
    ip("neighbour flush nud permanent dev eth0", keeper->pid());
    ip(fmt::format("rule flush pref {}", kClosed), keeper->pid());
  }
}

}  // namespace rkv::testing_support
