// kvclient doctor: what is made of facts, each fault as facts made up. What the facts of a machine
// are is tested in tests/rdma/diagnosis_test.cc, the whole on real faults in tests/system.
#include "client/cli/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace rkv::cli {
namespace {

using Level = Finding::Level;
using rdma::SystemFacts;

constexpr std::size_t kMiB = std::size_t{1} << 20;

// A machine with one SoftRoCE device on which everything is well.
MachineFacts healthy() {
  MachineFacts facts;
  facts.shared_memory = "shm: /run/rkv";
  facts.timers = {.ack_timeout_ns = 67'108'864,
                  .retries = 6,
                  .rnr_timer_us = 640,
                  .rnr_retries = rdma::ConnectionTimers::kForever};
  SystemFacts& system = facts.system;
  system.devices = {{.name = "rxe0", .netdev = "eth0"}};
  system.has_uverbs = system.has_cm = system.has_rxe = true;
  system.could_have_rxe = system.could_have_cm = true;
  system.files = {{.path = "/dev/infiniband/uverbs0", .state = rdma::FileState::kUsable},
                  {.path = "/dev/infiniband/rdma_cm", .state = rdma::FileState::kUsable}};
  system.namespaces = rdma::NamespaceMode::kShared;
  system.interfaces = {{.name = "lo", .mtu_bytes = 65536, .up = true, .loopback = true},
                       {.name = "eth0", .mtu_bytes = 4200, .up = true}};
  system.route_interface = "eth0";
  system.transparent_huge_pages = "madvise";
  const rdma::GidFacts v6 = {.port = 1,
                             .index = 0,
                             .type = "RoCE v2",
                             .address = "fe80::1",
                             .netdev = "eth0",
                             .roce_v2 = true,
                             .link_local = true};
  const rdma::GidFacts v4 = {.port = 1,
                             .index = 1,
                             .type = "RoCE v2",
                             .address = "192.0.2.1",
                             .netdev = "eth0",
                             .roce_v2 = true,
                             .ipv4 = true};
  facts.verbs.devices = {{.name = "rxe0",
                          .soft_roce = true,
                          .ports = {{.number = 1,
                                     .state = "active",
                                     .active = true,
                                     .ethernet = true,
                                     .speed_gbps = 2.5,
                                     .active_mtu_bytes = 4096,
                                     .max_mtu_bytes = 4096}},
                          .gids = {v6, v4},
                          .atomics = rdma::Atomicity::kDevice,
                          .reads_as_initiator = 128,
                          .reads_as_responder = 128}};
  facts.verbs.chosen = {.device = "rxe0",
                        .port = 1,
                        .gid = v4,
                        .why = rdma::ChosenPath::Why::kRoute,
                        .own_address = "192.0.2.1"};
  rdma::Trial trial;
  trial.request_bytes = 56;
  trial.reply_bytes = 196;
  trial.reads_in_flight = 128;
  trial.reads = 200;
  trial.p50_ns = 21'000;
  trial.p99_ns = 40'000;
  trial.failed_swap = rdma::FailedSwap::kStoresBack;
  trial.swaps = 12;
  facts.trial = trial;
  return facts;
}

// No device, and nothing that a device brings.
MachineFacts without_device() {
  MachineFacts facts = healthy();
  facts.system.devices.clear();
  facts.system.files.clear();
  facts.system.has_uverbs = facts.system.has_cm = facts.system.has_rxe = false;
  facts.verbs = {};
  facts.trial.reset();
  return facts;
}

Asked asked(Transport transport = Transport::kAuto) {
  return {.transport = transport, .client_bytes = 4 * kMiB, .large_bytes = 32 * kMiB};
}

std::vector<Finding> judge(const MachineFacts& facts, const Asked& what = asked()) {
  std::vector<Finding> findings = judge_machine(facts, what);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.advice.empty(), finding.level == Level::kOk) << to_line(finding);
    EXPECT_FALSE(finding.found.empty()) << finding.check;
    EXPECT_EQ(to_line(finding).find('\n'), std::string::npos) << to_line(finding);
  }
  return findings;
}

