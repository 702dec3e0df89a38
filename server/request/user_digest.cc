#include "server/request/user_digest.h"

#include <array>

#include "common/hash.h"
#include "server/log/write_tag.h"

namespace rkv::server {

std::uint64_t user_digest(const User* user) {
  if (user == nullptr) return 0;
  const std::array role = {std::byte{static_cast<std::uint8_t>(user->role)}};
  Xxh3Stream stream(0);
  stream.update(user->keys.stored_key);
  stream.update(user->keys.server_key);
  stream.update(role);
  stream.update(as_bytes(user->name));
  return stream.digest() >> (64 - kUserBits);
}

}  // namespace rkv::server
