#include "rkv/rdma/route.h"

#include <fmt/format.h>

#include <algorithm>

namespace rkv::rdma {
namespace {

using Gid = std::array<std::uint8_t, 16>;

GidEntry entry_of(const Gid& gid) {
  GidEntry entry;
  entry.gid = gid;
  return entry;
}
std::string text_of(const Gid& gid) {
  return entry_of(gid).to_string();
}
// The upper half of an InfiniBand GID is the subnet.
bool same_subnet(const Gid& a, const Gid& b) {
  return std::equal(a.begin(), a.begin() + 8, b.begin());
}

std::uint8_t agree(std::uint8_t own, std::uint8_t of_peer) {
  // If the peer states no depth, use 1, which every device supports.
  return std::min(own, std::max<std::uint8_t>(of_peer, 1));
}

bool needs_global(const Endpoint& self, const Endpoint& peer) {
  // Some RoCE adapters have a LID too, so the link layer decides, not the LID.
  if (self.link_layer == LinkLayer::kEthernet) return true;
  return peer.lid == 0 || (self.has_gid() && peer.has_gid() && !same_subnet(self.gid, peer.gid));
}

void judge_gids(RouteReport& out, const GidEntry& gid, const std::vector<GidEntry>& gids,
                const Endpoint& peer) {
  const bool peer_ipv4 = entry_of(peer.gid).is_ipv4();
  if (gid.is_ipv4() != peer_ipv4) {
    out.problems.push_back(
        fmt::format("our GID {} is an IPv{} address and the peer's GID {} is an IPv{} address: no "
                    "route connects them",
                    gid.to_string(), gid.is_ipv4() ? 4 : 6, text_of(peer.gid), peer_ipv4 ? 4 : 6));
  }
  if (gid.type == GidType::kRoceV1) {
    out.problems.emplace_back(
        "our GID is of RoCE v1, which routers do not forward and peers with v2 do not receive");
  }
  if (gid.is_link_local() || entry_of(peer.gid).is_link_local()) {
    out.problems.emplace_back("a link-local GID reaches only its own network segment");
  }
  for (const GidEntry& other : gids) {
    const bool better = other.port == gid.port && other.type == GidType::kRoceV2 &&
                        other.is_ipv4() == peer_ipv4 && !other.is_link_local();
    if (!better || other.index == gid.index || out.problems.empty()) continue;
    out.advice.push_back(fmt::format("use GID index {} ({}, {}{}{})", other.index,
                                     other.to_string(), to_string(other.type),
                                     other.netdev.empty() ? "" : ", on ", other.netdev));
  }
}

void advise_roce(RouteReport& out, const GidEntry& gid, const Endpoint& peer, Mtu mtu) {
  out.advice.push_back(fmt::format(
      "GID index: ping {} from {}{}{}; both sides must use GIDs of the same type",
      text_of(peer.gid), gid.to_string(), gid.netdev.empty() ? "" : " on ", gid.netdev));
  out.advice.emplace_back(
      "UDP port 4791: firewalls on and between the two hosts must let it pass in both directions");
  // RoCE v2 adds IP, UDP and transport headers and two checksums: 66 bytes over IPv4, 86 over IPv6.
  out.advice.push_back(fmt::format(
      "MTU: every link between the hosts must carry packets of {} bytes of data and 86 of headers",
      bytes_of(mtu)));
}

void append(std::string& out, const char* title, const std::vector<std::string>& lines) {
  for (const std::string& line : lines)
    out += fmt::format("{}: {}\n", title, line);
}

}  // namespace

Result<Route> choose_route(std::uint8_t port, const GidEntry& gid, const Endpoint& self,
                           const Endpoint& peer) {
  if (peer.qp_num > Endpoint::kMaxQueuePairNumber) {
    return fail(Code::kInvalidArgument, "the peer's qp_num is 0 to 16777215");
  }
  if (peer.link_layer != self.link_layer) {
    return fail(Code::kInvalidArgument,
                "link_layer: one side is on InfiniBand, the other on Ethernet");
  }
  const bool ethernet = self.link_layer == LinkLayer::kEthernet;
  if (ethernet && !peer.has_gid()) {
    return fail(Code::kInvalidArgument, "the peer's endpoint has no gid, which RoCE needs");
  }
  if (!ethernet && peer.lid == 0 && !peer.has_gid()) {
    return fail(Code::kInvalidArgument, "the peer's endpoint has neither lid nor gid");
  }
  Route out{.address = {.port = port, .lid = ethernet ? std::uint16_t{0} : peer.lid},
            .mtu = std::min(self.mtu, peer.mtu),
            .depths = {.initiator = agree(self.depths.initiator, peer.depths.responder),
                       .responder = agree(self.depths.responder, peer.depths.initiator)}};
  if (needs_global(self, peer)) {
    out.address.global = GlobalRoute{.gid = peer.gid, .gid_index = gid.index};
  }
  return out;
}

RouteReport explain_route(const PortAttributes& port, const GidEntry& gid,
                          const std::vector<GidEntry>& gids, const Endpoint& self,
                          const Endpoint& peer) {
  RouteReport out;
  const bool ethernet = self.link_layer == LinkLayer::kEthernet;
  out.decisions.push_back(fmt::format("port {} is {}", port.number,
                                      ethernet ? "Ethernet: RoCE, addressed by GID"
                                               : "InfiniBand, addressed by LID within a subnet"));
  if (!port.active()) out.problems.push_back(fmt::format("port {} is not active", port.number));
  const auto route = choose_route(port.number, gid, self, peer);
  if (!route) {
    out.problems.emplace_back(route.error().text);
    return out;
  }
  if (route->address.global) {
    out.decisions.push_back(
        fmt::format("to GID {} from GID {} (index {}, {}{}{})", text_of(peer.gid), gid.to_string(),
                    gid.index, to_string(gid.type), gid.netdev.empty() ? "" : ", on ", gid.netdev));
  } else {
    out.decisions.push_back(fmt::format("to LID {}, without GID: the same subnet", peer.lid));
  }
  out.decisions.push_back(fmt::format("MTU {}: the smaller of ours, {}, and the peer's, {}",
                                      bytes_of(route->mtu), bytes_of(self.mtu),
                                      bytes_of(peer.mtu)));
  if (self.depths != ReadDepths{}) {
    const bool announced = peer.depths.responder != 0;
    out.decisions.push_back(fmt::format(
        "{} READs outstanding: the smaller of what we request, {}, and what the peer allows, {}",
        route->depths.initiator, self.depths.initiator,
        announced ? std::to_string(peer.depths.responder) : "1 as it sent no limit"));
  }
  if (ethernet) {
    judge_gids(out, gid, gids, peer);
    advise_roce(out, gid, peer, route->mtu);
  }
  return out;
}

std::string RouteReport::to_string() const {
  std::string out;
  append(out, "route", decisions);
  append(out, "problem", problems);
  append(out, "if packets do not arrive", advice);
  return out;
}

}  // namespace rkv::rdma
