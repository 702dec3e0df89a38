// kvclient doctor: what is made of facts, each fault as facts made up. Here: devices, modules,
// files, namespaces. What the facts of a machine are is tested in
// tests/rdma/diagnosis/diagnosis_test.cc, the whole on real faults in tests/system.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/client/cli/doctor_facts.h"

namespace rkv::cli {
namespace {

TEST(Doctor, AHealthyMachineHasOnlyGoodLines) {
  const auto findings = judge(healthy());
  EXPECT_EQ(count(findings, Level::kOk), findings.size());
  EXPECT_EQ(exit_code_of(findings), kDone);
  for (const char* check : {"devices", "modules", "device_files", "namespace", "port", "mtu", "gid",
                            "memlock", "atomics", "read_depth", "timers", "private_data",
                            "loopback", "failed_swap", "huge_pages", "shared_memory"}) {
    EXPECT_TRUE(has(findings, check)) << check;
  }
  EXPECT_TRUE(says(one(findings, "gid").found, "1 RoCE v2 192.0.2.1 eth0 is used: the route"));
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
  // A container does not have the host's list of modules.
  facts.system.knows_modules = false;
  const Finding unknown = one(judge(facts), "devices");
  EXPECT_FALSE(says(unknown.advice, "has no rdma_rxe")) << unknown.advice;
  EXPECT_TRUE(says(unknown.advice,
                   "on the host, as root, `modprobe rdma_rxe && rdma link add "
                   "rxe0 type rxe netdev INTERFACE`"))
      << unknown.advice;
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

// A host with two adapters, of which this container has been given the first.
MachineFacts with_one_of_two() {
  MachineFacts facts = healthy();
  facts.system.devices.push_back({.name = "mlx5_1"});
  facts.system.files.push_back(
      {.path = "/dev/infiniband/uverbs1", .state = rdma::FileState::kMissing, .device = "mlx5_1"});
  return facts;
}

TEST(Doctor, FilesOfDevicesThatAreNotMeant) {
  MachineFacts facts = with_one_of_two();
  auto findings = judge(facts);
  const std::string spare = "/dev/infiniband/uverbs1";
  EXPECT_EQ(one(findings, "device_files", spare).level, Level::kWarning) << "another can be used";
  EXPECT_TRUE(says(one(findings, "device_files", spare).advice, "--device " + spare));
  EXPECT_EQ(one(findings, "devices").level, Level::kOk) << "its provider is not what is missing";
  EXPECT_EQ(exit_code_of(findings), kDone);
  Asked what = asked();
  what.device = "rxe0";
  EXPECT_EQ(count(judge(facts, what), Level::kOk), judge(facts, what).size()) << "of no interest";
  what.device = "mlx5_1";
  findings = judge(facts, what);
  EXPECT_EQ(one(findings, "device_files", spare).level, Level::kError);
  EXPECT_EQ(count(findings, Level::kError), 2U) << "and that it cannot be used";
  EXPECT_FALSE(std::ranges::any_of(findings, [](const Finding& finding) {
    return says(finding.found, "no RDMA device has this name");
  }));
}

TEST(Doctor, NoDeviceFileAtAll) {
  MachineFacts facts = with_one_of_two();
  facts.system.files[0].state = facts.system.files[1].state = rdma::FileState::kMissing;
  facts.verbs = {};
  facts.trial.reset();
  const auto findings = judge(facts);
  expect(findings, Level::kError, "devices", "rxe0, mlx5_1", "device file");
  const Finding finding = one(findings, "device_files");
  EXPECT_EQ(finding.level, Level::kError);
  EXPECT_TRUE(says(finding.subject, "uverbs0, ") && says(finding.subject, "uverbs1"))
      << to_line(finding);
  EXPECT_TRUE(says(finding.advice, "`--device /dev/infiniband`")) << finding.advice;
}

TEST(Doctor, NamespacesOfTheirOwn) {
  MachineFacts facts = healthy();
  facts.system.namespaces = rdma::NamespaceMode::kExclusive;
  EXPECT_EQ(one(judge(facts), "namespace").level, Level::kOk) << "the device is in this one";
  facts = without_device();
  facts.system.namespaces = rdma::NamespaceMode::kExclusive;
  const Finding elsewhere = one(judge(facts), "namespace");
  EXPECT_EQ(elsewhere.level, Level::kWarning);
  EXPECT_TRUE(says(elsewhere.advice, "`--network host`")) << elsewhere.advice;
  EXPECT_TRUE(says(elsewhere.advice, "`rdma dev set DEVICE netns NAME`")) << elsewhere.advice;
  // The kernel refuses it as soon as there is a second network namespace.
  EXPECT_FALSE(says(elsewhere.advice, "rdma system set")) << elsewhere.advice;
  facts.system.namespaces = rdma::NamespaceMode::kUnknown;
  EXPECT_FALSE(has(judge(facts), "namespace"));
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

TEST(Doctor, TheDirectoriesOfSharedMemoryAndWhoseTheyAre) {
  MachineFacts facts = without_device();
  facts.shm_directories = {{.path = "/run/rkv"},
                           {.path = "/tmp/rkv-7", .exists = true, .owner = 7}};
  const std::string good = one(judge(facts), "shared_memory").found;
  EXPECT_TRUE(says(good, "/run/rkv does not exist; /tmp/rkv-7 belongs to user number 7")) << good;
  facts.shm_directories.back().owner = 8;
  facts.shm_directories.back().is_trusted = false;
  const Finding stranger = one(judge(facts), "shared_memory", "/tmp/rkv-7");
  EXPECT_EQ(stranger.level, Level::kWarning);
  EXPECT_TRUE(says(stranger.found, "another user (number 8)")) << stranger.found;
  EXPECT_TRUE(says(stranger.advice, "`RKV_SHM_DIR`")) << stranger.advice;
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