// The only finding of that check and, where given, that subject.
Finding one(const std::vector<Finding>& findings, const std::string& check,
            const std::string& subject = "*") {
  std::vector<Finding> found;
  for (const Finding& finding : findings) {
    if (finding.check == check && (subject == "*" || finding.subject == subject))
      found.push_back(finding);
  }
  EXPECT_EQ(found.size(), 1U) << check;
  return found.empty() ? Finding{} : found.front();
}

bool has(const std::vector<Finding>& findings, const std::string& check) {
  return std::ranges::find(findings, check, &Finding::check) != findings.end();
}

std::size_t count(const std::vector<Finding>& findings, Level level) {
  return static_cast<std::size_t>(std::ranges::count(findings, level, &Finding::level));
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// An error or a warning of that check, whose text and advice name these.
void expect(const std::vector<Finding>& findings, Level level, const std::string& check,
            const std::string& found, const std::string& advice) {
  const Finding finding = one(findings, check);
  EXPECT_EQ(finding.level, level) << to_line(finding);
  EXPECT_TRUE(says(finding.found, found)) << to_line(finding);
  EXPECT_TRUE(says(finding.advice, advice)) << to_line(finding);
}

// ------------------------------------------------------------------------------- the machine

TEST(Doctor, AHealthyMachineHasOnlyGoodLines) {
  const auto findings = judge(healthy());
  EXPECT_EQ(count(findings, Level::kOk), findings.size());
  EXPECT_EQ(exit_code_of(findings), kDone);
  for (const char* check : {"devices", "modules", "device_files", "namespace", "port", "mtu", "gid",
                            "memlock", "atomics", "read_depth", "timers", "private_data",
                            "loopback", "failed_swap", "huge_pages", "shared_memory"}) {
    EXPECT_TRUE(has(findings, check)) << check;
  }
  EXPECT_TRUE(says(one(findings, "gid").found, "1 RoCE v2 192.0.2.1 eth0 is used: from where"));
  EXPECT_TRUE(says(one(findings, "gid").found, "of 2: 0 RoCE v2 fe80::1 eth0; 1"));
  EXPECT_TRUE(says(one(findings, "timers").found, "67 ms, 6 times"))
      << one(findings, "timers").found;
  EXPECT_TRUE(says(one(findings, "loopback").found, "p50 21.0 us, p99 40.0 us"));
}

TEST(Doctor, WithoutADeviceSharedMemoryIsLeft) {
  const MachineFacts facts = without_device();
  const auto findings = judge(facts);
  expect(findings, Level::kWarning, "devices", "shared memory",
         "`modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0`");
  EXPECT_EQ(exit_code_of(findings), kDone);
  EXPECT_FALSE(has(findings, "modules")) << "they come with a device";
  // Asked for, it is an error.
  expect(judge(facts, asked(Transport::kVerbs)), Level::kError, "devices", "no RDMA device",
         "rdma link add");
  Asked named = asked();
  named.device = "mlx5_0";
  EXPECT_EQ(exit_code_of(judge(facts, named)), kFailed);
}

TEST(Doctor, SoftRoceIsAdvisedOnlyWhereTheKernelHasIt) {
  MachineFacts facts = without_device();
  facts.system.could_have_rxe = false;
  const Finding finding = one(judge(facts), "devices");
  EXPECT_FALSE(says(finding.advice, "rdma link add")) << finding.advice;
  EXPECT_TRUE(says(finding.advice, "linux-image-amd64")) << finding.advice;
  // Without a default route: the first interface that is up and no loopback.
  facts.system.could_have_rxe = true;
  facts.system.route_interface.clear();
  facts.system.interfaces = {{.name = "lo", .up = true, .loopback = true},
                             {.name = "eth3"},
                             {.name = "dummy0", .up = true}};
  EXPECT_TRUE(says(one(judge(facts), "devices").advice, "netdev dummy0`"));
}

TEST(Doctor, ADeviceThatIsNotThereIsNamedWithThoseThatAre) {
  Asked what = asked();
  what.device = "mlx9_9";
  const Finding finding = one(judge(healthy(), what), "devices", "mlx9_9");
  EXPECT_EQ(finding.level, Level::kError);
  EXPECT_TRUE(says(finding.found, "rxe0")) << finding.found;
  EXPECT_TRUE(says(finding.advice, "`--device rxe0`")) << finding.advice;
}

TEST(Doctor, ADeviceThatLibibverbsDoesNotSee) {
  MachineFacts facts = healthy();
  facts.verbs = {};
  facts.trial.reset();
  expect(judge(facts), Level::kError, "devices", "rxe0", "ibverbs-providers");
}

TEST(Doctor, ADeviceThatCannotBeOpened) {
  MachineFacts facts = healthy();
  facts.verbs.devices = {{.name = "rxe0", .open_error = "ibv_open_device: Permission denied"}};
  facts.verbs.chosen.reset();
  facts.trial.reset();
  facts.system.files[0].state = rdma::FileState::kForbidden;
  const auto findings = judge(facts);
  EXPECT_EQ(one(findings, "devices", "rxe0").level, Level::kError);
  EXPECT_TRUE(says(one(findings, "device_files", "/dev/infiniband/uverbs0").advice,
                   "`chmod a+rw /dev/infiniband/uverbs0`"));
  EXPECT_FALSE(has(findings, "atomics")) << "nothing is known of it";
}

TEST(Doctor, ModulesThatAreNotLoaded) {
  MachineFacts facts = healthy();
  facts.system.has_cm = facts.had_cm = false;
  facts.verbs.chosen.reset();
  facts.verbs.choice_error = "rdma_get_devices: no RDMA device";
  facts.trial.reset();
  const auto findings = judge(facts);
  const Finding finding = one(findings, "modules", "rdma_ucm");
  EXPECT_EQ(finding.level, Level::kError);
  EXPECT_TRUE(says(finding.advice, "`modprobe rdma_ucm`")) << finding.advice;
  EXPECT_EQ(one(findings, "modules", "ib_uverbs").level, Level::kOk);
  EXPECT_EQ(exit_code_of(findings), kFailed);
  facts.system.could_have_cm = false;
  EXPECT_TRUE(says(one(judge(facts), "modules", "rdma_ucm").advice, "on the host"));
}

TEST(Doctor, AModuleThatWasLoadedByItsFirstUseIsWell) {
  MachineFacts facts = healthy();
  facts.had_cm = false;
  const Finding finding = one(judge(facts), "modules", "rdma_ucm");
  EXPECT_EQ(finding.level, Level::kOk);
  EXPECT_TRUE(says(finding.found, "now")) << finding.found;
}

TEST(Doctor, DeviceFilesThatAreMissing) {
  MachineFacts facts = healthy();
  facts.system.files[1].state = rdma::FileState::kMissing;
  const Finding finding = one(judge(facts), "device_files", "/dev/infiniband/rdma_cm");
  EXPECT_EQ(finding.level, Level::kError);
  EXPECT_TRUE(says(finding.advice, "--device /dev/infiniband")) << finding.advice;
}

TEST(Doctor, NamespacesOfTheirOwn) {
  MachineFacts facts = healthy();
  facts.system.namespaces = rdma::NamespaceMode::kExclusive;
  EXPECT_EQ(one(judge(facts), "namespace").level, Level::kOk) << "the device is in this one";
  facts = without_device();
  facts.system.namespaces = rdma::NamespaceMode::kExclusive;
  expect(judge(facts), Level::kWarning, "namespace", "exclusive", "`rdma system set netns shared`");
  facts.system.namespaces = rdma::NamespaceMode::kUnknown;
  EXPECT_FALSE(has(judge(facts), "namespace"));
}

MachineFacts with_port_down() {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].ports[0].active = false;
  facts.verbs.devices[0].ports[0].state = "down";
  facts.verbs.chosen.reset();
  facts.verbs.choice_error = "no RDMA device with an active port";
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

TEST(Doctor, MtuAgainstTheInterfaces) {
  MachineFacts facts = healthy();
  auto& port = facts.verbs.devices[0].ports[0];
  port.active_mtu_bytes = 1024;
  expect(judge(facts), Level::kWarning, "mtu", "4200", "ip link set dev eth0 down");
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
  facts.verbs.chosen.reset();
  facts.verbs.choice_error = "the port has no GID";
  expect(judge(facts), Level::kError, "gid", "the port has no GID", "ip addr add");
}

TEST(Doctor, TheReasonForAGidIsTold) {
  MachineFacts facts = healthy();
  facts.verbs.chosen->why = rdma::ChosenPath::Why::kAsked;
  EXPECT_TRUE(says(one(judge(facts), "gid").found, "as asked"));
  facts.verbs.chosen->why = rdma::ChosenPath::Why::kRank;
  EXPECT_TRUE(says(one(judge(facts), "gid").found, "IPv4 before IPv6"));
  auto& gids = facts.verbs.devices[0].gids;
  gids.resize(20, gids.back());
  EXPECT_TRUE(says(one(judge(facts), "gid").found, "of 20:"));
  EXPECT_TRUE(one(judge(facts), "gid").found.ends_with("..."));
}

TEST(Doctor, LockedMemory) {
  MachineFacts facts = healthy();
  facts.system.memlock_bytes = 0;
  facts.system.memlock_most_bytes = 0;
  expect(judge(facts), Level::kError, "memlock", "0 bytes",
         "`prlimit --memlock=unlimited --pid $$`");
  facts.system.memlock_most_bytes = SystemFacts::kUnlimited;
  expect(judge(facts), Level::kError, "memlock", "4.0 MiB", "`ulimit -l unlimited`");
  facts.system.memlock_bytes = 4 * kMiB;
  expect(judge(facts), Level::kWarning, "memlock", "32.0 MiB", "LimitMEMLOCK");
  facts.system.memlock_bytes = 36 * kMiB;
  expect(judge(facts), Level::kWarning, "memlock", "--memory", "LimitMEMLOCK");
  facts.system.memlock_bytes = 1024 * kMiB;
  EXPECT_EQ(one(judge(facts), "memlock").level, Level::kOk);
  facts.system.memlock_bytes = 0;
  facts.system.locks_any = true;
  EXPECT_EQ(one(judge(facts), "memlock").level, Level::kOk) << "CAP_IPC_LOCK";
  // Without a device nothing is registered.
  MachineFacts without = without_device();
  without.system.memlock_bytes = 0;
  EXPECT_EQ(one(judge(without), "memlock").level, Level::kWarning);
}

TEST(Doctor, WhatTheDeviceCanDo) {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].atomics = rdma::Atomicity::kNone;
  facts.verbs.devices[0].reads_as_responder = 1;
  facts.system.transparent_huge_pages = "never";
  const auto findings = judge(facts);
  expect(findings, Level::kWarning, "atomics", "none", "nothing needs to be done");
  expect(findings, Level::kWarning, "read_depth", "1 as server", "max_qp_rd_atom");
  expect(findings, Level::kWarning, "huge_pages", "never", "transparent_hugepage/enabled");
  EXPECT_EQ(exit_code_of(findings), kDone);
  facts.verbs.devices[0].atomics = rdma::Atomicity::kMachine;
  facts.system.huge_pages = facts.system.free_huge_pages = 16;
  EXPECT_EQ(one(judge(facts), "atomics").level, Level::kOk);
  EXPECT_EQ(one(judge(facts), "huge_pages").level, Level::kOk);
}

