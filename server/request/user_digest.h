// What the log of a group says of the user of a session, so that a later primary tells nobody else
// what became of the session's writes (ONCE-5, OLOG-4).
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "server/admission/users.h"

namespace rkv::server {

// kUserBits long. `user`: nullptr if the server has no users. A user that was changed has another
// one.
std::uint64_t user_digest(const User* user);

}  // namespace rkv::server
