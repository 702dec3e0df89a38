// A replicated group in sentences, for /readyz.
#include <fmt/format.h>

#include "server/group/replica/link_surroundings.h"
#include "server/monitor/group_reports.h"

namespace rkv::server {

bool is_in_place(const GroupStatus& group) {
  if (group.role == GroupStatus::Role::kPrimary) return group.is_serving;
  return group.role == GroupStatus::Role::kBackup && !group.primary.empty() && group.is_connected;
}

std::string group_line(const GroupStatus& group) {
  if (group.role != GroupStatus::Role::kPrimary) return standing(group) + "\n";
  const std::string count =
      fmt::format("{} of {} replicas in sync", group.in_sync_count(), group.members.size());
  if (group.is_serving)
    return fmt::format("primary of group {} in term {}, {}\n", group.group, group.term, count);
  // Before it serves, its start says more.
  const bool is_without_etcd = group.etcd_silent_for != 0 || group.etcd_refuses_for != 0;
  const char* const why =
      group.in_sync_count() == 1
          ? "it is alone in sync, and etcd does not confirm that it is still the primary"
      : is_without_etcd ? "replicas in sync do not answer, and without etcd they cannot be left out"
                        : "replicas in sync do not answer";
  return fmt::format("primary of group {} in term {}, {}, but it has no lease: {}\n", group.group,
                     group.term, count, why);
}

namespace {

// The primary's sentence about another replica. Empty: all is well.
std::string member_worry(const GroupStatus::Member& member) {
  std::string text;
  if (!member.is_in_sync) {
    text = fmt::format("{} ({}) is not in sync{}\n", member.name, member.address,
                       member.lag && member.lag->is_connected ? " yet" : ": not connected");
  }
  if (member.lag && member.lag->is_unreachable) {
    text += fmt::format("{} cannot be reached at {}: open this port to the other replicas\n",
                        member.name, replica_address(member.address));
  }
  return text;
}

}  // namespace

std::string group_worries(const GroupStatus& group) {
  std::string text;
  for (const GroupStatus::Member& member : group.members)
    if (group.role == GroupStatus::Role::kPrimary) text += member_worry(member);
  if (group.role == GroupStatus::Role::kPrimary && group.in_sync_count() == 1)
    text += "only one copy of the data\n";
  if (!group.may_lead) text += "it could not serve clients as the primary: its log says why\n";
  if (group.etcd_has_another) {
    text += "etcd has another group of this name: no replica can be replaced\n";
  } else if (group.etcd_has_lost_data) {
    text += "etcd has lost the group's configuration: no replica can be replaced\n";
  } else if (group.etcd_silent_for >= kNanosPerSecond) {
    text += fmt::format("etcd has not answered for {} s: no replica can be replaced\n",
                        group.etcd_silent_for / kNanosPerSecond);
  } else if (group.etcd_refuses_for >= kNanosPerSecond) {
    text += fmt::format(
        "etcd answers, but has stored no change for {} s: no replica can be "
        "replaced: its log and etcdctl alarm list say why\n",
        group.etcd_refuses_for / kNanosPerSecond);
  }
  return text;
}

std::string stuck_replicator(const GroupStatus& group, Nanos now) {
  const bool is_stuck = group.at != 0 && now - group.at >= kReplicatorStuckAfter;
  return is_stuck ? "the replicator's thread is stuck" : std::string();
}

}  // namespace rkv::server