TEST(Doctor, ATrialThatFailsSaysAtWhatStep) {
  MachineFacts facts = healthy();
  rdma::Trial& trial = *facts.trial;
  trial = {};
  trial.step = "registering memory";
  trial.error = Error{.code = Code::kOutOfMemory, .text = "the limit is too low"};
  const auto findings = judge(facts);
  expect(findings, Level::kError, "loopback", "registering memory failed", "ulimit -l");
  EXPECT_FALSE(has(findings, "private_data")) << "it did not come so far";
  EXPECT_FALSE(has(findings, "failed_swap"));
  trial.step = "connecting to itself";
  trial.error = Error{.code = Code::kTimeout};
  expect(judge(facts), Level::kError, "loopback", "connecting", "4791");
  trial.error = Error{.code = Code::kInternal};
  expect(judge(facts), Level::kError, "loopback", "connecting", "dmesg");
}

TEST(Doctor, PrivateDataThatDoesNotArriveWhole) {
  MachineFacts facts = healthy();
  facts.trial->request_bytes = 24;
  expect(judge(facts), Level::kError, "private_data", "24 bytes", "firmware");
}

TEST(Doctor, WhatAFailedSwapDoesIsToldAndHarmless) {
  MachineFacts facts = healthy();
  EXPECT_TRUE(says(one(judge(facts), "failed_swap").found, "stores the old value back"));
  facts.trial->failed_swap = rdma::FailedSwap::kLeavesIt;
  EXPECT_TRUE(says(one(judge(facts), "failed_swap").found, "undid no store"));
  EXPECT_TRUE(says(one(judge(facts), "failed_swap").found, "up to Linux 6.10 may"));
  facts.verbs.devices[0].soft_roce = false;
  EXPECT_FALSE(says(one(judge(facts), "failed_swap").found, "Linux 6.10"));
}

