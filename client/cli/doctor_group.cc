// kvclient doctor: replicated groups.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "client/cli/doctor.h"

namespace rkv::cli {

namespace {

using Level = Finding::Level;
using Group = ServerFindings::Group;

// Shorter silences may be one lost answer.
constexpr double kEtcdSilentS = 3;

void judge_member(const Group& group, const Group::Member& member, std::vector<Finding>& out) {
  if (member.in_sync) return;
  out.push_back(
      {.check = "replica",
       .subject = fmt::format("{} ({})", member.name, member.address),
       .level = Level::kWarning,
       .found = fmt::format("not in sync with group {}, and {} to the primary", group.name,
                            member.connected ? "connected" : "not connected"),
       .advice = member.connected
                     ? "it catches up: look again later; if it stays so, its disk is too slow, or "
                       "its log says more"
                     : "on its host: check that it runs (`ps`, its log) and that it reaches the "
                       "port above the primary's"});
}

void judge_group(const Group& group, std::vector<Finding>& out) {
  const auto in_sync = std::ranges::count_if(group.members, &Group::Member::in_sync);
  out.push_back({.check = "group",
                 .subject = group.name,
                 .found = fmt::format(
                     "the primary is {} ({}) in term {}, {} of {} replicas in sync", group.primary,
                     group.address, group.term, in_sync, group.members.size())});
  for (const Group::Member& member : group.members)
    judge_member(group, member, out);
  if (in_sync <= 1) {
    out.push_back({.check = "group",
                   .subject = group.name,
                   .level = Level::kWarning,
                   .found = "only one copy of the data: it is lost with the primary's disk",
                   .advice = "start another replica: `kvserver --etcd LIST --group NAME --name "
                             "OTHER --data-dir DIR --listen HOST:PORT`"});
  }
  if (group.etcd_silent_s > kEtcdSilentS) {
    out.push_back(
        {.check = "etcd",
         .subject = group.name,
         .level = Level::kWarning,
         .found = fmt::format("etcd has not answered the primary for {:.0f} s: no replica "
                              "can take over or be left out",
                              group.etcd_silent_s),
         .advice = "check etcd on its hosts: `etcdctl endpoint health --cluster`"});
  }
}

}  // namespace

bool was_directed(const ServerFindings& facts) {
  return facts.group && facts.group->address != facts.address;
}

std::vector<Finding> judge_groups(std::span<const ServerFindings> servers) {
  std::vector<Finding> out;
  std::vector<std::uint64_t> judged;  // primaries, by their epochs
  for (const ServerFindings& server : servers) {
    if (!server.group || std::ranges::find(judged, server.epoch) != judged.end()) continue;
    judged.push_back(server.epoch);
    judge_group(*server.group, out);
  }
  return out;
}

}  // namespace rkv::cli
