// The parts of the reports (reports.h) about a replicated group.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/clock.h"
#include "server/group/replica/group_status.h"
#include "server/monitor/exposition.h"

namespace rkv::server {

// The object "group" of the statistics and of /status.
nlohmann::ordered_json group_json(const GroupStatus& group);
// The metrics that begin with kvserver_group_.
void add_group(Exposition& out, const GroupStatus& group);

// Whether the replica does what it is there for: the primary serves, or a backup is in sync.
bool is_in_place(const GroupStatus& group);
// One line for /readyz: the replica's part in the group.
std::string group_line(const GroupStatus& group);
// A line for each thing that somebody should look at: replicas not in sync, a single copy, etcd.
std::string group_worries(const GroupStatus& group);
// Not empty: the replicator's thread has not reported for kReplicatorStuckAfter.
std::string stuck_replicator(const GroupStatus& group, Nanos now);
inline constexpr Nanos kReplicatorStuckAfter = 10 * kNanosPerSecond;

}  // namespace rkv::server
