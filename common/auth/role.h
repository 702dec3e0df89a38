// Role: what a user of a server may do. Each role may do all that the roles before it may.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rkv {

// The order is the order of rights: a request needs at least its opcode's role (wire.h).
enum class Role : std::uint8_t {
  kRead = 1,   // get, scan
  kWrite = 2,  // also everything that changes keys
  kAdmin = 3,  // also requests about the server itself
};
inline constexpr std::array<Role, 3> kRoles = {Role::kRead, Role::kWrite, Role::kAdmin};

constexpr const char* to_string(Role role) {
  switch (role) {
    case Role::kRead:
      return "read";
    case Role::kWrite:
      return "write";
    case Role::kAdmin:
      return "admin";
  }
  return "unknown";
}

constexpr std::optional<Role> parse_role(std::string_view text) {
  for (const Role role : kRoles) {
    if (text == to_string(role)) return role;
  }
  return std::nullopt;
}

}  // namespace rkv
