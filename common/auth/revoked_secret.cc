#include "common/auth/revoked_secret.h"

#include <algorithm>

namespace rkv {

RevokedSecret RevokedSecret::of(std::string_view user, const StoredKeys& keys) {
  std::string message = "rkv revoked 1";
  message += as_text(keys.stored_key);
  message += as_text(keys.server_key);
  message += user;  // last, so that no two users and keys have the same message
  const Digest whole = sha256(as_bytes(message));
  RevokedSecret secret{.user = std::string(user)};
  std::copy_n(whole.begin(), secret.digest.size(), secret.digest.begin());
  return secret;
}

}  // namespace rkv
