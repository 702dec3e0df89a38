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

}  // namespace
}  // namespace rkv::cli
