// The part of rdma/diagnosis.h that asks the devices.
#include "rdma/diagnosis.h"

#include <ifaddrs.h>

#include <algorithm>
#include <memory>

#include "rdma/verbs/selection.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/queue_pair.h"

namespace rkv::rdma {
namespace {

bool is_link_local(const GidEntry& gid) {
  return gid.gid[0] == 0xFE && (gid.gid[1] & 0xC0) == 0x80;
}

GidFacts facts_of(const GidEntry& gid) {
  return {.port = gid.port,
          .index = gid.index,
          .type = to_string(gid.type),
          .address = gid.to_string(),
          .netdev = gid.netdev,
          .roce_v2 = gid.type == GidType::kRoceV2,
          .ipv4 = gid.is_ipv4(),
          .link_local = is_link_local(gid)};
}

PortFacts facts_of(const PortAttributes& port) {
  return {.number = port.number,
          .state = ibv_port_state_str(port.state),
          .active = port.active(),
          .ethernet = port.ethernet,
          .speed_gbps = port.speed_gbps,
          .active_mtu_bytes = port.active_mtu_bytes,
          .max_mtu_bytes = port.max_mtu_bytes};
}

Atomicity facts_of(AtomicScope scope) {
  switch (scope) {
    case AtomicScope::kGlobal:
      return Atomicity::kMachine;
    case AtomicScope::kDevice:
      return Atomicity::kDevice;
    case AtomicScope::kNone:
      break;
  }
  return Atomicity::kNone;
}

// What an opened device says of itself.
Status ask(const Device& device, DeviceFacts& facts) {
  RKV_ASSIGN_OR_RETURN(const DeviceAttributes attributes, device.attributes());
  facts.soft_roce = attributes.soft_roce;
  facts.atomics = facts_of(attributes.atomics);
  const ReadDepths depths = read_depths(ConnectionParameters{}, attributes);
  facts.reads_as_initiator = depths.initiator;
  facts.reads_as_responder = depths.responder;
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> gids, device.gid_table());
  for (const GidEntry& gid : gids)
    facts.gids.push_back(facts_of(gid));
  return {};
}

DeviceFacts facts_of(const DeviceInfo& info) {
  DeviceFacts facts{.name = info.name, .iwarp = info.iwarp};
  if (info.open_error) {
    facts.open_error = to_string(*info.open_error);
    return facts;
  }
  for (const PortAttributes& port : info.ports)
    facts.ports.push_back(facts_of(port));
  const auto device = Device::open(info.name);
  const Status asked = device ? ask(*device, facts) : Status(std::unexpected(device.error()));
  if (!asked) facts.open_error = to_string(asked.error());
  return facts;
}

// The local address that a connection to `address` starts from; "" where it has no route.
std::string route_from(const std::string& address, int within_ms) {
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, within_ms);
  const auto where = parse_host_port(address);
  if (!where) return {};
  const auto all = resolve(*where, deadline);
  if (!all || all->front().is_wildcard()) return {};
  SocketAddress peer = all->front();
  if (peer.port() == 0) peer.set_port(1);
  const auto connector = Connector::resolve(peer, {}, deadline);
  return connector ? connector->local_address().host() : std::string();
}

// Where librdmacm puts a connection from this address: a GID that is the address, of type v2 where
// there are both.
const GidFacts* gid_of_address(const DeviceFacts& device, std::uint8_t port,
                               const std::string& address) {
  const GidFacts* found = nullptr;
  for (const GidFacts& gid : device.gids) {
    if (gid.port != port || gid.address != address) continue;
    if (found == nullptr || (gid.roce_v2 && !found->roce_v2)) found = &gid;
  }
  return found;
}

// An address to listen on: the GID's own, or with InfiniBand one of the port's interface.
std::string own_address(const GidFacts& gid, const std::string& netdev) {
  const bool is_address = gid.roce_v2 && !gid.link_local;
  if (is_address) return gid.ipv4 ? gid.address : "[" + gid.address + "]";
  ifaddrs* raw = nullptr;
  if (netdev.empty() || getifaddrs(&raw) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || netdev != entry->ifa_name) continue;
    if (entry->ifa_addr->sa_family == AF_INET) return SocketAddress::from(entry->ifa_addr).host();
  }
  return {};
}

ChosenPath facts_of(const verbs::Selection& selected, const VerbsOptions& options,
                    const std::vector<DeviceFacts>& devices) {
  ChosenPath chosen{
      .device = selected.device.name(),
      .port = selected.port,
      .gid = facts_of(selected.gid),
      .why = options.gid_index >= 0 ? ChosenPath::Why::kAsked : ChosenPath::Why::kRank};
  const auto device = std::ranges::find(devices, chosen.device, &DeviceFacts::name);
  if (options.gid_index < 0 && !options.address.empty() && device != devices.end()) {
    const std::string from = route_from(options.address, options.find_ms);
    if (const GidFacts* gid = gid_of_address(*device, chosen.port, from)) {
      chosen.gid = *gid;
      chosen.why = ChosenPath::Why::kRoute;
    }
  }
  return chosen;
}

}  // namespace

VerbsFacts look_at_verbs(const VerbsOptions& options) {
  VerbsFacts facts;
  const auto listed = list_devices();
  if (!listed) {
    facts.list_error = to_string(listed.error());
    return facts;
  }
  for (const DeviceInfo& info : *listed)
    facts.devices.push_back(facts_of(info));
  if (facts.devices.empty()) return facts;
  VerbsOptions used = options;
  auto selected = verbs::select(used);
  if (!selected && used.device.empty() && !used.address.empty()) {
    // The address has no route over a device; what is here is still of interest.
    used.address.clear();
    selected = verbs::select(used);
  }
  if (!selected) {
    facts.choice_error = to_string(selected.error());
    return facts;
  }
  facts.chosen = facts_of(*selected, used, facts.devices);
  std::string netdev = facts.chosen->gid.netdev;
  if (netdev.empty()) {
    for (const KernelDevice& device : look_at_system().devices) {
      if (device.name == facts.chosen->device) netdev = device.netdev;
    }
  }
  facts.chosen->own_address = own_address(facts.chosen->gid, netdev);
  return facts;
}

ConnectionTimers connection_timers() {
  static_assert(ConnectionTimers::kForever == kRnrRetryForever);
  const ConnectionParameters parameters;
  return {.ack_timeout_ns = parameters.ack_timeout.ns(),
          .retries = parameters.retry_count,
          .rnr_timer_us = parameters.rnr_timer.us(),
          .rnr_retries = parameters.rnr_retry};
}

}  // namespace rkv::rdma
