// Facts made up for the tests of kvclient doctor, and what is asked of its findings.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "client/cli/doctor.h"

namespace rkv::cli {

using Level = Finding::Level;
using rdma::SystemFacts;

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

// A machine with one SoftRoCE device on which everything is well.
inline MachineFacts healthy() {
  MachineFacts facts;
  facts.shared_memory = "shm: /run/rkv";
  facts.timers = {.ack_timeout_ns = 67'108'864,
                  .retries = 6,
                  .rnr_timer_us = 640,
                  .rnr_retries = rdma::ConnectionTimers::kForever};
  SystemFacts& system = facts.system;
  system.devices = {{.name = "rxe0", .netdev = "eth0"}};
  system.has_uverbs = system.has_cm = system.has_rxe = true;
  system.could_have_rxe = system.could_have_cm = system.knows_modules = true;
  system.files = {
      {.path = "/dev/infiniband/uverbs0", .state = rdma::FileState::kUsable, .device = "rxe0"},
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
                        .own_address = "192.0.2.1",
                        .to = "192.0.2.9:7471"};
  rdma::Trial trial;
  trial.connected = true;
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
inline MachineFacts without_device() {
  MachineFacts facts = healthy();
  facts.system.devices.clear();
  facts.system.files.clear();
  facts.system.has_uverbs = facts.system.has_cm = facts.system.has_rxe = false;
  facts.verbs = {};
  facts.trial.reset();
  return facts;
}

inline Asked asked(Transport transport = Transport::kAuto) {
  return {.transport = transport, .client_bytes = 4 * kMiB, .large_bytes = 32 * kMiB};
}

inline std::vector<Finding> judge(const MachineFacts& facts, const Asked& what = asked()) {
  std::vector<Finding> findings = judge_machine(facts, what);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.advice.empty(), finding.level == Level::kOk) << to_line(finding);
    EXPECT_FALSE(finding.found.empty()) << finding.check;
    EXPECT_EQ(to_line(finding).find('\n'), std::string::npos) << to_line(finding);
  }
  return findings;
}

// The only finding of that check and, where given, that subject.
inline Finding one(const std::vector<Finding>& findings, const std::string& check,
                   const std::string& subject = "*") {
  std::vector<Finding> found;
  for (const Finding& finding : findings) {
    if (finding.check == check && (subject == "*" || finding.subject == subject))
      found.push_back(finding);
  }
  EXPECT_EQ(found.size(), 1U) << check;
  return found.empty() ? Finding{} : found.front();
}

inline bool has(const std::vector<Finding>& findings, const std::string& check) {
  return std::ranges::find(findings, check, &Finding::check) != findings.end();
}

inline std::size_t count(const std::vector<Finding>& findings, Level level) {
  return static_cast<std::size_t>(std::ranges::count(findings, level, &Finding::level));
}

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// An error or a warning of that check, whose text and advice name these.
inline void expect(const std::vector<Finding>& findings, Level level, const std::string& check,
                   const std::string& found, const std::string& advice) {
  const Finding finding = one(findings, check);
  EXPECT_EQ(finding.level, level) << to_line(finding);
  EXPECT_TRUE(says(finding.found, found)) << to_line(finding);
  EXPECT_TRUE(says(finding.advice, advice)) << to_line(finding);
}

}  // namespace rkv::cli
