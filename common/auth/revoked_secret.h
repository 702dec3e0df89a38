// RevokedSecret: names one secret of a user that an administrator has shut out. All replicas of a
// group can tell whether a line of their own users files is of that secret, and nobody learns
// anything else from it: the keys in the line have 128 random bits at least.
//
// Thread safety: a value.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <string>
#include <string_view>

#include "common/auth/proof.h"

namespace rkv {

struct RevokedSecret {
  std::string user;
  std::array<std::byte, 16> digest{};
  // Makes the entry for the secret whose keys the users file has in a line of the user.
  static RevokedSecret of(std::string_view user, const StoredKeys& keys);
  auto operator<=>(const RevokedSecret&) const = default;
};

}  // namespace rkv
