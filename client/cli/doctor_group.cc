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
  const std::string subject = fmt::format("{} ({})", member.name, member.address);
  if (member.unreachable) {
    out.push_back(
        {.check = "replica",
         .subject = subject,
         .level = Level::kWarning,
         .found = fmt::format("{}in sync with group {}: it cannot be reached by the primary",
                              member.in_sync ? "" : "not ", group.name),
         .advice = "open the port above its own to the other replicas"});
    return;
  }
  if (member.in_sync) return;
  out.push_back(
      {.check = "replica",
       .subject = subject,
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
  } else if (group.etcd_refuses_s > kEtcdSilentS) {
    out.push_back(
        {.check = "etcd",
         .subject = group.name,
         .level = Level::kWarning,
         .found = fmt::format("etcd answers, but has stored no change for {:.0f} s: no replica can "
                              "take over or be left out",
                              group.etcd_refuses_s),
         .advice = "see why: `etcdctl alarm list`, and the log of etcd"});
  }
}

std::string difference(const ServerFindings& one, const ServerFindings& first) {
  if (one.group && first.group) {
    return fmt::format("of another group than {} (groups {} and {})", first.address,
                       one.group->name, first.group->name);
  }
  if (one.group)
    return fmt::format("of group {}, but {} is of none", one.group->name, first.address);
  if (first.group)
    return fmt::format("of no group, but {} is of group {}", first.address, first.group->name);
  return fmt::format("of no group, as {}: neither takes over from the other", first.address);
}

}  // namespace

bool was_directed(const ServerFindings& facts) {
  return facts.group && facts.group->address != facts.address;
}

std::vector<Finding> judge_one_group(std::span<const ServerFindings> servers) {
  std::vector<Finding> out;
  const ServerFindings* first = nullptr;
  for (const ServerFindings& server : servers) {
    if (!server.has_stats) continue;
    if (first == nullptr) {
      first = &server;
      continue;
    }
    const bool is_same = server.group && first->group
                             ? server.group->number == first->group->number
                             : server.epoch == first->epoch;  // that is judge_list()'s
    if (is_same) continue;
    out.push_back({.check = "servers",
                   .subject = server.address,
                   .level = Level::kError,
                   .found = difference(server, *first),
                   .advice =
                       "take one of the two off the list; several servers that share the keys are "
                       "named by --servers"});
  }
  return out;
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
