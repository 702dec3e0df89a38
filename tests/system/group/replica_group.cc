#include "tests/system/group/replica_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "server/group/etcd_configuration_store.h"

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
                           std::vector<std::string> program)
    : store_(std::make_unique<server::EtcdConfigurationStore>(etcd_.addresses(), "test", clock_)),
      arguments_(std::move(arguments)),
      program_(std::move(program)),
      replicas_(replicas) {
  for (Replica& replica : replicas_)
    replica.address = fmt::format("{}:{}", test_address(), next_port());
  // Over verbs the address is not loopback, and the tests' hosts are trusted.
  if (test_transport() == Transport::kVerbs) arguments_.emplace_back("--no-auth");
}

std::string ReplicaGroup::data(std::size_t number) const {
  return directory_.path(fmt::format("n{}", number));
}

std::vector<std::string> ReplicaGroup::command(std::size_t number) const {
  std::vector<std::string> argv = program_;
  argv.insert(argv.end(),
              {"--listen", replicas_[number].address, "--etcd", etcd_.addresses().front(),
               "--group", "test", "--name", fmt::format("n{}", number), "--data-dir", data(number),
               "--memory", "32MiB"});
  argv.insert(argv.end(), arguments_.begin(), arguments_.end());
  return argv;
}

void ReplicaGroup::start(std::size_t number) {
  replicas_[number].process = std::make_unique<Process>(
      command(number), std::vector<std::string>{"KVSERVER_CHECK_MEMORY=on"});
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
  auto client = Client::connect(
      {.server = servers, .timeout = std::chrono::seconds(20), .transport = test_transport()});
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
