// kvclient doctor: ports, MTU, GIDs and the ways to servers, as facts made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/client/cli/doctor_facts.h"

namespace rkv::cli {
namespace {

MachineFacts with_port_down() {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].ports[0].active = false;
  facts.verbs.devices[0].ports[0].state = "down";
  facts.verbs.chosen.reset();
  facts.verbs.choice_error = "no RDMA device has an active port";
  facts.trial.reset();
  return facts;
}

TEST(Doctor, APortThatIsDown) {
  MachineFacts facts = with_port_down();
  facts.system.interfaces[1].up = false;
  auto findings = judge(facts);
  expect(findings, Level::kError, "port", "eth0 is down", "`ip link set dev eth0 up`");
  EXPECT_FALSE(has(findings, "gid")) << "it follows from the port";
  EXPECT_FALSE(has(findings, "mtu"));
  facts.system.interfaces[1].up = true;
  expect(judge(facts), Level::kError, "port", "down", "cable");
  facts.system.interfaces.pop_back();
  expect(judge(facts), Level::kError, "port", "network namespace", "--network host");
  facts.verbs.devices[0].ports[0].ethernet = false;
  expect(judge(facts), Level::kError, "port", "InfiniBand", "opensm");
}

TEST(Doctor, AnUnusedSecondPortIsAWarning) {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].ports.push_back({.number = 2, .state = "down", .ethernet = true});
  EXPECT_EQ(one(judge(facts), "port", "rxe0/2").level, Level::kWarning);
  EXPECT_EQ(one(judge(facts), "port", "rxe0/1").level, Level::kOk);
}

TEST(Doctor, APortThatIsAskedFor) {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].ports.push_back({.number = 2, .state = "down", .ethernet = true});
  Asked what = asked();
  what.port = 2;
  auto findings = judge(facts, what);
  EXPECT_EQ(one(findings, "port", "rxe0/2").level, Level::kError);
  EXPECT_EQ(one(findings, "port", "rxe0/1").level, Level::kOk);
  EXPECT_EQ(exit_code_of(findings), kFailed);
  what.port = 1;
  EXPECT_EQ(one(judge(facts, what), "port", "rxe0/2").level, Level::kWarning);
  facts.verbs.devices[0].ports[0].active = false;
  findings = judge(facts, what);
  EXPECT_EQ(one(findings, "port", "rxe0/1").level, Level::kError);
  EXPECT_EQ(one(findings, "port", "rxe0/2").level, Level::kWarning) << "nobody asked for it";
  what.port = 3;
  expect(judge(healthy(), what), Level::kOk, "mtu", "4096", "");
  const Finding missing = one(judge(healthy(), what), "port", "");
  EXPECT_EQ(missing.level, Level::kError);
  EXPECT_EQ(missing.found, "no device has a port 3");
  what.device = "rxe0";
  EXPECT_EQ(one(judge(healthy(), what), "port", "rxe0").found, "there is no port 3");
}

TEST(Doctor, MtuAgainstTheInterfaces) {
  MachineFacts facts = healthy();
  auto& port = facts.verbs.devices[0].ports[0];
  port.active_mtu_bytes = 1024;
  expect(judge(facts), Level::kWarning, "mtu", "4200",
         "`ip link set dev eth0 mtu 4199 && ip link set dev eth0 mtu 4200`");
  facts.system.interfaces[1].mtu_bytes = 1500;
  const Finding usual = one(judge(facts), "mtu");
  EXPECT_EQ(usual.level, Level::kOk) << "1024 is all that 1500 allow";
  EXPECT_TRUE(says(usual.found, "eth0 has 1500")) << usual.found;
  facts.system.interfaces[1].mtu_bytes = 4191;  // 4096 and headers of 96 want 4192
  port.active_mtu_bytes = 2048;
  EXPECT_EQ(one(judge(facts), "mtu").level, Level::kOk);
  facts.system.interfaces[1].mtu_bytes = 4192;
  EXPECT_EQ(one(judge(facts), "mtu").level, Level::kWarning);
  port.ethernet = false;
  EXPECT_EQ(one(judge(facts), "mtu").level, Level::kOk) << "InfiniBand's is its own";
}

TEST(Doctor, GidsThatDoNotWork) {
  MachineFacts facts = healthy();
  rdma::GidFacts& gid = facts.verbs.chosen->gid;
  gid = facts.verbs.devices[0].gids[0];
  expect(judge(facts), Level::kWarning, "gid", "fe80::1", "`ip addr add 192.0.2.1/24 dev eth0`");
  gid = facts.verbs.devices[0].gids[1];
  gid.type = "RoCE v1";
  gid.roce_v2 = false;
  expect(judge(facts), Level::kWarning, "gid", "RoCE v1", "--gid-index");
  gid.netdev.clear();
  expect(judge(facts), Level::kError, "gid", "network namespace", "--network host");
}

// As soft-iWARP: its GID is the hardware address.
TEST(Doctor, AnIwarpDeviceNeedsNoGidAndNoAtomics) {
  MachineFacts facts = healthy();
  rdma::DeviceFacts& device = facts.verbs.devices[0];
  device.iwarp = true;
  device.soft_roce = false;
  device.atomics = rdma::Atomicity::kNone;
  device.gids = {{.port = 1, .index = 0, .type = "iWARP", .address = "5254:77::"}};
  facts.verbs.chosen->gid = device.gids[0];
  facts.trial->failed_swap = rdma::FailedSwap::kNotTried;
  const auto findings = judge(facts);
  expect(findings, Level::kOk, "port", "Ethernet (iWARP)", "");
  expect(findings, Level::kOk, "gid", "without GIDs", "");
  expect(findings, Level::kWarning, "atomics", "none", "no action needed");
  EXPECT_TRUE(std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.level == Level::kError; }));
  facts.trial->error = Error{.code = Code::kTimeout};
  expect(judge(facts), Level::kError, "loopback", "", "TCP");
}

