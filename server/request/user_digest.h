// A digest that names a session's user in a group's log. By it a later primary reports the outcomes
// of the session's writes to that user only (ONCE-5, OLOG-4).
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>

#include "server/clients/admission/users.h"

namespace rkv::server {

// Returns a digest of kUserBits. `user`: nullptr if the server has no users. A changed user has
// another digest.
std::uint64_t user_digest(const User* user);

}  // namespace rkv::server
