#include "rkv/rdma/gid_choice.h"

#include <fmt/format.h>

#include <bit>

#include "rkv/rdma/error.h"

namespace rkv::rdma {
namespace {

using Gid = std::array<std::uint8_t, 16>;

GidEntry entry_of(const Gid& gid) {
  GidEntry entry;
  entry.gid = gid;
  return entry;
}

unsigned common_bits(const Gid& a, const Gid& b) {
  unsigned bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto differing = static_cast<std::uint8_t>(a[i] ^ b[i]);
    if (differing == 0) {
      bits += 8;
      continue;
    }
    return bits + static_cast<unsigned>(std::countl_zero(differing));
  }
  return bits;
}

// Scores by criterion, in the order in which the criteria decide; a higher score is better.
constexpr std::size_t kCriteria = 6;
struct Judged {
  std::array<unsigned, kCriteria> scores{};
};

Judged judge(const GidEntry& gid, const GidPreferences& preferences) {
  const bool peer_local = preferences.peer && entry_of(*preferences.peer).is_link_local();
  Judged out;
  out.scores[0] = preferences.netdev.empty() || gid.netdev == preferences.netdev ? 1 : 0;
  out.scores[1] = gid.type == GidType::kRoceV1 ? 0 : 1;
  out.scores[2] =
      !preferences.peer || entry_of(*preferences.peer).is_ipv4() == gid.is_ipv4() ? 1 : 0;
  out.scores[3] = gid.is_link_local() == peer_local ? 1 : 0;
  out.scores[4] = gid.is_ipv4() ? 1 : 0;
  out.scores[5] = preferences.peer ? common_bits(gid.gid, *preferences.peer) : 0;
  return out;
}

std::string why_not(const Judged& chosen, const Judged& other, const GidPreferences& preferences) {
  std::size_t at = 0;
  while (at < kCriteria && chosen.scores[at] == other.scores[at])
    ++at;
  switch (at) {
    case 0:
      return "not on interface " + preferences.netdev;
    case 1:
      return "RoCE v1, which routers do not forward and peers with v2 do not receive";
    case 2:
      return "not of the peer's address family";
    case 3:
      return preferences.peer && entry_of(*preferences.peer).is_link_local()
                 ? "routed, but the peer is link-local"
                 : "link-local, which routers do not forward";
    case 4:
      return "IPv6, which ranks below IPv4";
    case 5:
      return fmt::format("{} leading bits in common with the peer, the chosen GID has {}",
                         other.scores[5], chosen.scores[5]);
    default:
      return "equally good, but at a higher index";
  }
}

std::string why(const GidEntry& gid, const Judged& judged, const GidPreferences& preferences) {
  std::string out = to_string(gid.type);
  if (gid.type != GidType::kInfiniBand) out += gid.is_ipv4() ? ", IPv4" : ", IPv6";
  if (gid.is_link_local()) out += ", link-local";
  if (!preferences.netdev.empty()) out += ", on the requested interface";
  if (preferences.peer) {
    out += judged.scores[2] != 0 ? ", of the peer's family" : ", NOT of the peer's family";
    out += fmt::format(", {} leading bits in common with the peer", judged.scores[5]);
  }
  if (judged.scores[1] == 0) out += "; no GID is of RoCE v2, so routers will not forward it";
  return out;
}

std::string name_of(const GidEntry& gid) {
  return fmt::format("{} ({}, {}{}{})", gid.index, gid.to_string(), to_string(gid.type),
                     gid.netdev.empty() ? "" : ", ", gid.netdev);
}

}  // namespace

std::string GidChoice::explain() const {
  std::string out = fmt::format("GID {} of port {}: {}\n", name_of(chosen), chosen.port, reason);
  for (const Other& other : others)
    out += fmt::format("  not {}: {}\n", name_of(other.gid), other.reason);
  return out;
}

Result<GidChoice> choose_gid(std::span<const GidEntry> table, std::uint8_t port,
                             const GidPreferences& preferences) {
  const GidEntry* best = nullptr;
  for (const GidEntry& gid : table) {
    if (gid.port != port) continue;
    if (best == nullptr) {
      best = &gid;
      continue;
    }
    const auto now = judge(gid, preferences).scores;
    const auto then = judge(*best, preferences).scores;
    if (now > then || (now == then && gid.index < best->index)) best = &gid;
  }
  if (best == nullptr) {
    return fail_call(Code::kNoDevice, "ibv_query_gid_table", 0,
                     "the port has no GID: give its network interface an address");
  }
  const Judged judged = judge(*best, preferences);
  if (judged.scores[0] == 0) {
    return fail_call(Code::kNoDevice, "ibv_query_gid_table", 0,
                     "the port has no GID on the requested interface (GidPreferences::netdev)");
  }
  GidChoice out{.chosen = *best, .reason = why(*best, judged, preferences), .others = {}};
  for (const GidEntry& gid : table) {
    if (gid.port != port || &gid == best) continue;
    out.others.push_back({gid, why_not(judged, judge(gid, preferences), preferences)});
  }
  return out;
}

Result<GidChoice> choose_gid(const Device& device, std::uint8_t port,
                             const GidPreferences& preferences) {
  RKV_ASSIGN_OR_RETURN(const std::vector<GidEntry> table, device.gid_table());
  return choose_gid(table, port, preferences);
}

}  // namespace rkv::rdma
