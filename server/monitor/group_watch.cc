#include "server/monitor/group_watch.h"

#include <string>
#include <utility>

#include "common/log.h"

namespace rkv::server {

namespace {

// Names of the replicas in sync whose last answer is old.
std::string silent_ones(const GroupStatus& status) {
  std::string names;
  for (const GroupStatus::Member& member : status.members) {
    if (!member.is_in_sync || !member.lag || member.lag->silent_for < kNanosPerSecond) continue;
    if (!names.empty()) names += ", ";
    names += member.name;
  }
  return names.empty() ? "none" : names;
}

}  // namespace

void GroupWatch::look(const GroupStatus& status, Nanos now) {
  if (status.role == GroupStatus::Role::kPrimary) {
    look_at_lease(status, now);
    look_at_copies(status);
  } else {
    look_at_backup(status);
  }
}

void GroupWatch::look_at_lease(const GroupStatus& status, Nanos now) {
  if (status.is_serving) {
    if (std::exchange(has_told_unserved_, false)) {
      log_info(EventName("lease_back"), "clients are served again after {} s",
               field("seconds", (now - unserved_since_) / kNanosPerSecond));
    }
    unserved_since_ = 0;
    return;
  }
  if (unserved_since_ == 0) unserved_since_ = now;
  if (has_told_unserved_ || now - unserved_since_ < kWorthALine) return;
  has_told_unserved_ = true;
  const char* const etcd = status.etcd_silent_for != 0    ? "does not answer"
                           : status.etcd_refuses_for != 0 ? "stores no change"
                                                          : "answers";
  log_warn(EventName("lease_lost"),
           "this primary serves nobody: replicas in sync that do not answer: {}; etcd {}{}",
           field("silent", silent_ones(status)), etcd,
           std::string_view(etcd) == "answers" ? "" : ", so they cannot be left out");
}

void GroupWatch::look_at_copies(const GroupStatus& status) {
  const std::size_t before = std::exchange(copies_, status.in_sync_count());
  if (copies_ == 1 && before != 1 && status.members.size() > 1) {
    log_warn(EventName("only_one_copy"),
             "this replica is the only one in sync: its disk has the only copy of the data");
  }
}

void GroupWatch::look_at_backup(const GroupStatus& status) {
  if (status.is_in_sync != std::exchange(was_in_sync_, status.is_in_sync)) {
    if (status.is_in_sync) {
      log_info(EventName("in_sync"), "{}", standing(status));
    } else if (status.role != GroupStatus::Role::kEnded) {
      log_warn(EventName("not_in_sync"), "{}", standing(status));
    }
  }
  const bool hangs = status.disk && status.disk->hangs;
  if (hangs == std::exchange(hangs_, hangs)) return;
  if (hangs) {
    log_error(EventName("disk_hangs"),
              "a write or sync of the disk does not return: this backup leaves the replicas in "
              "sync until it does");
  } else {
    log_warn(EventName("disk_answers"), "the disk answers again");
  }
}

}  // namespace rkv::server
