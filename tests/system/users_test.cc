// Servers with users: who gets in, what each role may do, and what becomes of a user who is
// removed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

#include "common/auth/proof.h"
#include "common/wire.h"
#include "tests/support/files.h"
#include "tests/system/raw.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kWrong = "the user is unknown or the secret is wrong";

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
  // Adds the proof for the challenge that the last reject had.
  void prove() {
    ASSERT_TRUE(reject().challenge);
    const Challenge challenge = *reject().challenge;
    called_ = rejection_.called;
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
  // What a client that cannot connect hears, with its error.
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

TEST_F(UsersTest, AUserWithItsSecretGetsIn) {
  serve();
  Client anna = client("anna");
  EXPECT_TRUE(anna.put("key", "value"));
  EXPECT_EQ(anna.get("key")->value, "value");
  EXPECT_EQ(anna.incr("count", 5)->number, 5);
  EXPECT_TRUE(anna.backup("monday"));
  EXPECT_TRUE(anna.server_stats());
  EXPECT_EQ(cli("bob", {"put", "shell", "too"}).status, 0);
  EXPECT_THAT(cli("rita", {"get", "shell"}).output, HasSubstr("too"));
  EXPECT_THAT(server_->process().output(), HasSubstr("\"anna\" connected"));
  server_->stop_and_check();
}

TEST_F(UsersTest, AWrongSecretAndAnUnknownUserHearTheSame) {
  serve();
  const std::string wrong = refusal_of(options("anna", secret("bob")), Code::kUnauthenticated);
  EXPECT_THAT(wrong, HasSubstr(kWrong));
  EXPECT_EQ(refusal_of(options("carol", secret("bob")), Code::kUnauthenticated), wrong);
  const std::string nobody = refusal_of(options("", ""), Code::kUnauthenticated);
  EXPECT_THAT(nobody, HasSubstr("the server has users: give a user and its secret"));
  const Ended ended = kvclient(server_->address(), {"ping"});
  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(ended.output, HasSubstr("--secret-file"));
}

TEST_F(UsersTest, AReaderReadsAndDoesNothingElse) {
  serve();
  ASSERT_TRUE(client("bob").put("key", "value"));
  Client rita = client("rita");
  EXPECT_EQ(rita.get("key")->value, "value");
  EXPECT_TRUE(rita.ping());
  EXPECT_EQ(rita.scan()->entries().size(), 1U);
  const auto refused = [&](const auto& result, const std::string& operation) {
    ASSERT_FALSE(result) << operation;
    EXPECT_EQ(result.error().code, Code::kPermission) << operation;
    EXPECT_EQ(result.error().write, WriteOutcome::kNotApplied) << operation;
    EXPECT_THAT(rita.last_refusal(), HasSubstr(operation + " needs the role")) << operation;
    EXPECT_THAT(rita.last_refusal(), HasSubstr("this user has the role read")) << operation;
  };
  refused(rita.put("key", "changed"), "put");
  refused(rita.put("key", std::string(200'000, 'v')), "put_large");
  refused(rita.put("key", std::string(100'000, 'v')), "put");  // over verbs a long
  refused(rita.remove("key"), "remove");
  refused(rita.incr("count"), "add");
  refused(rita.open_counter("count", {.create = true}), "open_counter");
  refused(rita.flush(), "flush");
  refused(rita.backup("monday"), "backup");
  refused(rita.server_stats(), "stats");
  EXPECT_EQ(rita.get("key")->value, "value");
  EXPECT_EQ(rita.stats().reconnects, 0U);
  const Ended put = cli("rita", {"put", "key", "changed"});
  EXPECT_EQ(put.status, 4);
  EXPECT_THAT(put.output, HasSubstr("put needs the role write"));
}

TEST_F(UsersTest, AWriterIsNotAnAdministrator) {
  serve();
  Client bob = client("bob");
  EXPECT_TRUE(bob.put("key", "value"));
  EXPECT_TRUE(bob.put("large", std::string(200'000, 'v')));
  EXPECT_TRUE(bob.flush());
  EXPECT_EQ(bob.backup("monday").error().code, Code::kPermission);
  EXPECT_THAT(bob.last_refusal(), HasSubstr("backup needs the role admin"));
  EXPECT_EQ(bob.server_stats().error().code, Code::kPermission);
}

// What the server executes asks for the role. Atomics are executed by the device.
TEST_F(UsersTest, AReaderHasNoAtomics) {
  serve();
  RawUser bob(server_->address(), "bob", keys("bob"));
  ASSERT_FALSE(bob.connect());
  bob.prove();
  ASSERT_TRUE(bob.connect());
  const RemoteWindow hints = bob.accept().hints;
  ASSERT_NE(hints.length, 0U);
  EXPECT_NE(bob.accept().counters.length, 0U);
  EXPECT_TRUE(bob.add_nothing(hints));

  RawUser rita(server_->address(), "rita", keys("rita"));
  ASSERT_FALSE(rita.connect());
  rita.prove();
  ASSERT_TRUE(rita.connect());
  EXPECT_EQ(rita.accept().hints.length, 0U);
  EXPECT_EQ(rita.accept().counters.length, 0U);
  EXPECT_FALSE(rita.add_nothing(hints)) << "although it knows the key";
}

TEST_F(UsersTest, ACapturedRequestIsOfNoUseToAnother) {
  serve();
  RawUser raw(server_->address(), "anna", keys("anna"));
  ASSERT_FALSE(raw.connect());
  EXPECT_EQ(raw.reject().code, Code::kUnauthenticated);
  raw.prove();
  ASSERT_TRUE(raw.connect());
  EXPECT_TRUE(raw.accept().answer);
  EXPECT_FALSE(raw.connect()) << "the same bytes again";
  EXPECT_THAT(std::string(raw.reject().text), HasSubstr("used before"));
  raw.request().client_nonce += 1;
  EXPECT_FALSE(raw.connect());
  EXPECT_TRUE(raw.reject().challenge) << "no challenge was made for this request";
  Client neighbour = client("anna");
  EXPECT_TRUE(neighbour.put("key", "value"));
}

// No secret is found by trying, and those who share a host with one that tries are not kept out.
TEST_F(UsersTest, WrongProofsKeepNobodyOut) {
  serve({"--max-offences", "1"});
  RawUser raw(server_->address(), "anna", keys("bob"));
  for (int i = 0; i < 100; ++i) {
    raw.request().stamp = 0;
    ASSERT_FALSE(raw.connect());
    raw.prove();
    ASSERT_FALSE(raw.connect());
    ASSERT_EQ(raw.reject().text, kWrong);
  }
  Client anna = client("anna");
  EXPECT_TRUE(anna.ping());
}

TEST_F(UsersTest, NobodyEndsTheSessionOfAnotherUser) {
  serve();
  const auto connect_as = [&](RawUser& raw, std::uint64_t session_to_resume) {
    raw.request().session_to_resume = session_to_resume;
    raw.request().stamp = 0;
    ASSERT_FALSE(raw.connect());
    raw.prove();
    ASSERT_TRUE(raw.connect());
  };
  RawUser bob(server_->address(), "bob", keys("bob"));
  connect_as(bob, 0);
  const std::uint64_t session = bob.accept().session;
  RawUser rita(server_->address(), "rita", keys("rita"));
  connect_as(rita, session);
  RawUser again(server_->address(), "rita", keys("rita"));
  again.request().client_nonce += 1;
  connect_as(again, rita.accept().session);
  EXPECT_FALSE(rita.stays()) << "its own";
  EXPECT_TRUE(bob.stays());
}

TEST_F(UsersTest, ARemovedUserIsDisconnectedAndOthersAreNot) {
  serve();
  Client anna = client("anna");
  Client bob = client("bob");
  ASSERT_TRUE(bob.put("key", "value"));
  rewrite(without("bob"));
  reload("the users were read again");
  wait_for("is disconnected: its user was revoked or changed");
  // A ping is repeated over a new connection; a write that meets the end of the old one may not be.
  const auto ping = bob.ping();
  ASSERT_FALSE(ping);
  EXPECT_EQ(ping.error().code, Code::kUnauthenticated) << to_string(ping.error());
  EXPECT_THAT(bob.last_refusal(), HasSubstr(kWrong));
  EXPECT_EQ(bob.put("key", "changed").error().code, Code::kUnauthenticated);
  EXPECT_EQ(anna.get("key")->value, "value");
  EXPECT_TRUE(anna.put("key", "changed"));
  EXPECT_EQ(anna.stats().reconnects, 0U);
}

TEST_F(UsersTest, ANewRoleEndsTheSessionAndTheNextHasIt) {
  serve();
  Client rita = client("rita");
  EXPECT_EQ(rita.put("key", "value").error().code, Code::kPermission);
  rewrite([](std::string line) {
    if (line.starts_with("rita read ")) line.replace(5, 4, "write");
    return line + "\n";
  });
  reload("the users were read again");
  wait_for("is disconnected: its user was revoked or changed");
  EXPECT_TRUE(rita.ping());
  EXPECT_TRUE(rita.put("key", "value"));
  EXPECT_EQ(rita.stats().reconnects, 1U);
}

TEST_F(UsersTest, ANewUserGetsInAfterTheFileIsReadAgain) {
  serve();
  Client anna = client("anna");
  add("carol", "read");
  EXPECT_THAT(refusal_of(options("carol"), Code::kUnauthenticated), HasSubstr(kWrong));
  reload("the users were read again: 4 in");
  EXPECT_TRUE(client("carol").ping());
  EXPECT_TRUE(anna.ping());
  EXPECT_EQ(anna.stats().reconnects, 0U);
}

TEST_F(UsersTest, AFileThatIsWrongChangesNothing) {
  serve();
  Client anna = client("anna");
  testing::write_file(users_, "anna nothing\n");
  reload("the users were not read again, nothing changes");
  EXPECT_THAT(server_->process().output(), HasSubstr("line 1"));
  EXPECT_TRUE(anna.ping());
  EXPECT_EQ(anna.stats().reconnects, 0U);
  EXPECT_TRUE(client("bob").ping());
}

TEST_F(UsersTest, AFileThatHasLostItsUsersIsReported) {
  serve();
  testing::write_file(users_, "");
  reload("the users were read again: 0 in");
  wait_for("has no users");
}

TEST_F(UsersTest, AClientComesBackAfterARestart) {
  serve();
  Client bob = client("bob");
  ASSERT_TRUE(bob.put("key", "value", {.durability = Durability::kSync}));
  server_->kill();
  server_->start();
  EXPECT_TRUE(bob.ping());
  EXPECT_EQ(bob.get("key")->value, "value");
  EXPECT_TRUE(bob.put("key", "changed"));
  EXPECT_EQ(bob.stats().reconnects, 1U);
}

// A server that has a list of its own, or a thief's.
TEST_F(UsersTest, AServerMustKnowTheSecretToo) {
  serve();
  server_->stop();
  rewrite([](std::string line) {
    line.replace(line.size() - 64, 64, std::string(64, '0'));
    return line + "\n";
  });
  server_->start();
  EXPECT_THAT(refusal_of(options("anna"), Code::kUnauthenticated),
              HasSubstr("the server does not know this user's secret"));
}

TEST_F(UsersTest, AServerWithoutUsersIsNotTheOneThatWasMeant) {
  server_.emplace();
  EXPECT_THAT(refusal_of(options("anna"), Code::kUnauthenticated),
              HasSubstr("the server has no users"));
  EXPECT_TRUE(server_->client().ping());
}

TEST_F(UsersTest, WrongInputIsNamed) {
  server_.emplace();
  const auto expect = [](const Ended& ended, int status, const std::string& names) {
    EXPECT_EQ(ended.status, status) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(names));
  };
  const std::string here = server_->address();
  expect(kvclient(here, {"--user", "anna", "ping"}), 2, "--secret-file");
  expect(kvclient(here, {"--user", "an na", "ping"}), 2, "an na");
  expect(kvclient(here, {"--secret-file", scratch_.path("anna"), "ping"}), 2, "--user");
  expect(kvclient(here, {"--user", "anna", "--secret-file", users_, "ping"}), 2, "longer than");
  ASSERT_EQ(chmod(scratch_.path("anna").c_str(), 0644), 0);
  expect(cli("anna", {"ping"}), 2, "chmod 600");
  const auto starts = [&](const std::string& users) {
    return run_program({RKV_KVSERVER, "--memory", "32MiB", "--listen", here, "--users", users});
  };
  expect(starts(scratch_.path("absent")), 3, "No such file");
  expect(starts(scratch_.path("bob")), 2, "line 1");
  ASSERT_EQ(chmod(users_.c_str(), 0640), 0);
  expect(starts(users_), 3, "chmod 600");
  EXPECT_EQ(refusal_of(options("anna", "short"), Code::kInvalidArgument).find("the option user"),
            0U);
  EXPECT_EQ(
      refusal_of(options("", secret("bob")), Code::kInvalidArgument).find("the option secret"), 0U);
}

}  // namespace
}  // namespace rkv::testing_support
