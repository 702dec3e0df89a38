// Lists this machine's RDMA devices: ports, limits, GIDs, and the GID that a connection by address
// uses. A machine without a device is not an error.
//
//   devinfo
#include <rkv/rdma/device.h>

#include <cinttypes>
#include <cstdio>

namespace {

using namespace rkv::rdma;

const char* text_of(AtomicScope scope) {
  switch (scope) {
    case AtomicScope::kGlobal:
      return "with the processor too";
    case AtomicScope::kDevice:
      return "among this device's queue pairs";
    case AtomicScope::kNone:
      break;
  }
  return "none";
}

void show(const PortAttributes& port) {
  std::printf("  port %u: %s, %s, MTU %u of %u, %.0f Gb/s\n", port.number,
              port.active() ? "active" : "down", port.ethernet ? "Ethernet" : "InfiniBand",
              port.active_mtu_bytes, port.max_mtu_bytes, port.speed_gbps);
}

rkv::Status show_opened(const DeviceInfo& info) {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open(info.name));
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes limits, device.attributes());
  std::printf("  firmware %s%s\n", limits.firmware.empty() ? "-" : limits.firmware.c_str(),
              limits.soft_roce ? ", SoftRoCE" : "");
  std::printf("  queue pairs %u of %u requests, completion queues of %u\n", limits.max_queue_pairs,
              limits.max_work_requests, limits.max_completions);
  std::printf("  READs outstanding: %u out, %u in; atomics: %s\n", limits.max_reads_as_initiator,
              limits.max_reads_as_responder, text_of(limits.atomics));
  std::printf("  paging on demand: %s, clock: %" PRIu64 " kHz\n",
              limits.on_demand_paging ? "yes" : "no", limits.core_clock_khz);
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> gids, device.gid_table());
  for (const GidEntry& gid : gids) {
    const auto chosen = device.routable_gid(gid.port);
    const bool is_it = chosen && chosen->index == gid.index;
    std::printf("  GID %u of port %u: %s, %s, %s%s\n", gid.index, gid.port, gid.to_string().c_str(),
                to_string(gid.type), gid.netdev.empty() ? "no interface" : gid.netdev.c_str(),
                is_it ? "  <- taken by default" : "");
  }
  return {};
}

rkv::Status run() {
  RKV_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, list_devices());
  std::printf("%zu device%s\n", devices.size(), devices.size() == 1 ? "" : "s");
  for (const DeviceInfo& info : devices) {
    std::printf("%s: %s%s, GUID %s\n", info.name.c_str(), info.node_type.c_str(),
                info.iwarp ? ", iWARP" : "", info.guid.to_string().c_str());
    if (info.open_error) {  // the other devices are still listed
      std::printf("  cannot be opened: %s\n", rkv::to_string(*info.open_error).c_str());
      continue;
    }
    for (const PortAttributes& port : info.ports)
      show(port);
    RKV_RETURN_IF_ERROR(show_opened(info));
  }
  return {};
}

}  // namespace

int main() {
  const rkv::Status done = run();
  if (!done) std::fprintf(stderr, "%s\n", rkv::to_string(done.error()).c_str());
  return done ? 0 : 1;
}
