// The verbs of `admin` about replicated groups: groups, move-primary, remove-replica.
//
// Thread safety: none needed.
#pragma once

#include "client/cli/commands.h"

namespace rkv::cli {

// Prints each server's group as its primary knows it.
ExitCode run_groups(Cluster& client, const Job& job);
// Has the replica that the job names made the primary, and waits until it is.
ExitCode run_move_primary(Cluster& client, const Job& job);
// Has the replica that the job names taken out of its group.
ExitCode run_remove_replica(Cluster& client, const Job& job);

}  // namespace rkv::cli