TEST(Doctor, NoGidIsChosen) {
  MachineFacts facts = healthy();
  facts.verbs.chosen.reset();
  facts.trial.reset();
  facts.verbs.choice_error = "the port has no GID at this index";
  Asked what = asked();
  what.gid_index = 7;
  auto findings = judge(facts, what);
  EXPECT_EQ(one(findings, "gid", "").level, Level::kError);
  EXPECT_TRUE(says(one(findings, "gid", "").advice, "`--gid-index N` with one of those below"));
  EXPECT_TRUE(says(one(findings, "gid", "rxe0/1").found, "of 2: 0 RoCE v2 fe80::1 eth0; 1 "));
  // The index is there: it is something else.
  what.gid_index = 1;
  EXPECT_TRUE(says(one(judge(facts, what), "gid", "").advice, "above"));
  facts.verbs.choice_error = "rdma_get_devices: no RDMA device";
  findings = judge(facts);
  EXPECT_TRUE(says(one(findings, "gid", "").advice, "above"));
  EXPECT_FALSE(says(one(findings, "gid", "").advice, "ip addr")) << "it has one";
  EXPECT_TRUE(says(one(findings, "gid", "rxe0/1").found, "192.0.2.1"));
  facts.verbs.devices[0].gids.clear();
  facts.verbs.choice_error = "the port has no GID";
  findings = judge(facts);
  EXPECT_TRUE(says(one(findings, "gid", "").advice, "`ip addr add 192.0.2.1/24 dev eth0`"));
  EXPECT_TRUE(says(one(findings, "gid", "rxe0/1").found, "none"));
}

TEST(Doctor, APathThatIsNotUsedIsNotSaidToBe) {
  MachineFacts facts = healthy();
  facts.verbs.chosen->to = "127.0.0.1:7471";
  facts.verbs.chosen->leads = false;
  facts.verbs.chosen->why = rdma::ChosenPath::Why::kRank;
  const std::string found = one(judge(facts), "gid").found;
  EXPECT_TRUE(says(found, "would be used")) << found;
  EXPECT_TRUE(says(found, "no device has a route to 127.0.0.1:7471")) << found;
  EXPECT_FALSE(says(found, "is used")) << found;
  EXPECT_TRUE(says(found, "of 2:")) << found;
  // A missing answer does not mean that no device leads there.
  facts.verbs.chosen->why_not = Error{.code = Code::kTimeout, .call = "rdma_resolve_addr"};
  const std::string unknown = one(judge(facts), "gid").found;
  EXPECT_TRUE(says(unknown, "no route to 127.0.0.1:7471 was found: rdma_resolve_addr")) << unknown;
  EXPECT_FALSE(says(unknown, "no device leads")) << unknown;
}

TEST(Doctor, WaysToSeveralServers) {
  MachineFacts facts = healthy();
  auto& device = facts.verbs.devices[0];
  rdma::PortFacts second = device.ports[0];
  second.number = 2;
  device.ports.push_back(second);
  rdma::GidFacts other = device.gids[1];
  other.port = 2;
  other.index = 0;
  other.address = "198.51.100.1";
  device.gids.push_back(other);
  EXPECT_TRUE(says(one(judge(facts), "gid", "rxe0/2").found, "not used; of 1: 0 RoCE v2 198."));
  rdma::ChosenPath path = *facts.verbs.chosen;
  path.to = "192.0.2.10:7471";
  facts.verbs.others.push_back(path);
  path.to = "203.0.113.1:7471";
  path.leads = false;
  facts.verbs.others.push_back(path);
  path.to = "198.51.100.9:7471";
  path.leads = true;
  path.port = 2;
  path.gid = other;
  facts.verbs.others.push_back(path);
  const auto findings = judge(facts);
  std::vector<std::string> first;
  for (const Finding& finding : findings) {
    if (finding.check == "gid" && finding.subject == "rxe0/1") first.push_back(finding.found);
  }
  ASSERT_EQ(first.size(), 2U);
  EXPECT_TRUE(says(first[0], "is used for 192.0.2.9:7471, 192.0.2.10:7471:")) << first[0];
  EXPECT_TRUE(says(first[1], "no device has a route to 203.0.113.1:7471")) << first[1];
  EXPECT_FALSE(says(first[1], "of 2:")) << "listed once";
  EXPECT_TRUE(says(one(findings, "gid", "rxe0/2").found, "is used for 198.51.100.9:7471:"));
}

TEST(Doctor, TheReasonForAGidIsTold) {
  MachineFacts facts = healthy();
  facts.verbs.chosen->why = rdma::ChosenPath::Why::kAsked;
  EXPECT_TRUE(says(one(judge(facts), "gid").found, "as requested"));
  facts.verbs.chosen->why = rdma::ChosenPath::Why::kRank;
  EXPECT_TRUE(says(one(judge(facts), "gid").found, "IPv4 before IPv6"));
  auto& gids = facts.verbs.devices[0].gids;
  gids.resize(20, gids.back());
  EXPECT_TRUE(says(one(judge(facts), "gid").found, "of 20:"));
  EXPECT_TRUE(one(judge(facts), "gid").found.ends_with("..."));
}

}  // namespace
}  // namespace rkv::cli
