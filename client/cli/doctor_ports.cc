// kvclient doctor: ports, their MTU, and the GID that is used.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "client/cli/doctor_judge.h"

namespace rkv::cli {

namespace {
// Headers of the longest RoCE packet, as the kernel counts them: 40 GRH, 8 UDP, 12 base transport,
// 4 XRC, 28 atomic, 4 checksum.
constexpr std::uint32_t kRoceHeaderBytes = 96;
}  // namespace

void Judge::down(const DeviceFacts& device, const PortFacts& port) {
  const std::string netdev = netdev_of(device, port.number);
  const rdma::NetworkInterface* const link = interface(netdev);
  std::string found = port.state;
  std::string advice = "check the cable and the switch: `rdma link`, `ibstat`";
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
    advice = fmt::format("check the cable and the switch: `ip link show dev {}`", netdev);
  }
  // One of two ports of an adapter is often unused.
  add(any_active() || !is_meant(port) ? Level::kWarning : Level::kError, "port",
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
        // A device reads the interface's MTU when that MTU changes. Setting the interface down and
        // up instead would lose routes and IPv6 addresses.
        fmt::format("as root: `ip link set dev {} mtu {} && ip link set dev {} mtu {}`", netdev,
                    link->mtu_bytes - 1, netdev, link->mtu_bytes));
    return;
  }
  if (port.active_mtu_bytes < port.max_mtu_bytes) {
    // Not a fault: this is Ethernet's usual MTU.
    found +=
        fmt::format(", since {} has {}: longer values need more packets", netdev, link->mtu_bytes);
  }
  add(Level::kOk, "mtu", subject, std::move(found));
}

void Judge::missing_port() {
  const auto has_it = [&](const DeviceFacts* device) {
    return std::ranges::any_of(device->ports,
                               [&](const PortFacts& port) { return is_meant(port); });
  };
  const auto opened = [](const DeviceFacts* device) { return !device->ports.empty(); };
  if (std::ranges::none_of(devices_, opened) || std::ranges::any_of(devices_, has_it)) return;
  add(Level::kError, "port", asked_.device,
      fmt::format("{} port {}", asked_.device.empty() ? "no device has a" : "there is no",
                  asked_.port),
      "`--ib-port 0` uses any active port");
}

// ------------------------------------------------------------------------------------- GIDs

namespace {

using rdma::ChosenPath;
using rdma::GidFacts;

std::string text_of(const GidFacts& gid) {
  return fmt::format("{} {} {}{}{}", gid.index, gid.type, gid.address,
                     gid.netdev.empty() ? "" : " ", gid.netdev);
}

bool is_roce(const GidFacts& gid) {
  return gid.type.starts_with("RoCE");
}

const char* reason_for(const ChosenPath& path) {
  switch (path.why) {
    case ChosenPath::Why::kAsked:
      return "as requested";
    case ChosenPath::Why::kRoute:
      return "the route to the server starts there";
    case ChosenPath::Why::kRank:
      break;
  }
  return is_roce(path.gid) ? "RoCE v2 before v1, IPv4 before IPv6, link-local last"
                           : "the first GID of the port";
}

bool same_way(const ChosenPath& a, const ChosenPath& b) {
  return a.device == b.device && a.port == b.port && a.gid.index == b.gid.index && a.why == b.why &&
         a.leads == b.leads && (a.leads || a.to == b.to);
}

std::vector<const GidFacts*> gids_of(const rdma::DeviceFacts& device, std::uint8_t port) {
  std::vector<const GidFacts*> found;
  for (const GidFacts& gid : device.gids) {
    if (gid.port == port) found.push_back(&gid);
  }
  return found;
}

std::string list_of(const rdma::DeviceFacts& device, std::uint8_t port) {
  constexpr std::size_t kMostShown = 8;
  std::vector<std::string> all;
  for (const GidFacts* gid : gids_of(device, port))
    all.push_back(text_of(*gid));
  const std::size_t count = all.size();
  if (count == 0) return "none";
  if (count > kMostShown) all.resize(kMostShown);
  return fmt::format("of {}: {}{}", count, fmt::join(all, "; "), count > kMostShown ? "; ..." : "");
}

}  // namespace

