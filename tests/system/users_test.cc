// Servers with users: who gets in, what each role may do, and what becomes of a user who is
// removed.
#include "tests/system/users.h"

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
#include "tests/system/device_atomics.h"

namespace rkv::testing_support {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kWrong = "the user is unknown or the secret is wrong";

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
  EXPECT_TRUE(server_->process().wait_for_output("\"anna\" connected"));
  server_->stop_and_check();
}

TEST_F(UsersTest, AWrongSecretAndAnUnknownUserHearTheSame) {
  serve();
  const std::string wrong = refusal_of(options("anna", secret("bob")), Code::kUnauthenticated);
  EXPECT_THAT(wrong, HasSubstr(kWrong));
  // The hint if neither is wrong: NAT, a proxy.
  EXPECT_THAT(wrong, HasSubstr("or the client called another address than "));
  EXPECT_THAT(wrong, HasSubstr("(this client called "));
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

// Operations that the server executes check the role. The device executes atomics; if it has none,
// nobody gets a word for them.
TEST_F(UsersTest, AReaderHasNoAtomics) {
  const bool atomics = device_has_atomics();
  serve();
  RawUser bob(server_->address(), "bob", keys("bob"));
  ASSERT_FALSE(bob.connect());
  bob.prove();
  ASSERT_TRUE(bob.connect());
  const RemoteWindow hints = bob.accept().hints;
  ASSERT_EQ(hints.length != 0, atomics);
  const RemoteWindow counters = bob.accept().counters;
  EXPECT_EQ(counters.length != 0, atomics);
  EXPECT_EQ(bob.add_nothing(hints), atomics);

  RawUser rita(server_->address(), "rita", keys("rita"));
  ASSERT_FALSE(rita.connect());
  rita.prove();
  ASSERT_TRUE(rita.connect());
  EXPECT_EQ(rita.accept().hints.length, 0U);
  EXPECT_EQ(rita.accept().counters.length, 0U);
  EXPECT_FALSE(rita.add_nothing(hints)) << "although it knows the key";

  RawUser second(server_->address(), "rita", keys("rita"));
  second.request().client_nonce += 1;  // else it may be the same request in the same millisecond
  ASSERT_FALSE(second.connect());
  second.prove();
  ASSERT_TRUE(second.connect());
  EXPECT_FALSE(second.add_nothing(counters));
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

// A man in the middle passes a server's challenge on to a client that has called another address,
// and the client's proof to the server.
TEST_F(UsersTest, AProofForAnotherServerIsOfNoUseHere) {
  serve();
  RawUser raw(server_->address(), "anna", keys("anna"));
  ASSERT_FALSE(raw.connect());
  raw.prove("192.0.2.9:7471");
  EXPECT_FALSE(raw.connect());
  EXPECT_THAT(std::string(raw.reject().text), StartsWith(kWrong));
  raw.request().stamp = 0;
  ASSERT_FALSE(raw.connect());
  raw.prove();
  EXPECT_TRUE(raw.connect()) << "as it is for this one";
}

TEST_F(UsersTest, TheLogSaysWhoMayConnect) {
  serve();
  EXPECT_THAT(server_->process().output(),
              HasSubstr("only users of the file of --users may connect"));
  server_->stop_and_check();
  Server open_to_all({"--memory", "32MiB"});  // the tests' servers have --no-auth
  EXPECT_THAT(
      open_to_all.process().output(),
      HasSubstr("every host that reaches the server may read and write, as --no-auth says"));
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
    ASSERT_THAT(std::string(raw.reject().text), StartsWith(kWrong));
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

// Until the file says otherwise, or the server starts again.
TEST_F(UsersTest, ARevokedUserIsOutAtOnceAndStaysOut) {
  serve();
  Client anna = client("anna");
  Client bob = client("bob");
  Client other = client("bob");
  ASSERT_TRUE(bob.put("key", "value"));
  ASSERT_TRUE(other.ping());
  const auto sessions = anna.revoke_user("bob");
  ASSERT_TRUE(sessions) << to_string(sessions.error()) << anna.last_refusal();
  EXPECT_EQ(*sessions, 2U);
  const auto is_out = [&] {
    EXPECT_THAT(refusal_of(options("bob"), Code::kUnauthenticated), HasSubstr(kWrong));
  };
  for (Client* const one : {&bob, &other}) {
    const auto ping = one->ping();
    ASSERT_FALSE(ping);
    EXPECT_EQ(ping.error().code, Code::kUnauthenticated) << to_string(ping.error());
  }
  is_out();
  EXPECT_EQ(*anna.revoke_user("bob"), 0U) << "twice is right, too";
  EXPECT_EQ(anna.get("key")->value, "value");
  EXPECT_EQ(anna.stats().reconnects, 0U);
  reload("\"bob\" was revoked and stays out");
  is_out();
  rewrite(without("bob"));
  reload("the users were read again: 2 in");
  is_out();
  add("carol", "write");
  add("dora", "read");
  reload("the users were read again: 4 in");
  const auto absent = anna.revoke_user("carol");
  ASSERT_TRUE(absent) << to_string(absent.error());
  EXPECT_EQ(*absent, 0U) << "it is not connected";
  EXPECT_THAT(refusal_of(options("carol"), Code::kUnauthenticated), HasSubstr(kWrong));
  server_->stop_and_check();
  server_->start();
  EXPECT_TRUE(client("carol").ping()) << "its line is still in the file";
}

TEST_F(UsersTest, RevokingFromTheShellSaysWhatIsLeftToDo) {
  serve();
  const Ended done = cli("anna", {"admin", "revoke", "bob"});
  EXPECT_EQ(done.status, 0) << done.output;
  EXPECT_THAT(done.output, AllOf(HasSubstr("revoked bob, sessions ended: 0"),
                                 HasSubstr("kvserver user remove bob --users FILE")));
  const Ended removed = run_program({RKV_KVSERVER, "user", "remove", "bob", "--users", users_});
  EXPECT_EQ(removed.status, 0) << removed.output;
  reload("the users were read again: 2 in");
  const auto expect = [&](const Ended& ended, int status, const std::string& sentence) {
    EXPECT_EQ(ended.status, status) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(sentence));
    EXPECT_EQ(std::ranges::count(ended.output, '\n'), 1) << ended.output;
  };
  expect(cli("anna", {"admin", "revoke", "bob"}), 1, "the server has no user of this name");
  expect(cli("anna", {"admin", "revoke", "anna"}), 2, "a user cannot revoke itself");
  expect(cli("rita", {"admin", "revoke", "anna"}), 4, "revoke needs the role admin");
  expect(cli("anna", {"admin", "revoke", "an na"}), 2, "'an na' is not the name of a user");
  expect(cli("anna", {"admin", "list", "bob"}), 2, "admin has no command 'list'");
  expect(cli("anna", {"admin", "log-level", "loud"}), 2, "a log level is debug, info, warn or");
  expect(cli("rita", {"admin", "log-level", "debug"}), 4, "set_log_level needs the role admin");
  const Ended level = cli("anna", {"--output", "json", "admin", "log-level", "debug"});
  EXPECT_EQ(level.status, 0) << level.output;
  EXPECT_EQ(level.output, "{\"log_level\":\"debug\"}\n");
  EXPECT_THAT(server_->process().output(), HasSubstr("\"anna\" has set the log level to debug"));
  const Ended json = cli("anna", {"--output", "json", "admin", "revoke", "rita"});
  EXPECT_EQ(json.status, 0) << json.output;
  EXPECT_EQ(json.output, "{\"revoked\":\"rita\",\"sessions_ended\":0}\n");
  Server open({"--memory", "32MiB"});
  expect(kvclient(open.address(), {"admin", "revoke", "rita"}), 4, "the server has no users");
}

TEST_F(UsersTest, EachOfSeveralServersAnswersForItself) {
  serve();
  Server second({"--memory", "32MiB", "--users", users_});
  const std::string list = server_->address() + "," + second.address();
  const auto revoke = [&](const std::string& user, const std::string& name) {
    return run_program({RKV_KVCLIENT, "--servers", list, "--timeout", "3s", "--user", user,
                        "--secret-file", scratch_.path(user), "admin", "revoke", name});
  };
  const Ended both = revoke("anna", "bob");
  EXPECT_EQ(both.status, 0) << both.output;
  for (const std::string& address : {server_->address(), second.address()})
    EXPECT_THAT(both.output, HasSubstr(address + ": revoked bob, sessions ended: 0"));
  const Ended forbidden = revoke("rita", "anna");
  EXPECT_EQ(forbidden.status, 4) << forbidden.output;
  for (const std::string& address : {server_->address(), second.address()})
    EXPECT_THAT(forbidden.output, HasSubstr(address + ": permission denied (the server says: "
                                                      "revoke needs the role admin"));
  second.kill();
  const Ended partial = revoke("anna", "rita");
  EXPECT_EQ(partial.status, 3) << partial.output;
  EXPECT_THAT(partial.output, AllOf(HasSubstr(server_->address() + ": revoked rita"),
                                    HasSubstr("kvclient: " + second.address() + ": ")));
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
  ASSERT_EQ(chmod(users_.c_str(), 0644), 0);
  expect(starts(users_), 3, "chmod 600");
  EXPECT_EQ(refusal_of(options("anna", "short"), Code::kInvalidArgument).find("the option user"),
            0U);
  EXPECT_EQ(
      refusal_of(options("", secret("bob")), Code::kInvalidArgument).find("the option secret"), 0U);
}

}  // namespace
}  // namespace rkv::testing_support