TEST(Doctor, OnlySharedMemoryWhenThatIsAskedFor) {
  MachineFacts facts = without_device();
  const auto findings = judge(facts, asked(Transport::kShm));
  EXPECT_EQ(findings.size(), 2U);
  EXPECT_EQ(count(findings, Level::kOk), 2U);
  facts.shared_memory_error = "the directory belongs to somebody else";
  expect(judge(facts, asked(Transport::kShm)), Level::kError, "shared_memory", "somebody else",
         "`RKV_SHM_DIR`");
  expect(judge(facts), Level::kWarning, "shared_memory", "somebody else", "`RKV_SHM_DIR`");
  EXPECT_FALSE(has(judge(facts, asked(Transport::kVerbs)), "shared_memory"));
}

// ------------------------------------------------------------------------------- the servers

ServerFacts good_server() {
  return {.address = "192.0.2.1:7471",
          .transport = "verbs: rxe0, as asked",
          .version = "0.1.0",
          .epoch = 0xABC,
          .read = {.count = 200, .p50_us = 20, .p99_us = 60},
          .ping = {.count = 200, .p50_us = 80, .p99_us = 200}};
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
  ServerFacts facts{.address = "192.0.2.1:7471"};
  facts.error = Error{.code = Code::kUnreachable, .text = "nobody listens"};
  expect(judge_server(facts, true), Level::kError, "server", "nobody listens",
         "`kvserver --listen 192.0.2.1:7471`");
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
  facts.error = Error{.code = Code::kBusy};
  facts.refusal = "all 64 places are taken";
  expect(judge_server(facts, false), Level::kError, "server", "all 64 places", "--max-clients");
}

