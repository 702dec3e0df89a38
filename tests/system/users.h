// Servers with users, for tests: a users file with its secrets, and connections of a user that are
// set up by hand.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/auth/proof.h"
#include "common/wire.h"
#include "tests/support/files.h"
#include "tests/system/raw.h"
#include "tests/system/world.h"

namespace rkv::testing_support {

// A connection of a user, set up by hand.
class RawUser {
 public:
  RawUser(const std::string& address, const std::string& name, const ClientKeys& keys)
      : address_(address),
        keys_(keys),
        transport_(make_transport(address)),
        queue_(std::move(*transport_->create_queue({.receive_buffers = 8, .receive_bytes = 4096}))),
        request_{.credits_wanted = 4, .client_nonce = 4711, .user = number_of_user(name)} {}

  // Whether the server accepts the request as it is now. Otherwise `reject()` is what it said.
  bool connect() {
    connection_.reset();
    std::array<std::byte, kConnectRequestBytes> data{};
    encode(request_, data);
    rejection_ = {};
    auto made = transport_->connect(*queue_, {.grant = rdma::Access::kRemoteRead}, address_, data,
                                    Deadline::after_ms(clock_, kAnswerMs), &rejection_);
    if (made) connection_ = std::move(*made);
    return connection_ != nullptr;
  }
  ConnectReject reject() const {
    const auto decoded = decode_connect_reject({rejection_.reason, rejection_.length});
    EXPECT_TRUE(decoded);
    return decoded ? *decoded : ConnectReject{};
  }
  // Adds the proof for the challenge that the last reject had; of a client that called another
  // server, if its address is given.
  void prove(const std::string& other_server = {}) {
    ASSERT_TRUE(reject().challenge);
    const Challenge challenge = *reject().challenge;
    called_ = other_server.empty() ? rejection_.called : other_server;
    request_.stamp = challenge.stamp;
    request_.proof = make_proof(keys_, {.stamp = challenge.stamp,
                                        .cookie = challenge.cookie,
                                        .user = request_.user,
                                        .nonce = request_.client_nonce,
                                        .session_to_resume = request_.session_to_resume,
                                        .credits_wanted = request_.credits_wanted,
                                        .server = called_});
  }
  ConnectAccept accept() const {
    const auto accept = decode_connect_accept(connection_->private_data());
    EXPECT_TRUE(accept);
    return accept ? *accept : ConnectAccept{};
  }
  // Adds 0 to a word of the server. Whether it could.
  bool add_nothing(const RemoteWindow& window) {
    const auto region = transport_->allocate(4096, rdma::Access::kLocal);
    EXPECT_TRUE(region);
    const rdma::Operation operation{.kind = rdma::Operation::Kind::kFetchAdd,
                                    .local_key = (*region)->local_key(),
                                    .local = (*region)->bytes().first(8),
                                    .remote_address = window.address,
                                    .remote_key = window.remote_key};
    if (!connection_->post({&operation, 1})) return false;
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    rdma::Completion done;
    while (queue_->poll({&done, 1}) == 0 && !deadline.passed())
      queue_->wait(deadline);
    const bool added = done.kind == rdma::Completion::Kind::kFetchAdd &&
                       done.status == rdma::Completion::Status::kOk;
    connection_.reset();
    return added;
  }
  // Whether the server answers a ping.
  bool stays() {
    const auto region = transport_->allocate(4096, rdma::Access::kLocal);
    EXPECT_TRUE(region);
    const MutableBytes bytes = (*region)->bytes();
    const std::size_t length = encode(Request{.opcode = Opcode::kPing, .sequence = 1}, bytes);
    const rdma::Operation operation =
        rdma::Operation::send(bytes.first(length), (*region)->local_key(), 1);
    if (!connection_->post({&operation, 1})) return false;
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    while (!deadline.passed()) {
      rdma::Completion done;
      if (queue_->poll({&done, 1}) == 0) {
        queue_->wait(deadline);
        continue;
      }
      if (done.kind == rdma::Completion::Kind::kReceive) return true;
      if (done.kind == rdma::Completion::Kind::kDisconnected) return false;
    }
    ADD_FAILURE() << "neither answered nor ended";
    return false;
  }
  // READs the root without pause until a READ fails, and notes in `after_it` how many READs
  // succeeded that were posted after `ended` was set. Returns when the first READ failed; `reads`
  // counts those before it.
  Nanos read_until_refused(const std::atomic<bool>& ended, std::atomic<std::uint64_t>& reads,
                           std::uint64_t& after_it) {
    const RemoteWindow root = accept().root;
    const auto region = transport_->allocate(4096, rdma::Access::kLocal);
    EXPECT_TRUE(region);
    const rdma::Operation read = rdma::Operation::read(
        (*region)->bytes().first(256), (*region)->local_key(), root.address, root.remote_key, 0);
    const Deadline deadline = Deadline::after_ms(clock_, kAnswerMs);
    while (!deadline.passed()) {
      const bool is_late = ended.load();
      const auto posted = connection_->post({&read, 1});
      if (!posted) return clock_.now();
      rdma::Completion done;
      while (queue_->poll({&done, 1}) == 0 && !deadline.passed()) {
      }
      const bool is_read = done.kind == rdma::Completion::Kind::kRead &&
                           done.status == rdma::Completion::Status::kOk;
      if (!is_read) return clock_.now();
      after_it += is_late ? 1 : 0;
      reads.fetch_add(1);
    }
    ADD_FAILURE() << "the READs do not end";
    return clock_.now();
  }
  ConnectRequest& request() { return request_; }

