#include "common/auth/revoked_secret.h"

#include <gtest/gtest.h>

namespace rkv {
namespace {

StoredKeys keys_of(char digit) {
  return ClientKeys::of(*Secret::parse(std::string(64, digit))).stored;
}

TEST(RevokedSecret, IsOfOneUserAndOneSecret) {
  const RevokedSecret one = RevokedSecret::of("app", keys_of('1'));
  EXPECT_EQ(one, RevokedSecret::of("app", keys_of('1')));
  EXPECT_NE(one, RevokedSecret::of("app", keys_of('2')));
  EXPECT_NE(one.digest, RevokedSecret::of("apq", keys_of('1')).digest);
  StoredKeys other = keys_of('1');
  other.server_key.back() ^= std::byte{1};
  EXPECT_NE(one, RevokedSecret::of("app", other));
}

// Groups keep it in etcd: another release must find the same.
TEST(RevokedSecret, IsTheSameInEachRelease) {
  EXPECT_EQ(to_hex(RevokedSecret::of("app", keys_of('1')).digest),
            "5845768b4f99d6d57c2571d8e678f684");
}

}  // namespace
}  // namespace rkv
