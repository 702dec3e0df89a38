#include "tests/system/group/replica_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "server/group/configuration/etcd_configuration_store.h"

namespace rkv::testing_support {

using std::chrono::milliseconds;

namespace {

// Two ports for each replica of a test program: nothing waits for an old one to be free.
std::uint16_t next_port() {
  static std::uint16_t port = 24000;
  port += 2;
  return port;
}

}  // namespace

ReplicaGroup::ReplicaGroup(std::size_t replicas, std::vector<std::string> arguments,
                           std::vector<std::string> program, const std::string& of_etcd)
    : ReplicaGroup(std::vector<Host>(replicas, Host{.address = test_address(), .enter = {}}),
                   std::move(arguments), std::move(program), "127.0.0.1", of_etcd) {}

ReplicaGroup::ReplicaGroup(const std::vector<Host>& hosts, const std::string& etcd,
                           std::vector<std::string> arguments)
    : ReplicaGroup(hosts, std::move(arguments), {RKV_KVSERVER}, etcd, "") {}

ReplicaGroup::ReplicaGroup(std::vector<Host> hosts, std::vector<std::string> arguments,
                           std::vector<std::string> program, const std::string& etcd,
                           const std::string& of_etcd)
    : etcd_(1, etcd, of_etcd),
      store_(std::make_unique<server::EtcdConfigurationStore>(etcd_.addresses(), "test", clock_)),
      arguments_(std::move(arguments)),
      program_(std::move(program)),
      replicas_(hosts.size()) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    replicas_[i].address = fmt::format("{}:{}", hosts[i].address, next_port());
    replicas_[i].host = std::move(hosts[i]);
  }
  // The tests' hosts are trusted.
  const bool has_users = std::ranges::find(arguments_, "--users") != arguments_.end();
  if (test_transport() != Transport::kShm && !has_users) arguments_.emplace_back("--no-auth");
  const std::string secret = directory_.path("group.secret");
  std::ofstream(secret) << std::string(64, '7') << "\n";
  std::filesystem::permissions(secret, std::filesystem::perms::owner_read);
  arguments_.insert(arguments_.end(), {"--group-secret", secret});
}

std::string ReplicaGroup::data(std::size_t number) const {
  return directory_.path(fmt::format("n{}", number));
}

std::vector<std::string> ReplicaGroup::command(std::size_t number) const {
  std::vector<std::string> argv = replicas_[number].host.enter;
  argv.insert(argv.end(), program_.begin(), program_.end());
  argv.insert(argv.end(),
              {"--listen", replicas_[number].address, "--etcd", etcd_.addresses().front(),
               "--group", "test", "--name", fmt::format("n{}", number), "--data-dir", data(number),
               "--memory", "32MiB"});
  if (number == 0) argv.emplace_back("--found-group");
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  return argv;
}

void ReplicaGroup::start(std::size_t number, const std::vector<std::string>& more,
                         std::vector<std::string> environment) {
  std::vector<std::string> argv = command(number);
  argv.insert(argv.end(), more.begin(), more.end());
  environment.emplace_back("KVSERVER_CHECK_MEMORY=on");
  replicas_[number].process = std::make_unique<Process>(argv, environment);
}

void ReplicaGroup::start_all() {
  start(0);
  ASSERT_TRUE(process(0).wait_for_output("kvserver ready", 240)) << process(0).output();
  for (std::size_t number = 1; number < replicas_.size(); ++number)
    start(number);
  wait_for_in_sync(replicas_.size());
}

void ReplicaGroup::kill(std::size_t number) {
  process(number).signal(SIGKILL);
  EXPECT_EQ(process(number).wait().status, -SIGKILL);
}

int ReplicaGroup::stop(std::size_t number) {
  process(number).signal(SIGTERM);
  return ended(number).status;
}

Ended ReplicaGroup::ended(std::size_t number) {
  return process(number).wait();
}

std::optional<server::GroupConfiguration> ReplicaGroup::stored() const {
  auto stored = store_->read(Deadline::after_ms(clock_, 5000));
  return stored ? std::move(stored->configuration) : std::nullopt;
}

std::string ReplicaGroup::configuration() const {
  const auto stored = this->stored();
  return stored ? to_text(*stored) : "";
}

std::size_t ReplicaGroup::in_sync_count() const {
  const auto stored = this->stored();
  return stored ? stored->in_sync_count() : 0;
}

void ReplicaGroup::wait_for_in_sync(std::size_t count) {
  EXPECT_TRUE(holds_in_time([&] { return in_sync_count() == count; })) << configuration() << logs();
}

// A backup would direct the client to the primary, so etcd says which one that is.
std::size_t ReplicaGroup::wait_for_primary(std::size_t but) {
  // An emulated processor takes longer to connect, and an attempt that fails changes nothing.
  const milliseconds attempt(test_transport() == Transport::kVerbs ? 5000 : 300);
  std::size_t found = 0;
  EXPECT_TRUE(holds_in_time([&] {
    const auto stored = this->stored();
    if (!stored || stored->primary.empty()) return false;
    found = std::stoul(stored->primary.substr(1));
    return found != but && connect(found, attempt).has_value();
  })) << configuration()
      << logs();
  return found;
}

Result<Client> ReplicaGroup::connect(std::size_t number, milliseconds timeout) const {
  return Client::connect({.server = replicas_[number].address,
                          .user = user_,
                          .secret = secret_,
                          .timeout = timeout,
                          .transport = test_transport(),
                          .repeat_connect = false});
}

Client ReplicaGroup::client_of(std::size_t number) const {
  auto client = connect(number);
  if (!client) throw std::runtime_error("no client: " + to_string(client.error()));
  return std::move(*client);
}

Client ReplicaGroup::client() {
  return client_of(wait_for_primary());
}

Client ReplicaGroup::client_of_all() const {
  std::string servers;
  for (const Replica& replica : replicas_)
    servers += (servers.empty() ? "" : ",") + replica.address;
  auto client = Client::connect({.server = servers,
                                 .user = user_,
                                 .secret = secret_,
                                 .timeout = std::chrono::seconds(20),
                                 .transport = test_transport()});
  if (!client) throw std::runtime_error("no client of the group: " + to_string(client.error()));
  return std::move(*client);
}

std::string ReplicaGroup::log(std::size_t number) {
  return replicas_[number].process ? replicas_[number].process->output() : "";
}

std::string ReplicaGroup::logs() {
  std::string text;
  for (std::size_t number = 0; number < replicas_.size(); ++number)
    text += fmt::format("\n== n{}\n{}", number, log(number));
  return text;
}

}  // namespace rkv::testing_support
