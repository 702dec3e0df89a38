#include "server/group/replica/group_status.h"

#include <fmt/format.h>

#include <algorithm>

namespace rkv::server {

namespace {

std::string why_not_in_sync(const GroupStatus& status) {
  if (status.lacks_group) {
    return fmt::format(
        "etcd has no group {}: start one replica with --found-group, or check "
        "--group and --etcd",
        status.group);
  }
  if (status.configuration == 0) {
    return status.etcd_silent_for != 0 ? "etcd has not answered since the start"
                                       : "the group's configuration is not read yet";
  }
  if (!status.received.replica.empty()) {
    return fmt::format("it receives a copy of the database: {} of {} bytes", status.received.bytes,
                       status.received.total_bytes);
  }
  if (status.disk && (status.disk->hangs || status.disk->state != DiskState::kOk))
    return fmt::format("its disk is {}",
                       status.disk->hangs ? "hung" : to_string(status.disk->state));
  if (status.primary.empty()) return "the group has no primary";
  if (!status.is_connected)
    return fmt::format("it is not connected to the primary, {} ({})", status.primary,
                       status.primary_address);
  return "it catches up with the primary's log";
}

}  // namespace

std::size_t GroupStatus::in_sync_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(members, &Member::is_in_sync));
}

const char* to_string(GroupStatus::Role role) {
  switch (role) {
    case GroupStatus::Role::kStarting:
      return "starting";
    case GroupStatus::Role::kJoining:
      return "joining";
    case GroupStatus::Role::kBackup:
      return "backup";
    case GroupStatus::Role::kPrimary:
      return "primary";
    case GroupStatus::Role::kEnded:
      return "ended";
  }
  return "unknown";
}

std::string standing(const GroupStatus& status) {
  if (status.role == GroupStatus::Role::kEnded)
    return "it has ended its part in the group: " + status.why_ended;
  if (!status.is_in_sync) return "backup not in sync: " + why_not_in_sync(status);
  if (status.primary.empty()) return "backup in sync, but the group has no primary";
  return fmt::format("backup in sync; the primary is {} ({}){}", status.primary,
                     status.primary_address, status.is_connected ? "" : ", which is not connected");
}

}  // namespace rkv::server
