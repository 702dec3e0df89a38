#include "server/request/writer.h"

#include <algorithm>
#include <array>

#include "common/hash.h"

namespace rkv::server {

std::uint64_t writer_of(std::uint64_t session, const User* user) {
  std::array<std::byte, 9> who{};
  store_le(who.data(), session);
  Xxh3Stream stream(0);
  if (user != nullptr) {
    who.back() = std::byte{static_cast<std::uint8_t>(user->role)};
    stream.update(user->keys.stored_key);
    stream.update(user->keys.server_key);
    stream.update(as_bytes(user->name));
  }
  stream.update(who);
  return std::max<std::uint64_t>(stream.digest(), 1);
}

}  // namespace rkv::server
