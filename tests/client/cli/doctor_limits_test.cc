// kvclient doctor: limits, abilities, what a trial has shown, as facts made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/client/cli/doctor_facts.h"

namespace rkv::cli {
namespace {

TEST(Doctor, LockedMemory) {
  MachineFacts facts = healthy();
  facts.system.memlock_bytes = 0;
  facts.system.memlock_most_bytes = 0;
  expect(judge(facts), Level::kError, "memlock", "0 bytes",
         "in this shell: `sudo prlimit --memlock=unlimited --pid $$`");
  facts.system.is_root = true;
  expect(judge(facts), Level::kError, "memlock", "0 bytes",
         "in this shell: `prlimit --memlock=unlimited --pid $$`");
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
  EXPECT_EQ(one(judge(without), "memlock").level, Level::kOk);
  EXPECT_EQ(one(judge(without, asked(Transport::kVerbs)), "memlock").level, Level::kOk);
}

TEST(Doctor, LockedMemoryForSeveralServers) {
  MachineFacts facts = healthy();
  Asked what = asked();
  what.servers = 3;
  facts.system.memlock_bytes = 12 * kMiB - 1;
  expect(judge(facts, what), Level::kError, "memlock", "a client of 3 servers registers 12.0 MiB",
         "ulimit -l");
  facts.system.memlock_bytes = 108 * kMiB - 1;
  expect(judge(facts, what), Level::kWarning, "memlock", "up to 96.0 MiB more", "ulimit -l");
  facts.system.memlock_bytes = 1024 * kMiB;
  EXPECT_EQ(one(judge(facts, what), "memlock").level, Level::kOk);
}

TEST(Doctor, WhatTheDeviceCanDo) {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].atomics = rdma::Atomicity::kNone;
  facts.verbs.devices[0].reads_as_responder = 1;
  facts.system.transparent_huge_pages = "never";
  const auto findings = judge(facts);
  expect(findings, Level::kWarning, "atomics", "none", "no action needed");
  expect(findings, Level::kWarning, "read_depth", "1 as server", "max_qp_rd_atom");
  expect(findings, Level::kWarning, "huge_pages", "never", "transparent_hugepage/enabled");
  EXPECT_EQ(exit_code_of(findings), kDone);
  facts.verbs.devices[0].atomics = rdma::Atomicity::kMachine;
  facts.system.huge_pages = 16;  // none of them free: a server has them
  EXPECT_EQ(one(judge(facts), "atomics").level, Level::kOk);
  EXPECT_EQ(one(judge(facts), "huge_pages").level, Level::kOk);
}

TEST(Doctor, TimersOfRoceAreNotSaidOfIwarp) {
  MachineFacts facts = healthy();
  facts.verbs.devices[0].iwarp = true;
  const Finding timers = one(judge(facts), "timers");
  EXPECT_TRUE(says(timers.found, "iWARP")) << timers.found;
  EXPECT_FALSE(says(timers.found, "receiver not ready")) << timers.found;
  // Each kind is said of a machine with both.
  facts.verbs.devices.push_back(healthy().verbs.devices[0]);
  facts.verbs.devices[1].name = "rxe1";
  std::vector<std::string> found;
  for (const Finding& finding : judge(facts)) {
    if (finding.check == "timers") found.push_back(finding.found);
  }
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(says(found[1], "67 ms, 6 times")) << found[1];
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
  facts.trial->request_bytes = 0;
  expect(judge(facts), Level::kError, "private_data", "0 bytes", "firmware");
  facts.trial->request_bytes = 56;
  facts.trial->reply_bytes = 0;
  expect(judge(facts), Level::kError, "private_data", "its reply 0", "firmware");
}

TEST(Doctor, WhatAFailedSwapDoesIsToldAndHarmless) {
  MachineFacts facts = healthy();
  EXPECT_TRUE(says(one(judge(facts), "failed_swap").found, "stores the old value back"));
  facts.trial->failed_swap = rdma::FailedSwap::kLeavesIt;
  EXPECT_TRUE(says(one(judge(facts), "failed_swap").found, "did not undo a store"));
  EXPECT_TRUE(says(one(judge(facts), "failed_swap").found, "up to Linux 6.2 may"));
  facts.verbs.devices[0].soft_roce = false;
  EXPECT_FALSE(says(one(judge(facts), "failed_swap").found, "Linux 6.2"));
}

}  // namespace
}  // namespace rkv::cli