 private:
  SteadyClock clock_;
  std::string address_;
  ClientKeys keys_;
  std::unique_ptr<rdma::Transport> transport_;
  std::unique_ptr<rdma::Queue> queue_;
  std::unique_ptr<rdma::Connection> connection_;
  rdma::Rejection rejection_;
  std::string called_;
  ConnectRequest request_;
};

// A server whose users are anna (admin), bob (write) and rita (read).
class UsersTest : public ::testing::Test {
 protected:
  UsersTest() {
    add("anna", "admin");
    add("bob", "write");
    add("rita", "read");
  }
  void add(const std::string& name, const std::string& role) {
    const Ended ended = run_program({RKV_KVSERVER, "user", "add", name, "--role", role, "--users",
                                     users_, "--secret-file", scratch_.path(name)});
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  Server& serve(const std::vector<std::string>& besides = {}) {
    std::vector<std::string> arguments = {"--memory",     "32MiB",
                                          "--users",      users_,
                                          "--data-dir",   scratch_.path("data"),
                                          "--backup-dir", scratch_.path("backups")};
    arguments.insert(arguments.end(), besides.begin(), besides.end());
    return server_.emplace(std::move(arguments));
  }
  std::string secret(const std::string& name) const {
    return testing::read_file(scratch_.path(name)).substr(0, 64);
  }
  ClientOptions options(const std::string& user) const { return options(user, secret(user)); }
  ClientOptions options(const std::string& user, const std::string& secret) const {
    ClientOptions options;
    options.server = server_->address();
    options.transport = test_transport();
    options.user = user;
    options.secret = secret;
    return options;
  }
  Client client(const std::string& user) {
    std::string refusal;
    auto client = Client::connect(options(user), &refusal);
    EXPECT_TRUE(client) << to_string(client.error()) << ": " << refusal;
    return std::move(*client);
  }
  // Returns the refusal of a client that cannot connect, and checks its error.
  static std::string refusal_of(const ClientOptions& options, Code code) {
    std::string refusal;
    const auto client = Client::connect(options, &refusal);
    EXPECT_FALSE(client);
    if (client) return {};
    EXPECT_EQ(client.error().code, code) << to_string(client.error());
    return to_string(client.error()) + ": " + refusal;
  }
  Ended cli(const std::string& user, std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--user", user, "--secret-file", scratch_.path(user)});
    return kvclient(server_->address(), arguments);
  }
  ClientKeys keys(const std::string& user) const {
    return ClientKeys::of(*Secret::parse(secret(user)));
  }
  // Changes the users file by its lines, and has the server read it.
  void rewrite(const std::function<std::string(std::string line)>& change) {
    std::istringstream lines(testing::read_file(users_));
    std::string text;
    for (std::string line; std::getline(lines, line);)
      text += change(line);
    testing::write_file(users_, text);
  }
  // Without the line of a user.
  static auto without(const std::string& name) {
    return [name](const std::string& line) {
      return line.starts_with(name + " ") ? std::string() : line + "\n";
    };
  }
  void reload(const std::string& until) {
    server_->process().signal(SIGHUP);
    wait_for(until);
  }
  void wait_for(const std::string& line) {
    ASSERT_TRUE(server_->process().wait_for_output(line)) << server_->process().output();
  }

  ScratchDirectory scratch_;
  const std::string users_ = scratch_.path("users");
  std::optional<Server> server_;
};

}  // namespace rkv::testing_support
