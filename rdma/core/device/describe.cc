#include "rkv/rdma/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <string_view>
#include <utility>

#include "rkv/rdma/error.h"
#include "rkv/rdma/gid_choice.h"
#include "rkv/rdma/transitions.h"

namespace rkv::rdma {
namespace {

template <class... T>
void add(std::string& out, fmt::format_string<T...> format, T&&... values) {
  fmt::format_to(std::back_inserter(out), format, std::forward<T>(values)...);
}

std::string joined(std::initializer_list<std::pair<bool, std::string_view>> parts,
                   std::string_view none) {
  std::string out;
  for (const auto& [present, text] : parts) {
    if (!present) continue;
    if (!out.empty()) out += ", ";
    out += text;
  }
  return out.empty() ? std::string(none) : out;
}

std::string bytes_text(std::uint64_t bytes) {
  if (~bytes == 0) return "any size";
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

const char* text_of(AtomicScope scope) {
  switch (scope) {
    case AtomicScope::kNone:
      return "none";
    case AtomicScope::kDevice:
      return "among this device's queue pairs";
    case AtomicScope::kGlobal:
      return "with the processor too";
  }
  return "?";
}

std::string types_text(QueuePairTypes types) {
  return joined({{types.has(IBV_QPT_RC), "RC"},
                 {types.has(IBV_QPT_UC), "UC"},
                 {types.has(IBV_QPT_UD), "UD"},
                 {types.has(IBV_QPT_RAW_PACKET), "raw packets"}},
                "none");
}

std::string ops_text(OdpOps ops) {
  return joined({{has(ops, OdpOps::kSend), "send"},
                 {has(ops, OdpOps::kReceive), "receive"},
                 {has(ops, OdpOps::kWrite), "write"},
                 {has(ops, OdpOps::kRead), "read"},
                 {has(ops, OdpOps::kAtomic), "atomic"},
                 {has(ops, OdpOps::kSharedReceive), "shared receive"}},
                "none");
}

std::string sizes_text(AtomicSizes sizes) {
  return joined({{has(sizes, AtomicSizes::k4), "4"},
                 {has(sizes, AtomicSizes::k8), "8"},
                 {has(sizes, AtomicSizes::k16), "16"}},
                "none");
}

// Queue pairs of vendors may have one completion queue.
std::string handle_text(const ibv_cq* queue) {
  return queue == nullptr ? "none" : std::to_string(queue->handle);
}

// Indents each line of `text` by two columns.
std::string indented(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    add(out, "  {}\n", text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}

template <class T>
std::string described(const char* what, const Result<T>& found) {
  return found ? describe(*found) : fmt::format("{}: {}\n", what, to_string(found.error()));
}

void add_port(std::string& out, const Device& device, std::uint8_t number) {
  const Result<PortAttributes> port = device.port(number);
  if (!port) {
    add(out, "port {}: {}\n", number, to_string(port.error()));
    return;
  }
  add(out, "{}\n", describe(*port));
  if (const auto choice = choose_gid(device, number)) {
    out += indented(choice->explain());
  } else {
    add(out, "  no GID to use: {}\n", to_string(choice.error()));
  }
}

}  // namespace

std::string describe(const Device& device) {
  std::string out = describe(device.info()) + "\n";
  add(out, "  opened as descriptor {}, asynchronous events on {}\n", device.raw()->cmd_fd,
      device.async_fd());
  const Result<DeviceAttributes> limits = device.attributes();
  out += indented(described("limits", limits));
  out += indented(described("beyond the basic verbs", query_extended(device)));
  for (unsigned port = 1; limits && port <= limits->port_count; ++port) {
    std::string text;
    add_port(text, device, static_cast<std::uint8_t>(port));
    out += indented(text);
  }
  return out;
}

std::string describe(const DeviceInfo& info) {
  std::string out =
      fmt::format("device {}: {}, {}, GUID {} (OUI {:06x})", info.name, info.node_type,
                  to_string(info.transport), info.guid.to_string(), info.guid.oui());
  if (info.kernel_index) add(out, ", index {}", *info.kernel_index);
  if (info.open_error) {
    add(out, ", cannot be opened: {}", to_string(*info.open_error));
  } else {
    add(out, ", {} port{}", info.ports.size(), info.ports.size() == 1 ? "" : "s");
  }
  return out;
}

std::string describe(const DeviceAttributes& limits) {
  std::string out;
  add(out, "firmware: {}{}\n", limits.firmware, limits.soft_roce ? " (SoftRoCE)" : "");
  add(out, "regions: {}, at most: {}\n", limits.max_regions, bytes_text(limits.max_region_bytes));
  add(out, "queue pairs: {}, with {} requests of {} pieces\n", limits.max_queue_pairs,
      limits.max_work_requests, limits.max_sge);
  add(out, "completion queues: {}, of {} entries\n", limits.max_completion_queues,
      limits.max_completions);
  add(out, "shared receive queues: {}, of {} receives\n", limits.max_srq,
      limits.max_srq_work_requests);
  add(out, "READs and atomics outstanding: {} as initiator, {} as responder\n",
      limits.max_reads_as_initiator, limits.max_reads_as_responder);
  add(out, "memory windows: {}\n", limits.max_windows);
  add(out, "atomics: {}\n", text_of(limits.atomics));
  return out;
}

std::string describe(const ExtendedAttributes& a) {
  std::string out;
  if (a.has_clock() || a.has_timestamps()) {
    add(out, "clock: {} kHz, time stamps of {} bits\n", a.clock_khz,
        std::popcount(a.timestamp_mask));
  } else {
    out += "clock: none\n";
  }
  add(out, "packet pacing: {}\n",
      a.has_packet_pacing() ? fmt::format("{} to {} kbit/s, for {}", a.pacing.min_kbps,
                                          a.pacing.max_kbps, types_text(a.pacing.types))
                            : "none");
  add(out, "device memory: {}\n",
      a.has_device_memory() ? bytes_text(a.device_memory_bytes) : "none");
  add(out, "PCI atomics, bytes: add {}, swap {}, compare and swap {}\n",
      sizes_text(a.pci_atomics.fetch_add), sizes_text(a.pci_atomics.swap),
      sizes_text(a.pci_atomics.compare_swap));
  if (a.has_on_demand_paging()) {
    add(out, "paging on demand{}: RC {}; UC {}; UD {}; XRC {}\n",
        a.on_demand.implicit ? " (also implicit)" : "", ops_text(a.on_demand.rc),
        ops_text(a.on_demand.uc), ops_text(a.on_demand.ud), ops_text(a.on_demand.xrc));
  } else {
    out += "paging on demand: none\n";
  }
  add(out, "raw packets: {}\n",
      joined({{has(a.raw_packets, RawPacketCaps::kVlanStripping), "VLAN stripping"},
              {has(a.raw_packets, RawPacketCaps::kScatterChecksum), "frame checksum kept"},
              {has(a.raw_packets, RawPacketCaps::kIpChecksum), "IP checksum"},
              {has(a.raw_packets, RawPacketCaps::kDelayDrop), "delayed drop"}},
             "none"));
  add(out, "segmentation: {}\n",
      a.has_segmentation() ? fmt::format("{} for {}", bytes_text(a.segmentation.max_bytes),
                                         types_text(a.segmentation.types))
                           : "none");
  add(out, "spreading over receive queues: {}\n",
      a.has_spreading()
          ? fmt::format("{} tables of {}", a.spreading.max_tables, a.spreading.max_table_entries)
          : "none");
  add(out, "tag matching: {}\n",
      a.has_tag_matching() ? fmt::format("{} tags", a.tag_matching.max_tags) : "none");
  add(out, "moderation: {}\n",
      a.has_moderation() ? fmt::format("up to {} completions or {} us", a.moderation.max_count,
                                       a.moderation.max_period_us)
                         : "none");
  return out;
}

std::string describe(const PortAttributes& port) {
  std::string out = fmt::format("port {}: {}, {}, MTU {} of {}", port.number, to_string(port.state),
                                port.ethernet ? "Ethernet" : "InfiniBand", port.active_mtu_bytes,
                                port.max_mtu_bytes);
  if (port.speed_gbps != 0) {
    add(out, ", {} Gbit/s ({}x {})", port.speed_gbps, port.lanes, port.speed_name);
  }
  if (!port.ethernet) add(out, ", LID {}", port.lid);
  add(out, ", {} GIDs, messages of at most {}", port.gid_count, bytes_text(port.max_message_bytes));
  return out;
}

std::string describe(const GidEntry& gid) {
  std::string out = fmt::format("GID {} of port {}: {}, {}", gid.index, gid.port, gid.to_string(),
                                to_string(gid.type));
  if (!gid.netdev.empty()) add(out, ", {}", gid.netdev);
  return out;
}

std::string describe(AccessFlags access) {
  return joined({{has(access, AccessFlags::kLocalWrite), "local write"},
                 {has(access, AccessFlags::kRemoteRead), "remote read"},
                 {has(access, AccessFlags::kRemoteWrite), "remote write"},
                 {has(access, AccessFlags::kRemoteAtomic), "remote atomic"},
                 {has(access, AccessFlags::kBindWindow), "bind window"},
                 {has(access, AccessFlags::kZeroBased), "zero based"},
                 {has(access, AccessFlags::kOnDemand), "on demand"},
                 {has(access, AccessFlags::kHugePages), "huge pages"},
                 {has(access, AccessFlags::kRelaxedOrdering), "relaxed ordering"}},
                "local read only");
}

std::string describe(const ProtectionDomain& domain) {
  return fmt::format("protection domain {} on {}", domain.raw()->handle, domain.device().name());
}

std::string describe(WcField fields) {
  std::string out;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const auto one = static_cast<WcField>(std::uint64_t{1} << bit);
    if (has(fields, one)) add(out, "{}{}", out.empty() ? "" : ", ", to_string(one));
  }
  return out.empty() ? "none" : out;
}

std::string describe(const CompletionQueue& queue) {
  return fmt::format(
      "completion queue {}: {} entries, {}, reads {}{}", queue.raw()->handle, queue.entries(),
      queue.extended() ? "extended" : "plain", describe(queue.fields()),
      queue.raw()->channel != nullptr ? fmt::format(", descriptor {}", queue.raw()->channel->fd)
                                      : "");
}

std::string describe_queue_pair(const ibv_qp* queue_pair) {
  ibv_qp_attr now{};
  ibv_qp_init_attr made{};
  constexpr int kMask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU |
                        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                        IBV_QP_MIN_RNR_TIMER | IBV_QP_DEST_QPN | IBV_QP_PORT | IBV_QP_CAP;
  // The verb does not modify the queue pair; its signature merely lacks const.
  const Status asked =
      from_errno("ibv_query_qp", ibv_query_qp(const_cast<ibv_qp*>(queue_pair), &now, kMask, &made));
  if (!asked) {
    return fmt::format("queue pair {}: {}\n", queue_pair->qp_num, to_string(asked.error()));
  }
  std::string out =
      fmt::format("queue pair {} ({}, {}), handle {}, on {}\n", queue_pair->qp_num,
                  to_string(queue_pair->qp_type), to_string(now.qp_state), queue_pair->handle,
                  ibv_get_device_name(queue_pair->context->device));
  add(out, "  protection domain {}, completion queues {} for sends and {} for receives\n",
      queue_pair->pd->handle, handle_text(queue_pair->send_cq), handle_text(queue_pair->recv_cq));
  add(out, "  {} sends of {} pieces, {} bytes inline; ", made.cap.max_send_wr,
      made.cap.max_send_sge, made.cap.max_inline_data);
  if (made.srq != nullptr) {
    add(out, "shared receive queue {}\n", queue_pair->srq->handle);
  } else {
    add(out, "{} receives of {} pieces\n", made.cap.max_recv_wr, made.cap.max_recv_sge);
  }
  const auto access = static_cast<AccessFlags>(now.qp_access_flags);
  add(out, "  peers may: {}\n",
      access == AccessFlags::kNone ? "send messages only" : describe(access));
  if (now.dest_qp_num != 0) {
    GidEntry peer;
    std::ranges::copy(now.ah_attr.grh.dgid.raw, peer.gid.begin());
    add(out, "  port {} to queue pair {} at {}, MTU {}\n", now.port_num, now.dest_qp_num,
        now.ah_attr.is_global != 0 ? peer.to_string() : fmt::format("LID {}", now.ah_attr.dlid),
        128U << static_cast<unsigned>(now.path_mtu));
    add(out, "  service level {}", now.ah_attr.sl);
    if (now.ah_attr.is_global != 0) {
      add(out, ", traffic class {:#x}, hop limit {}, flow label {:#x}",
          now.ah_attr.grh.traffic_class, now.ah_attr.grh.hop_limit, now.ah_attr.grh.flow_label);
    }
    out += "\n";
    add(out, "  READs: {} as initiator, {} as responder; timeout {}, retries {}, RNR {} times {}\n",
        now.max_rd_atomic, now.max_dest_rd_atomic, now.timeout, now.retry_cnt, now.rnr_retry,
        now.min_rnr_timer);
  }
  return out;
}

}  // namespace rkv::rdma
