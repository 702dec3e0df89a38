// describe() for real objects, and extended features of devices.
#include "rkv/rdma/describe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "rkv/rdma/extended_device.h"
#include "rkv/rdma/gid_choice.h"
#include "tests/rdma/support/pair.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Expects a line that has `heading`, and after it all of `values` in this order.
void expect_line(const std::string& text, const std::string& heading,
                 const std::vector<std::string>& values) {
  std::size_t at = text.find(heading);
  ASSERT_NE(at, std::string::npos) << text << "lacks " << heading;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  at = heading.size();
  for (const std::string& value : values) {
    at = line.find(value, at);
    ASSERT_NE(at, std::string::npos) << '"' << line << "\" lacks " << value;
    at += value.size();
  }
}
template <class... T>
std::vector<std::string> texts(const T&... values) {
  return {fmt::format("{}", values)...};
}

TEST(DeviceDescriptions, TellEverything) {
  const Device device = need(Device::open_first_active());
  const std::string text = describe(device);
  std::fputs(text.c_str(), stdout);
  const DeviceInfo info = device.info();
  expect_line(text, "device " + info.name,
              texts(info.node_type, to_string(info.transport), info.guid.to_string(),
                    info.kernel_index.value(), info.ports.size()));
  const DeviceAttributes limits = need(device.attributes());
  expect_line(text, "firmware:", texts(limits.firmware));
  expect_line(text, "regions:", texts(limits.max_regions));
  expect_line(text, "queue pairs:",
              texts(limits.max_queue_pairs, limits.max_work_requests, limits.max_sge));
  expect_line(text,
              "completion queues:", texts(limits.max_completion_queues, limits.max_completions));
  expect_line(text, "shared receive queues:", texts(limits.max_srq, limits.max_srq_work_requests));
  expect_line(text, "READs and atomics outstanding:",
              texts(limits.max_reads_as_initiator, limits.max_reads_as_responder));
  expect_line(text, "memory windows:", texts(limits.max_windows));
  const ExtendedAttributes extended = need(query_extended(device));
  expect_line(text, "clock:", {extended.has_clock() ? std::to_string(extended.clock_khz) : "none"});
  expect_line(text, "packet pacing:", {extended.has_packet_pacing() ? "kbit/s" : "none"});
  expect_line(text, "paging on demand", {extended.has_on_demand_paging() ? "RC" : "none"});
  expect_line(text, "moderation:", {extended.has_moderation() ? "completions" : "none"});
  for (std::uint8_t number = 1; number <= limits.port_count; ++number) {
    const PortAttributes port = need(device.port(number));
    expect_line(text, fmt::format("port {}: ", number),
                texts(to_string(port.state), port.ethernet ? "Ethernet" : "InfiniBand",
                      port.active_mtu_bytes, port.max_mtu_bytes, port.gid_count));
  }
  for (const GidEntry& gid : need(device.gid_table()))
    EXPECT_TRUE(contains(text, gid.to_string())) << gid.to_string();
}

TEST(DeviceInfos, HaveTypeTransportAndKernelIndex) {
  const Device device = need(Device::open_first_active());
  const DeviceInfo info = device.info();
  EXPECT_EQ(info.name, device.name());
  EXPECT_FALSE(info.guid.is_reserved());
  EXPECT_EQ(Guid::parse(info.guid.to_string()), info.guid);
  ASSERT_TRUE(info.kernel_index);
  EXPECT_GE(*info.kernel_index, 0);
  EXPECT_EQ(info.ports.size(), need(device.attributes()).port_count);
  if (need(device.attributes()).soft_roce) {
    EXPECT_EQ(info.node, NodeType::kChannelAdapter);
    EXPECT_EQ(info.transport, DeviceTransport::kInfiniBand);
    EXPECT_FALSE(info.iwarp);
  }
  const PortAttributes& port = info.ports.front();
  EXPECT_GT(port.lanes, 0U);
  EXPECT_STRNE(port.speed_name, "?");
}

TEST(ExtendedDevices, AnswerWithoutAny) {
  const Device device = need(Device::open_first_active());
  const ExtendedAttributes attributes = need(query_extended(device));
  EXPECT_EQ(attributes.port_count, need(device.attributes()).port_count);
  if (need(device.attributes()).soft_roce) {
    EXPECT_FALSE(attributes.has_clock() || attributes.has_device_memory() ||
                 attributes.has_packet_pacing() || attributes.has_moderation());
  }
}

TEST(RecommendedGids, AreThoseThatConnectionsUse) {
  const Device device = need(Device::open_first_active());
  const std::uint8_t port = need(device.first_active_port());
  const GidChoice choice = need(choose_gid(device, port));
  EXPECT_EQ(choice.chosen.gid, need(device.routable_gid(port)).gid);
  EXPECT_EQ(choice.others.size() + 1, need(device.gid_table()).size());
  EXPECT_TRUE(contains(choice.explain(), choice.chosen.to_string()));
  EXPECT_FALSE(choose_gid(device, port, {.netdev = "no_such_interface", .peer = {}}));
}

TEST(ObjectDescriptions, TellNumberStateTypeAndPeer) {
  Loopback loop;
  EXPECT_TRUE(contains(describe(loop.pd), loop.device.name()));
  const std::string queue = describe(loop.client.queue);
  EXPECT_TRUE(contains(queue, "byte length")) << queue;
  const std::string qp = describe(*loop.client.qp);
  std::fputs(qp.c_str(), stdout);
  EXPECT_TRUE(contains(qp, std::to_string(loop.client.qp->number()))) << qp;
  EXPECT_TRUE(contains(qp, "(RC, RTS)")) << qp;
  EXPECT_TRUE(contains(qp, "to queue pair " + std::to_string(loop.server.qp->number()))) << qp;
  auto srq = need(SharedReceiveQueue::create(loop.pd, {.length = 8}));
  auto blank =
      need(QueuePair::create(loop.pd, loop.client.queue, loop.client.queue, {.shared = &srq}));
  EXPECT_TRUE(contains(describe(blank), "RESET")) << describe(blank);
}

TEST(ObjectDescriptions, HaveTheHandlesOfTheKernel) {
  Loopback loop;
  const auto expect_handle = [](const std::string& text, const std::string& handle) {
    EXPECT_TRUE(contains(text, handle)) << text << "lacks " << handle;
  };
  expect_handle(describe(loop.device), fmt::format("descriptor {}", loop.device.raw()->cmd_fd));
  expect_handle(describe(loop.pd), fmt::format("domain {} on", loop.pd.raw()->handle));
  for (const CompletionQueue* queue : {&loop.client.queue, &loop.server.queue})
    expect_handle(describe(*queue), fmt::format("queue {}:", queue->raw()->handle));
  for (const QueuePair* qp : {&*loop.client.qp, &*loop.server.qp})
    expect_handle(describe(*qp), fmt::format("handle {}, on", qp->raw()->handle));
  EXPECT_NE(loop.client.queue.raw()->handle, loop.server.queue.raw()->handle);
  const auto srq = need(SharedReceiveQueue::create(loop.pd, {.length = 8, .sge = 2}));
  const auto qp =
      need(QueuePair::create(loop.pd, loop.client.queue, loop.server.queue, {.shared = &srq}));
  expect_handle(describe(qp),
                fmt::format("domain {}, completion queues {} for sends and {} for receives\n",
                            loop.pd.raw()->handle, loop.client.queue.raw()->handle,
                            loop.server.queue.raw()->handle));
  expect_handle(describe(qp), fmt::format("shared receive queue {}\n", srq.raw()->handle));
}

}  // namespace
}  // namespace rkv::rdma
