#include "tests/system/world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/check.h"

namespace rkv::testing_support {

rdma::TransportKind test_transport_kind() {
  const char* const name = std::getenv("RKV_TEST_TRANSPORT");
  const auto kind = rdma::parse_transport_kind(name == nullptr ? "" : name);
  EXPECT_TRUE(kind) << "RKV_TEST_TRANSPORT must be verbs, shm or tcp: run this by ctest";
  return kind.value_or(rdma::TransportKind::kVerbs);
}

Transport test_transport() {
  switch (test_transport_kind()) {
    case rdma::TransportKind::kShm:
      return Transport::kShm;
    case rdma::TransportKind::kTcp:
      return Transport::kTcp;
    default:
      return Transport::kVerbs;
  }
}

namespace {
// Test programs run at the same time, and have the same ports.
std::string loopback_of_this_process() {
  const auto process = static_cast<unsigned>(getpid());
  return fmt::format("127.{}.{}.{}", 1 + process / 62500 % 250, process / 250 % 250,
                     1 + process % 250);
}
}  // namespace

std::string test_address() {
  if (test_transport() == Transport::kShm) return "127.0.0.1";
  if (test_transport() == Transport::kTcp) return loopback_of_this_process();
  const char* address = std::getenv("RKV_RDMA_ADDRESS");
  EXPECT_NE(address, nullptr) << "no RDMA device: run this by ./run test, or in ./run softroce";
  return address == nullptr ? "127.0.0.1" : address;
}

ScratchDirectory::ScratchDirectory() {
  char name[] = "/tmp/rkv-system-XXXXXX";
  RKV_CHECK(mkdtemp(name) != nullptr, "cannot make a temporary directory");
  path_ = name;
}
ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {
// A port of its own for each server of a test program: nothing waits for an old one to be free.
std::uint16_t next_port() {
  static std::uint16_t port = 20000;
  return ++port;
}
}  // namespace

Server::Server(std::vector<std::string> arguments, std::vector<std::string> environment)
    : address_(fmt::format("{}:{}", test_address(), next_port())),
      argv_({RKV_KVSERVER, "--listen", address_}),
      environment_(std::move(environment)) {
  argv_.insert(argv_.end(), arguments.begin(), arguments.end());
  if (std::ranges::find(arguments, "--users") == arguments.end()) argv_.emplace_back("--no-auth");
  environment_.emplace_back("KVSERVER_CHECK_MEMORY=on");  // at each stop
  start();
}

void Server::start() {
  process_.reset();
  process_ = std::make_unique<Process>(argv_, environment_);
  EXPECT_TRUE(process_->wait_for_output("kvserver ready", 240)) << process_->output();
}

void Server::kill() {
  process_->signal(SIGKILL);
  EXPECT_EQ(process_->wait().status, -SIGKILL) << process_->output();
}

int Server::stop() {
  process_->signal(SIGTERM);
  const Ended ended = process_->wait();
  if (ended.status != 0) std::cerr << ended.output;  // the reason
  return ended.status;
}

void Server::stop_and_check() {
  process_->signal(SIGTERM);
  const Ended ended = process_->wait();
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_NE(ended.output.find("memory checked"), std::string::npos) << ended.output;
}

Client Server::client(ClientOptions options) {
  options.server = address_;
  if (options.transport == Transport::kAuto) options.transport = test_transport();
  if (options.timeout == ClientOptions{}.timeout) options.timeout = std::chrono::seconds(60);
  options.connect_timeout = std::chrono::seconds(20);
  std::string refusal;
  auto client = Client::connect(options, &refusal);
  RKV_CHECK(client.has_value(),
            (to_string(client.error()) + " " + refusal + "\n" + process_->output()).c_str());
  return std::move(*client);
}

Ended kvclient(const std::string& address, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {RKV_KVCLIENT, "--server", address});
  return run_program(std::move(arguments), 300);
}

std::uint64_t server_stat(Client& client, const std::string& name) {
  const auto text = client.server_stats();
  EXPECT_TRUE(text) << to_string(text.error());
  if (!text) return 0;
  const auto number = nlohmann::json::parse(*text).at(name);
  if (number.is_boolean()) return number.get<bool>() ? 1 : 0;
  return number.get<std::uint64_t>();
}

}  // namespace rkv::testing_support
