#include "common/auth/proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rkv {
namespace {

TEST(Sha256, IsThatOfFips180) {
  EXPECT_EQ(to_hex(sha256(as_bytes("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// Test cases 1, 2 and 6 of RFC 4231.
TEST(HmacSha256, IsThatOfRfc4231) {
  EXPECT_EQ(to_hex(hmac_sha256(as_bytes(std::string(20, '\x0b')), as_bytes("Hi There"))),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(as_bytes(std::string(131, '\xaa')),
                               as_bytes("Test Using Larger Than Block-Size Key - Hash Key First"))),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secrets, AreComparedAsBytes) {
  EXPECT_TRUE(equals_secret(as_bytes("same"), as_bytes("same")));
  EXPECT_FALSE(equals_secret(as_bytes("same"), as_bytes("samf")));
  EXPECT_FALSE(equals_secret(as_bytes("same"), as_bytes("sam")));
}

TEST(Secrets, AreOverwritten) {
  std::array<std::byte, 4> bytes = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  cleanse(bytes);
  EXPECT_EQ(to_hex(bytes), "00000000");
}

TEST(Secrets, LeaveNoKeyBehind) {
  alignas(ClientKeys) std::array<std::byte, sizeof(ClientKeys)> room{};
  auto* const keys =
      std::construct_at(reinterpret_cast<ClientKeys*>(room.data()), ClientKeys::of(Secret::draw()));
  const auto is_zero = [&] {
    return std::ranges::all_of(room, [](std::byte b) { return b == std::byte{0}; });
  };
  EXPECT_FALSE(is_zero());
  std::destroy_at(keys);
  EXPECT_TRUE(is_zero());
}

TEST(Secrets, AreSixtyFourHexadecimalDigits) {
  const Secret secret = Secret::draw();
  const std::string hex = to_hex(secret.bytes);
  EXPECT_EQ(hex.size(), 64U);
  const auto parsed = Secret::parse(hex);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->bytes, secret.bytes);
  EXPECT_NE(to_hex(Secret::draw().bytes), hex);
  EXPECT_EQ(Secret::parse(std::string(64, 'A'))->bytes, Secret::parse(std::string(64, 'a'))->bytes);
  for (const std::string& bad : {std::string(), std::string(63, 'a'), std::string(65, 'a'),
                                 std::string(63, 'a') + "g", std::string(63, 'a') + "\n"}) {
    EXPECT_FALSE(Secret::parse(bad)) << bad;
  }
}

TEST(UserNames, AreShortAndPlain) {
  EXPECT_TRUE(is_user_name("billing"));
  EXPECT_TRUE(is_user_name("_A.b-9"));
  EXPECT_TRUE(is_user_name(std::string(64, 'a')));
  for (const std::string& bad :
       {std::string(), std::string(65, 'a'), std::string("-a"), std::string(".a"),
        std::string("a b"), std::string("a\n"), std::string("#a"), std::string("\xc3\xa4")}) {
    EXPECT_FALSE(is_user_name(bad)) << bad;
  }
}

TEST(UserNumbers, AreTheFirstBytesOfADigest) {
  const Digest digest = sha256(as_bytes("rkv user billing"));
  EXPECT_EQ(number_of_user("billing"), load_le<std::uint32_t>(digest.data()));
  EXPECT_NE(number_of_user("billing"), number_of_user("Billing"));
}

Claim example_claim() {
  return {.stamp = 5,
          .cookie = {std::byte{1}, std::byte{2}},
          .user = 77,
          .nonce = 0xabcd,
          .session_to_resume = 9,
          .credits_wanted = 4,
          .server = "192.0.2.1:7471"};
}

TEST(Proofs, AreGoodForTheirClaimAndNoOther) {
  const ClientKeys keys = ClientKeys::of(Secret::draw());
  const Claim claim = example_claim();
  const Proof proof = make_proof(keys, claim);
  EXPECT_TRUE(is_proved(keys.stored, claim, proof));
  const std::vector<std::function<void(Claim&)>> changes = {
      [](Claim& c) { c.stamp = 6; },
      [](Claim& c) { c.cookie[15] = std::byte{1}; },
      [](Claim& c) { c.user = 78; },
      [](Claim& c) { c.nonce = 0xabce; },
      [](Claim& c) { c.session_to_resume = 0; },
      [](Claim& c) { c.credits_wanted = 5; },
      [](Claim& c) { c.server = "192.0.2.1:7472"; },
      [](Claim& c) { c.server = ""; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Claim other = claim;
    changes[i](other);
    EXPECT_FALSE(is_proved(keys.stored, other, proof)) << i;
    EXPECT_NE(make_answer(keys.stored, other, {}), make_answer(keys.stored, claim, {})) << i;
  }
}

TEST(Proofs, AreGoodInEveryBitOnly) {
  const ClientKeys keys = ClientKeys::of(Secret::draw());
  for (std::size_t bit = 0; bit < 8 * kProofBytes; ++bit) {
    Proof proof = make_proof(keys, example_claim());
    proof[bit / 8] ^= std::byte{1} << bit % 8;
    EXPECT_FALSE(is_proved(keys.stored, example_claim(), proof)) << bit;
  }
}

// A thief of a users file needs one proof more. The claim and the proof travel in the clear.
TEST(Proofs, GiveTheClientKeyToAThiefOfTheStoredKeys) {
  const ClientKeys keys = ClientKeys::of(Secret::draw());
  Claim claim = example_claim();
  const Proof recorded = make_proof(keys, claim);
  ClientKeys stolen;
  stolen.stored = keys.stored;
  const Proof mask = make_proof(stolen, claim);  // of a client key of zeros
  for (std::size_t i = 0; i < mask.size(); ++i)
    stolen.client_key[i] = recorded[i] ^ mask[i];
  claim.nonce += 1;
  EXPECT_TRUE(is_proved(keys.stored, claim, make_proof(stolen, claim)));
}

TEST(Proofs, NeedTheSecretAndNotWhatTheServerKeeps) {
  const ClientKeys keys = ClientKeys::of(Secret::draw());
  const ClientKeys other = ClientKeys::of(Secret::draw());
  EXPECT_FALSE(is_proved(keys.stored, example_claim(), make_proof(other, example_claim())));
  ClientKeys stolen;
  stolen.stored = keys.stored;
  EXPECT_FALSE(is_proved(keys.stored, example_claim(), make_proof(stolen, example_claim())));
}

TEST(Answers, AreOfOneServerKeyAndOneAccept) {
  const StoredKeys keys = ClientKeys::of(Secret::draw()).stored;
  const StoredKeys other = ClientKeys::of(Secret::draw()).stored;
  const Proof answer = make_answer(keys, example_claim(), as_bytes("accept"));
  EXPECT_EQ(make_answer(keys, example_claim(), as_bytes("accept")), answer);
  EXPECT_NE(make_answer(other, example_claim(), as_bytes("accept")), answer);
  EXPECT_NE(make_answer(keys, example_claim(), as_bytes("accepu")), answer);
}

// Computed by Python from the description in WIRE.md.
TEST(Proofs, AreTheSameEverywhere) {
  const ClientKeys keys = ClientKeys::of(*Secret::parse(std::string(64, '1')));
  EXPECT_EQ(to_hex(keys.client_key), "2c60841f0ccd75372bffd6494f4232d7");
  EXPECT_EQ(to_hex(keys.stored.stored_key),
            "deaa8fc5ba53e84fa0cf0aede203194046948621a7e6ede1c858fade0c0d991e");
  EXPECT_EQ(to_hex(keys.stored.server_key),
            "fcee27c4a307234b6ca5cb2c42b38a48c4a99f135909b9657473b78fcfe85ed1");
  EXPECT_EQ(to_hex(make_proof(keys, example_claim())), "cd15870c476103fd255806d29737bbc9");
  EXPECT_EQ(to_hex(make_answer(keys.stored, example_claim(), as_bytes("accept"))),
            "fc14cb47337f16f9595571421a91d393");
}

}  // namespace
}  // namespace rkv