TEST(Doctor, AServerWhosePacketsGetLost) {
  ServerFacts facts = good_server();
  facts.read.p99_us = 70'000;
  expect(judge_server(facts, true), Level::kWarning, "read", "p99 70000.0 us", "rdma statistic");
  facts.read.error = "timeout";
  facts.read.count = 3;
  expect(judge_server(facts, true), Level::kError, "read", "after 3", "dmesg");
}

TEST(Doctor, TwoAddressesOfOneServer) {
  std::vector<ServerFacts> list = {good_server(), good_server()};
  list[1].address = "other:7471";
  const auto findings = judge_list(list);
  expect(findings, Level::kError, "servers", "192.0.2.1:7471", "list");
  EXPECT_EQ(one(findings, "servers").subject, "other:7471");
  list[1].epoch = 2;
  EXPECT_TRUE(judge_list(list).empty());
  list[0].epoch = list[1].epoch = 0;  // neither was reached
  EXPECT_TRUE(judge_list(list).empty());
}

TEST(Doctor, ALineHasLevelCheckSubjectAndAdvice) {
  EXPECT_EQ(to_line({.check = "port",
                     .subject = "rxe0/1",
                     .level = Level::kError,
                     .found = "down",
                     .advice = "`up`"}),
            "error    port rxe0/1: down -> `up`");
  EXPECT_EQ(to_line({.check = "memlock", .subject = "", .found = "no limit"}),
            "ok       memlock: no limit");
}

}  // namespace
}  // namespace rkv::cli
