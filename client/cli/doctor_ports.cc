// kvclient doctor: ports, their MTU, and the GID that is used.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "client/cli/doctor_judge.h"

namespace rkv::cli {

namespace {
// Headers of the longest RoCE packet, as the kernel reckons them: 40 GRH, 8 UDP, 12 base transport,
// 4 XRC, 28 atomic, 4 checksum.
constexpr std::uint32_t kRoceHeaderBytes = 96;
}  // namespace

void Judge::down(const DeviceFacts& device, const PortFacts& port) {
  const std::string netdev = netdev_of(device, port.number);
  const rdma::NetworkInterface* const link = interface(netdev);
  std::string found = port.state;
  std::string advice = "look at the cable and at the switch: `rdma link`, `ibstat`";
  if (!port.ethernet) {
    found += ", InfiniBand";
    advice += "; a subnet manager must run in the fabric: `systemctl start opensm`";
  } else if (!netdev.empty() && link == nullptr) {
    found += fmt::format(": its interface {} is not in this network namespace", netdev);
    advice = "use the host's network (docker: `--network host`)";
  } else if (link != nullptr && !link->up) {
    found += fmt::format(": its interface {} is down", netdev);
    advice = fmt::format("as root: `ip link set dev {} up`", netdev);
  } else if (link != nullptr) {
    advice = fmt::format("look at the cable and at the switch: `ip link show dev {}`", netdev);
  }
  // One of two ports of an adapter is often unused.
  add(any_active() ? Level::kWarning : Level::kError, "port",
      fmt::format("{}/{}", device.name, port.number), std::move(found), std::move(advice));
}

void Judge::ports(const DeviceFacts& device) {
  for (const PortFacts& port : device.ports) {
    if (!port.active) {
      down(device, port);
      continue;
    }
    std::string found = fmt::format("{}, {}", port.state,
                                    !port.ethernet ? "InfiniBand"
                                    : device.iwarp ? "Ethernet (iWARP)"
                                                   : "Ethernet (RoCE)");
    if (port.speed_gbps > 0) found += fmt::format(", {} Gbit/s", port.speed_gbps);
    add(Level::kOk, "port", fmt::format("{}/{}", device.name, port.number), std::move(found));
    mtu(device, port);
  }
}

void Judge::mtu(const DeviceFacts& device, const PortFacts& port) {
  const std::string subject = fmt::format("{}/{}", device.name, port.number);
  const std::string netdev = netdev_of(device, port.number);
  const rdma::NetworkInterface* const link = interface(netdev);
  if (!port.ethernet || link == nullptr) {
    add(Level::kOk, "mtu", subject,
        fmt::format("{} of at most {} bytes", port.active_mtu_bytes, port.max_mtu_bytes));
    return;
  }
  std::uint32_t allowed = 256;
  while (allowed < port.max_mtu_bytes && 2 * allowed + kRoceHeaderBytes <= link->mtu_bytes)
    allowed *= 2;
  std::string found =
      fmt::format("{} of at most {} bytes", port.active_mtu_bytes, port.max_mtu_bytes);
  if (port.active_mtu_bytes < allowed) {
    add(Level::kWarning, "mtu", subject,
        found + fmt::format(", though the {} of {} allow {}", link->mtu_bytes, netdev, allowed),
        fmt::format("as root: `ip link set dev {} down && ip link set dev {} up`", netdev, netdev));
    return;
  }
  if (port.active_mtu_bytes < port.max_mtu_bytes) {
    // Nothing is wrong: it is Ethernet's usual one.
    found +=
        fmt::format(", since {} has {}: longer values take more packets", netdev, link->mtu_bytes);
  }
  add(Level::kOk, "mtu", subject, std::move(found));
}

void Judge::gid() {
  using Why = rdma::ChosenPath::Why;
  if (!any_active()) return;
  if (!facts_.verbs.chosen) {
    if (facts_.verbs.choice_error.empty()) return;
    add(Level::kError, "gid", "", facts_.verbs.choice_error,
        "give the port's interface an address, as root: `ip addr add 192.0.2.1/24 dev INTERFACE`; "
        "with modules and device files as below and above");
    return;
  }
  const rdma::ChosenPath& chosen = *facts_.verbs.chosen;
  const GidFacts& gid = chosen.gid;
  const std::string subject = fmt::format("{}/{}", chosen.device, chosen.port);
  const auto text = [](const GidFacts& one) {
    return fmt::format("{} {} {}{}{}", one.index, one.type, one.address,
                       one.netdev.empty() ? "" : " ", one.netdev);
  };
  const bool roce = gid.type.starts_with("RoCE");
  const char* const why = chosen.why == Why::kAsked   ? "as asked"
                          : chosen.why == Why::kRoute ? "from where the route to the server starts"
                          : roce ? "RoCE v2 before v1, IPv4 before IPv6, link-local last"
                                 : "the port's first";
  constexpr std::size_t kMostShown = 8;
  std::vector<std::string> all;
  for (const DeviceFacts* device : devices_) {
    if (device->name != chosen.device) continue;
    for (const GidFacts& one : device->gids) {
      if (one.port == chosen.port) all.push_back(text(one));
    }
  }
  const std::size_t count = all.size();
  if (count > kMostShown) all.resize(kMostShown);
  std::string found = fmt::format("{} is used: {}; of {}: {}{}", text(gid), why, count,
                                  fmt::join(all, "; "), count > kMostShown ? "; ..." : "");
  if (roce && gid.netdev.empty()) {
    add(Level::kError, "gid", subject, found + "; its interface is not in this network namespace",
        "use the host's network (docker: `--network host`)");
  } else if (roce && gid.link_local) {
    add(Level::kWarning, "gid", subject, found + "; connections by address need a routable one",
        fmt::format("as root: `ip addr add 192.0.2.1/24 dev {}`, with an address of your network",
                    gid.netdev));
  } else if (roce && !gid.roce_v2) {
    add(Level::kWarning, "gid", subject, found + "; RoCE v1 is not routed, nor mixed with v2",
        "choose one of type v2 by `--gid-index N`, if there is one; else have the adapter use v2");
  } else {
    add(Level::kOk, "gid", subject, std::move(found));
  }
}

}  // namespace rkv::cli
