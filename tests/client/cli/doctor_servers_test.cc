// kvclient doctor: servers, as facts made up and over the fake transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/client/cli/doctor_facts.h"
#include "tests/client/client_fixture.h"

namespace rkv::cli {
namespace {

ServerFindings good_server() {
  return {.address = "192.0.2.1:7471",
          .transport = "verbs: rxe0, as asked",
          .version = "0.1.0",
          .epoch = 0xABC,
          .read = {.count = 200, .p50_us = 20, .p99_us = 60},
          .ping = {.count = 200, .p50_us = 80, .p99_us = 200}};
}

TEST(Doctor, AServerWhoseDeviceIsLost) {
  ServerFindings facts = good_server();
  facts.closed = {{.transport = "verbs", .state = "waiting", .why = "the device was removed"}};
  expect(judge_server(facts, true), Level::kError, "endpoint",
         "verbs is waiting: the device was removed", "rdma link");
  facts.closed.front().state = "port-down";
  expect(judge_server(facts, true), Level::kError, "endpoint", "verbs is port-down", "cable");
  EXPECT_EQ(exit_code_of(judge_server(facts, true)), kFailed);
}

TEST(Doctor, AServerThatAnswers) {
  const auto findings = judge_server(good_server(), true);
  EXPECT_EQ(findings.size(), 3U);
  EXPECT_EQ(count(findings, Level::kOk), 3U);
  EXPECT_TRUE(says(one(findings, "server").found, "0.1.0, epoch 0000000000000abc; verbs: rxe0"));
  EXPECT_TRUE(says(one(findings, "read").found, "p50 20.0 us, p99 60.0 us"));
  EXPECT_TRUE(says(one(findings, "ping").found, "p50 80.0 us"));
}

TEST(Doctor, AServerThatIsNotReached) {
  ServerFindings facts{.address = "192.0.2.1:7471"};
  facts.error = Error{.code = Code::kUnreachable, .text = "nobody listens"};
  expect(judge_server(facts, true), Level::kError, "server", "nobody listens",
         "`kvserver --listen 192.0.2.1:7471 --users FILE`");
  EXPECT_EQ(exit_code_of(judge_server(facts, true)), kNoServer);
  // Nobody has said that there is one.
  EXPECT_EQ(one(judge_server(facts, false), "server").level, Level::kWarning);
  facts.error = Error{.code = Code::kInternal};
  EXPECT_EQ(one(judge_server(facts, false), "server").level, Level::kWarning);
  EXPECT_EQ(one(judge_server(facts, true), "server").level, Level::kError);
  for (const Code code : {Code::kVersionMismatch, Code::kTimeout, Code::kNoDevice,
                          Code::kPermission, Code::kBusy, Code::kOutOfMemory, Code::kInternal}) {
    facts.error = Error{.code = code};
    EXPECT_FALSE(one(judge_server(facts, true), "server").advice.empty()) << to_string(code);
  }
  facts.error = Error{.code = Code::kTimeout};
  EXPECT_FALSE(says(one(judge_server(facts, true), "server").advice, "4791")) << "shared memory";
  facts.over_verbs = true;
  EXPECT_TRUE(says(one(judge_server(facts, true), "server").advice, "4791"));
  facts.error = Error{.code = Code::kBusy};
  facts.refusal = "all 64 places are taken";
  expect(judge_server(facts, false), Level::kError, "server", "all 64 places", "--max-clients");
}

TEST(Doctor, AServerWhoseNameIsUnknown) {
  ServerFindings facts{.address = "no-such-host:7471"};
  facts.error = Error{.code = Code::kUnreachable, .call = "getaddrinfo", .text = "no such name"};
  const Finding finding = one(judge_server(facts, true), "server");
  EXPECT_TRUE(says(finding.advice, "`getent hosts no-such-host`")) << finding.advice;
  EXPECT_FALSE(says(finding.advice, "kvserver --listen")) << finding.advice;
}

TEST(Doctor, AServerThatIsConnectedAndSilent) {
  ServerFindings facts = good_server();
  facts.connected = true;
  facts.over_verbs = true;
  facts.error = Error{.code = Code::kTimeout};
  facts.ping = {};
  const auto findings = judge_server(facts, false);
  const Finding server = one(findings, "server");
  EXPECT_EQ(server.level, Level::kError) << "somebody is there, named or not";
  EXPECT_TRUE(says(server.found, "connected, but does not answer requests")) << server.found;
  EXPECT_FALSE(says(server.advice, "4791")) << server.advice;
  EXPECT_TRUE(says(one(findings, "read").found, "p50 20.0 us"));
  EXPECT_FALSE(has(findings, "ping"));
}

using Silence = ClientTest;  // a server of the fake transport

TEST_F(Silence, IsNoReasonNotToRead) {
  server_.answer = [](const Request& request) -> std::optional<Response> {
    if (request.opcode == Opcode::kStats) return std::nullopt;
    return Response{};
  };
  ServerFindings facts;
  ask_client(client(), facts);
  EXPECT_TRUE(facts.connected);
  ASSERT_TRUE(facts.error);
  EXPECT_EQ(facts.error->code, Code::kTimeout);
  EXPECT_EQ(facts.read.count, 200U);
  EXPECT_TRUE(facts.read.error.empty()) << facts.read.error;
  EXPECT_EQ(facts.ping.count, 0U);
}

TEST_F(Silence, IsNotWhatAGoodServerKeeps) {
  const std::string text = R"({"version": "0.1.0", "epoch": 7})";
  server_.answer = [&](const Request& request) {
    Response response;
    if (request.opcode == Opcode::kStats) response.value = as_bytes(text);
    return response;
  };
  ServerFindings facts;
  ask_client(client(), facts);
  EXPECT_FALSE(facts.error);
  EXPECT_EQ(facts.version, "0.1.0");
  EXPECT_EQ(facts.epoch, 7U);
  EXPECT_EQ(facts.read.count + facts.ping.count, 400U);
}

TEST(Doctor, AServerWhosePacketsGetLost) {
  ServerFindings facts = good_server();
  facts.read.p99_us = 70'000;
  expect(judge_server(facts, true), Level::kWarning, "read", "p99 70000.0 us", "rdma statistic");
  facts.read.error = "timeout";
  facts.read.count = 3;
  expect(judge_server(facts, true), Level::kError, "read", "after 3", "dmesg");
}

TEST(Doctor, TwoAddressesOfOneServer) {
  std::vector<ServerFindings> list = {good_server(), good_server()};
  list[1].address = "other:7471";
  const auto findings = judge_list(list);
  expect(findings, Level::kError, "servers", "192.0.2.1:7471", "list");
  EXPECT_EQ(one(findings, "servers").subject, "other:7471");
  list[1].epoch = 2;
  EXPECT_TRUE(judge_list(list).empty());
  list[0].epoch = list[1].epoch = 0;  // neither was reached
  EXPECT_TRUE(judge_list(list).empty());
}

ServerFindings primary_of_three() {
  ServerFindings facts = good_server();
  facts.group = {.name = "g1",
                 .primary = "n1",
                 .address = "192.0.2.1:7471",
                 .term = 12,
                 .members = {{.name = "n1", .address = "192.0.2.1:7471", .in_sync = true},
                             {.name = "n2", .address = "192.0.2.2:7471", .in_sync = true},
                             {.name = "n3", .address = "192.0.2.3:7471", .in_sync = true}}};
  return facts;
}

TEST(Doctor, AGroupThatIsWhole) {
  std::vector<ServerFindings> list(3, primary_of_three());
  list[1].address = "192.0.2.2:7471";  // a backup: the primary has answered
  list[2].address = "192.0.2.3:7471";
  EXPECT_EQ(judge_server(list[0], true).size(), 3U);
  const auto backup = judge_server(list[1], true);
  ASSERT_EQ(backup.size(), 1U) << "the primary was measured";
  EXPECT_EQ(backup.front().level, Level::kOk);
  EXPECT_EQ(backup.front().found,
            "a backup of group g1: it directs clients to the primary, n1 (192.0.2.1:7471)");
  EXPECT_TRUE(judge_list(list).empty()) << "one process, and no error";
  const auto findings = judge_groups(list);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().level, Level::kOk);
  EXPECT_EQ(findings.front().found,
            "the primary is n1 (192.0.2.1:7471) in term 12, 3 of 3 replicas in sync");
  EXPECT_TRUE(judge_groups(std::vector{good_server()}).empty()) << "in no group";
}

TEST(Doctor, OneListIsOfTheServersOfOneGroup) {
  std::vector<ServerFindings> list(2, primary_of_three());
  list[1].address = "192.0.2.2:7471";
  for (ServerFindings& server : list)
    server.has_stats = true;
  EXPECT_TRUE(judge_one_group(list).empty());
  list[1].epoch = 8;  // another primary of the same group
  EXPECT_TRUE(judge_one_group(list).empty());
  list[1].group->number = 9;  // of the same name
  const auto findings = judge_one_group(list);
  expect(findings, Level::kError, "servers", "another group than 192.0.2.1:7471", "off the list");
  EXPECT_EQ(one(findings, "servers").subject, "192.0.2.2:7471");
  list[1].has_stats = false;
  EXPECT_TRUE(judge_one_group(list).empty()) << "nothing is known of it";
  list[1].has_stats = true;
  list[1].group.reset();
  expect(judge_one_group(list), Level::kError, "servers", "of no group, but", "off the list");
  std::swap(list[0].group, list[1].group);
  expect(judge_one_group(list), Level::kError, "servers", "is of none", "off the list");
  list[1].group.reset();
  expect(judge_one_group(list), Level::kError, "servers", "of no group, as", "--servers");
  list[1].epoch = list[0].epoch;
  EXPECT_TRUE(judge_one_group(list).empty()) << "one process: judge_list() says so";
}

TEST(Doctor, TheSameAddressTwiceIsAnErrorInAGroupToo) {
  const std::vector<ServerFindings> list(2, primary_of_three());
  expect(judge_list(list), Level::kError, "servers", "the same process", "remove one");
}

TEST(Doctor, AGroupThatIsNotWhole) {
  ServerFindings facts = primary_of_three();
  facts.group->members[1].in_sync = false;
  facts.group->members[1].connected = true;
  auto findings = judge_groups(std::span(&facts, 1));
  expect(findings, Level::kWarning, "replica", "connected to the primary", "catches up");
  EXPECT_EQ(one(findings, "replica").subject, "n2 (192.0.2.2:7471)");
  EXPECT_EQ(count(findings, Level::kWarning), 1U);
  facts.group->members[1].unreachable = true;
  findings = judge_groups(std::span(&facts, 1));
  expect(findings, Level::kWarning, "replica", "cannot be reached", "open the port");
  EXPECT_EQ(count(findings, Level::kWarning), 1U);
  facts.group->members[1].unreachable = false;
  facts.group->members[1].in_sync = true;
  facts.group->members[2].in_sync = false;
  expect(judge_groups(std::span(&facts, 1)), Level::kWarning, "replica", "not connected", "`ps`");
  facts.group->members[1].in_sync = false;
  findings = judge_groups(std::span(&facts, 1));
  EXPECT_EQ(count(findings, Level::kWarning), 3U);
  EXPECT_TRUE(says(findings.back().found, "only one copy")) << findings.back().found;
  EXPECT_EQ(exit_code_of(findings), kDone) << "warnings";
}

TEST(Doctor, AGroupWithoutEtcd) {
  ServerFindings facts = primary_of_three();
  facts.group->etcd_silent_s = 2;
  EXPECT_EQ(count(judge_groups(std::span(&facts, 1)), Level::kWarning), 0U);
  facts.group->etcd_silent_s = 40;
  expect(judge_groups(std::span(&facts, 1)), Level::kWarning, "etcd", "for 40 s", "etcdctl");
  facts.group->etcd_silent_s = 0;
  facts.group->etcd_refuses_s = 40;
  expect(judge_groups(std::span(&facts, 1)), Level::kWarning, "etcd", "stored no change for 40 s",
         "alarm list");
}

TEST(Doctor, ABackupThatKnowsNoPrimary) {
  ServerFindings facts{.address = "192.0.2.2:7471"};
  facts.error = Error{.code = Code::kNotPrimary, .text = "the server is a backup of its group"};
  expect(judge_server(facts, true), Level::kError, "server", "a backup", "etcdctl");
}

TEST_F(Silence, AGroupIsReadFromWhatTheServerSays) {
  std::string text = R"({"version": "0.1.0", "epoch": 7, "group": {"name": "g", "primary": "a",
      "primary_address": "h:1", "term": 5, "etcd_silent_seconds": 1.5, "members": [
        {"name": "a", "address": "h:1", "in_sync": true}, {"name": 3, "in_sync": "yes"}, 8]}})";
  server_.answer = [&](const Request& request) {
    Response response;
    if (request.opcode == Opcode::kStats) response.value = as_bytes(text);
    return response;
  };
  ServerFindings facts{.address = "h:2"};
  ask_client(client(), facts);
  ASSERT_TRUE(facts.group);
  EXPECT_EQ(facts.group->name, "g");
  EXPECT_EQ(facts.group->term, 5U);
  EXPECT_EQ(facts.group->etcd_silent_s, 1.5);
  ASSERT_EQ(facts.group->members.size(), 2U);
  EXPECT_TRUE(facts.group->members[0].in_sync);
  EXPECT_EQ(facts.group->members[1].name, "");
  EXPECT_FALSE(facts.group->members[1].in_sync);
  EXPECT_TRUE(was_directed(facts));
  for (const char* odd : {R"({"group": 7})", R"({"group": {"members": {}, "term": -1}})"}) {
    text = odd;
    ServerFindings strange;
    ask_client(client(), strange);
    EXPECT_FALSE(strange.error) << odd;
    if (strange.group) {
      EXPECT_EQ(strange.group->term, 0U);
    }
  }
}

}  // namespace
}  // namespace rkv::cli
