// --force-primary: a person decides that a group goes on without the replicas that were in sync.
//
// Thread safety: none needed. Blocks on the disk, on etcd, and for a second for each other replica.
#pragma once

#include <optional>

#include "common/clock.h"
#include "server/offline/offline.h"
#include "server/program/options.h"

namespace rkv::server {

// Stores a configuration in which the replica --name is the only one in sync, so that its next
// process is the primary, with what its disk has. Prints what that gives up. Changes nothing on the
// disk. Refuses if a replica that is in sync can be reached, or if nothing need be forced.
std::optional<Failure> force_primary(const Options& options, const Print& print,
                                     const Clock& clock);

}  // namespace rkv::server