// Reports the GIDs of every active port; which of them are used, and why.
void Judge::gids() {
  if (!any_active()) return;
  if (!facts_.verbs.chosen && !facts_.verbs.choice_error.empty()) no_gid();
  for (const DeviceFacts* device : devices_) {
    for (const PortFacts& port : device->ports) {
      if (port.active) gid(*device, port);
    }
  }
}

void Judge::no_gid() {
  bool any = false;
  bool all_have_it = true;
  std::string netdev = "INTERFACE";
  for (const DeviceFacts* device : devices_) {
    for (const PortFacts& port : device->ports) {
      if (!port.active || !is_meant(port)) continue;
      const auto gids = gids_of(*device, port.number);
      any = any || !gids.empty();
      all_have_it = all_have_it && std::ranges::any_of(gids, [&](const GidFacts* gid) {
                      return std::cmp_equal(gid->index, asked_.gid_index);
                    });
      const std::string name = netdev_of(*device, port.number);
      if (!name.empty()) netdev = name;
    }
  }
  const bool wrong_index = asked_.gid_index >= 0 && any && !all_have_it;
  add(Level::kError, "gid", "", facts_.verbs.choice_error,
      wrong_index ? "`--gid-index N` with one of those below, or leave it out: routing chooses"
      : any       ? "fix the error above, then check the kernel's log: `dmesg`"
            : fmt::format("give the port's interface an address of your network, as root: `ip addr "
                          "add 192.0.2.1/24 dev {}`",
                          netdev));
}

// "1 RoCE v2 192.0.2.1 eth0 is used: the route to the server starts there".
std::string Judge::use_of(const ChosenPath& path) const {
  if (path.leads) {
    return fmt::format("{} is used{}: {}", text_of(path.gid),
                       facts_.verbs.others.empty() ? "" : " for " + path.to, reason_for(path));
  }
  const std::string would =
      fmt::format("{} would be used ({}), but ", text_of(path.gid), reason_for(path));
  if (!path.why_not || path.why_not->code == Code::kNoDevice) {
    return fmt::format(
        "{}{} to {}", would,
        asked_.device.empty() ? "no device has a route" : "no route from " + asked_.device,
        path.to);
  }
  return fmt::format("{}no route to {} was found: {}", would, path.to,
                     rkv::to_string(*path.why_not));
}

void Judge::gid(const DeviceFacts& device, const PortFacts& port) {
  std::vector<ChosenPath> ways;  // `to` of each: all addresses reached this way
  const auto take = [&](const ChosenPath& path) {
    if (path.device != device.name || path.port != port.number) return;
    const auto same =
        std::ranges::find_if(ways, [&](const ChosenPath& way) { return same_way(way, path); });
    if (same != ways.end()) {
      same->to += ", " + path.to;
    } else {
      ways.push_back(path);
    }
  };
  if (facts_.verbs.chosen) take(*facts_.verbs.chosen);
  std::ranges::for_each(facts_.verbs.others, take);
  const std::string subject = fmt::format("{}/{}", device.name, port.number);
  if (device.iwarp) {
    return add(Level::kOk, "gid", subject,
               fmt::format("{}: iWARP connects by IP address, without GIDs",
                           ways.empty() ? "not used" : "used"));
  }
  std::string list = list_of(device, port.number);
  if (ways.empty()) return add(Level::kOk, "gid", subject, "not used; " + list);
  for (const ChosenPath& way : ways) {
    const GidFacts& gid = way.gid;
    std::string found = use_of(way);
    if (!list.empty()) found += "; " + list;
    list.clear();  // shown once
    if (is_roce(gid) && gid.netdev.empty()) {
      add(Level::kError, "gid", subject, found + "; its interface is not in this network namespace",
          "use the host's network (docker: `--network host`)");
    } else if (is_roce(gid) && gid.link_local) {
      add(Level::kWarning, "gid", subject, found + "; connections by address need a routable one",
          fmt::format("as root: `ip addr add 192.0.2.1/24 dev {}`, with an address of your network",
                      gid.netdev));
    } else if (is_roce(gid) && !gid.roce_v2) {
      add(Level::kWarning, "gid", subject,
          found + "; RoCE v1 is not routable and cannot be mixed with v2",
          "choose a GID of type v2 by `--gid-index N`, if there is one; else configure the adapter "
          "for v2");
    } else {
      add(Level::kOk, "gid", subject, std::move(found));
    }
  }
}

}  // namespace rkv::cli
