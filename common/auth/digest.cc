#include "common/auth/digest.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "common/check.h"

namespace rkv {

Digest sha256(Bytes message) {
  Digest out;
  const int done =
      EVP_Digest(message.data(), message.size(), reinterpret_cast<unsigned char*>(out.data()),
                 nullptr, EVP_sha256(), nullptr);
  RKV_CHECK(done == 1, "OpenSSL has no SHA-256");
  return out;
}

Digest hmac_sha256(Bytes key, Bytes message) {
  Digest out;
  const unsigned char* const done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(out.data()), nullptr);
  RKV_CHECK(done != nullptr, "OpenSSL has no HMAC with SHA-256");
  return out;
}

bool equals_secret(Bytes one, Bytes other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

void cleanse(MutableBytes secret) {
  OPENSSL_cleanse(secret.data(), secret.size());
}

}  // namespace rkv
