// --forget-revoked: a person takes secrets of users off the list of what is revoked in a group.
//
// Thread safety: none needed. Blocks on etcd.
#pragma once

#include <optional>

#include "common/clock.h"
#include "server/offline/offline.h"
#include "server/program/options.h"

namespace rkv::server {

// Takes the revoked secrets of a user ("*": of all users) off the group's list, while its replicas
// run or not. The primary serves a user at once again if its users file has a line with such a
// secret.
std::optional<Failure> forget_revoked(const Options& options, const Print& print,
                                      const Clock& clock);

}  // namespace rkv::server
