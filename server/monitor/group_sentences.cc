// A replicated group in sentences, for /readyz.
#include <fmt/format.h>

#include "server/monitor/group_reports.h"

namespace rkv::server {

bool is_in_place(const GroupStatus& group) {
  if (group.role == GroupStatus::Role::kPrimary) return group.is_serving;
  return group.role == GroupStatus::Role::kBackup && !group.primary.empty();
}

std::string group_line(const GroupStatus& group) {
  if (group.role != GroupStatus::Role::kPrimary) return standing(group) + "\n";
  const std::string count =
      fmt::format("{} of {} replicas in sync", group.in_sync_count(), group.members.size());
  if (group.is_serving)
    return fmt::format("primary of group {} in term {}, {}\n", group.group, group.term, count);
  // Before it serves, its start says more.
  return fmt::format(
      "primary of group {} in term {}, {}, but it has no lease: {}\n", group.group, group.term,
      count,
      group.etcd_silent_for == 0
          ? "replicas in sync do not answer"
          : "replicas in sync do not answer, and without etcd they cannot be left out");
}

std::string group_worries(const GroupStatus& group) {
  std::string text;
  for (const GroupStatus::Member& member : group.members) {
    if (!member.is_in_sync && group.role == GroupStatus::Role::kPrimary) {
      text += fmt::format("{} ({}) is not in sync{}\n", member.name, member.address,
                          member.lag && member.lag->is_connected ? " yet" : ": not connected");
    }
  }
  if (group.role == GroupStatus::Role::kPrimary && group.in_sync_count() == 1)
    text += "only one copy of the data\n";
  if (group.etcd_has_lost_data) {
    text += "etcd has lost the group's configuration: no replica can be replaced\n";
  } else if (group.etcd_silent_for >= kNanosPerSecond) {
    text += fmt::format("etcd has not answered for {} s: no replica can be replaced\n",
                        group.etcd_silent_for / kNanosPerSecond);
  }
  return text;
}

std::string stuck_replicator(const GroupStatus& group, Nanos now) {
  const bool is_stuck = group.at != 0 && now - group.at >= kReplicatorStuckAfter;
  return is_stuck ? "the replicator's thread is stuck" : std::string();
}

}  // namespace rkv::server
