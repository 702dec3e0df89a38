// SHA-256, HMAC-SHA256, and the handling of secret bytes. Only digest.cc includes OpenSSL.
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>

#include "rkv/bytes.h"

namespace rkv {

using Digest = std::array<std::byte, 32>;

Digest sha256(Bytes message);
Digest hmac_sha256(Bytes key, Bytes message);
// Takes as long for a difference in the first byte as for none. False if the lengths differ.
bool equals_secret(Bytes one, Bytes other);
// Overwrites the bytes. The compiler cannot leave that out.
void cleanse(MutableBytes secret);

}  // namespace rkv
