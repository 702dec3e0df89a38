// The part of rdma/diagnosis/diagnosis.h that queries the devices.
#include "rdma/diagnosis/diagnosis.h"

#include <ifaddrs.h>
#include <net/ethernet.h>
#include <netpacket/packet.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "rdma/transport/verbs/selection.h"
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

// Reads the attributes of an opened device.
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

// The local end of a connection to an address.
struct Route {
  std::string device;
  std::uint8_t port = 0;
  std::string from;  // local address
};
// Finds the route as a transport does: from the requested GID, if any.
Result<Route> route_to(const VerbsOptions& options, const GidFacts& gid) {
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, options.find_ms);
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(options.address));
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, deadline));
  std::optional<SocketAddress> source;
  if (options.gid_index >= 0) {
    const auto own = resolve({.host = gid.address, .port = 0}, deadline);
    if (own) source = own->front();
  }
  SocketAddress peer = all.front();
  if (peer.port() == 0) peer.set_port(1);
  RKV_ASSIGN_OR_RETURN(const Connector connector,
                       Connector::resolve(peer, {.source = source ? &*source : nullptr}, deadline));
  return Route{.device = connector.device().name(),
               .port = connector.port_number(),
               .from = connector.local_address().host()};
}

// Returns the GID that librdmacm uses for a connection from this address: the GID equal to the
// address, of type v2 if both types exist.
const GidFacts* gid_of_address(const DeviceFacts& device, std::uint8_t port,
                               const std::string& address) {
  const GidFacts* found = nullptr;
  for (const GidFacts& gid : device.gids) {
    if (gid.port != port || gid.address != address) continue;
    if (found == nullptr || (gid.roce_v2 && !found->roce_v2)) found = &gid;
  }
  return found;
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) raw = nullptr;
  return {raw, &freeifaddrs};
}

// Returns an address to listen on: the GID's own address, or on InfiniBand and iWARP an address of
// the port's interface.
std::string own_address(const GidFacts& gid, const std::string& netdev) {
  const bool is_address = gid.roce_v2 && !gid.link_local;
  if (is_address) return gid.ipv4 ? gid.address : "[" + gid.address + "]";
  if (netdev.empty()) return {};
  const Interfaces list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || netdev != entry->ifa_name) continue;
    if (entry->ifa_addr->sa_family == AF_INET) return SocketAddress::from(entry->ifa_addr).host();
  }
  return {};
}

void take_route(const DeviceFacts& device, const VerbsOptions& options, ChosenPath& chosen) {
  const auto route = route_to(options, chosen.gid);
  chosen.leads = route && route->device == chosen.device;
  if (!chosen.leads) {
    chosen.why_not = route ? Error{.code = Code::kNoDevice} : route.error();
  }
  if (!chosen.leads || chosen.why == ChosenPath::Why::kAsked) return;
  const GidFacts* const gid = gid_of_address(device, route->port, route->from);
  if (gid == nullptr) return;
  chosen.port = route->port;
  chosen.gid = *gid;
  chosen.why = ChosenPath::Why::kRoute;
}

// The GID of an iWARP device is the hardware address of its interface.
std::string interface_with(const GidEntry& hardware_address) {
  const Interfaces list = interfaces();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_PACKET) continue;
    const auto* const link = reinterpret_cast<const sockaddr_ll*>(entry->ifa_addr);
    if (link->sll_halen == ETH_ALEN &&
        std::memcmp(link->sll_addr, hardware_address.gid.data(), ETH_ALEN) == 0) {
      return entry->ifa_name;
    }
  }
  return {};
}

// Returns the GID's interface, or the interface known to the kernel if the GID names none.
std::string netdev_of(const ChosenPath& chosen, const GidEntry& gid) {
  if (!chosen.gid.netdev.empty()) return chosen.gid.netdev;
  for (const KernelDevice& device : look_at_system().devices) {
    if (device.name == chosen.device && !device.netdev.empty()) return device.netdev;
  }
  return gid.type == GidType::kIwarp ? interface_with(gid) : std::string();
}

Result<ChosenPath> path_to(const VerbsOptions& options, const std::vector<DeviceFacts>& devices) {
  auto selected = verbs::select(options);
  const bool leads = selected.has_value();
  const std::optional<Error> why_not = leads ? std::nullopt : std::optional(selected.error());
  if (!selected && options.device.empty() && !options.address.empty()) {
    // No device leads to the address; the local path is still reported.
    VerbsOptions anywhere = options;
    anywhere.address.clear();
    selected = verbs::select(anywhere);
  }
  if (!selected) return std::unexpected(selected.error());
  ChosenPath chosen{
      .device = selected->device.name(),
      .port = selected->port,
      .gid = facts_of(selected->gid),
      .why = options.gid_index >= 0 ? ChosenPath::Why::kAsked : ChosenPath::Why::kRank,
      .to = options.address,
      .leads = leads,
      .why_not = why_not};
  const auto device = std::ranges::find(devices, chosen.device, &DeviceFacts::name);
  if (leads && !options.address.empty() && device != devices.end()) {
    take_route(*device, options, chosen);
  }
  chosen.own_address = own_address(chosen.gid, netdev_of(chosen, selected->gid));
  return chosen;
}

}  // namespace

VerbsFacts look_at_verbs(const VerbsOptions& options, std::span<const std::string> more) {
  VerbsFacts facts;
  const auto listed = list_devices();
  if (!listed) {
    facts.list_error = to_string(listed.error());
    return facts;
  }
  for (const DeviceInfo& info : *listed)
    facts.devices.push_back(facts_of(info));
  if (facts.devices.empty()) {
    // A missing device is not an error; a missing rdma-core is an error that a person can fix.
    const auto none = Device::open_first_active();
    if (!none && none.error().code == Code::kUnsupported)
      facts.list_error = to_string(none.error());
    return facts;
  }
  const auto first = path_to(options, facts.devices);
  if (!first) {
    facts.choice_error = to_string(first.error());
    return facts;
  }
  facts.chosen = *first;
  for (const std::string& address : more) {
    VerbsOptions other = options;
    other.address = address;
    auto path = path_to(other, facts.devices);
    if (!path) continue;  // it would repeat the error of the first
    if (path->leads && !facts.chosen->leads) std::swap(*path, *facts.chosen);
    facts.others.push_back(std::move(*path));
  }
  return facts;
}

ConnectionTimers connection_timers() {
  static_assert(ConnectionTimers::kForever == kRnrRetryForever);
  const ConnectionParameters parameters;
  return {.ack_timeout_ns = static_cast<std::uint64_t>(parameters.ack_timeout.time().count()),
          .retries = parameters.retry_count,
          .rnr_timer_us = static_cast<unsigned>(parameters.rnr_timer.time().count()),
          .rnr_retries = parameters.rnr_retry};
}

}  // namespace rkv::rdma
