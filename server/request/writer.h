// The number by which a replicated log names who has made a write: a session and its user. A later
// primary finds outcomes by it, so nobody but the same user finds them (ONCE-5).
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "server/admission/users.h"

namespace rkv::server {

// Not 0. `user`: nullptr if the server has no users. A user that was changed is another one.
std::uint64_t writer_of(std::uint64_t session, const User* user);

}  // namespace rkv::server
