// How a client proves that it knows a user's secret, and a server that it knows the user. WIRE.md
// ("Users") has the bytes.
//
// Secrets are drawn, not chosen, so that none can be found by trying and no digest has to be slow.
// The server stores digests only: with them alone nobody can prove to be the user. With them and
// one proof, recorded or received while posing as the server, a thief has the client's key and can.
// So after a theft of the digests the users need new secrets. This is the idea of SCRAM (RFC 5802),
// and section 9 there says the same of it. A proof is about one connection request; challenges.h
// bounds how often it is good, and for how long.
//
// Thread safety: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/auth/digest.h"
#include "common/bytes.h"

namespace rkv {

inline constexpr std::size_t kProofBytes = 16;
using Proof = std::array<std::byte, kProofBytes>;  // also of cookies and answers

// 1 to 64 letters, digits, '.', '_' and '-'; the first is neither '.' nor '-'.
bool is_user_name(std::string_view name);
// How connection requests name a user. Never 0. Two names may have the same number.
std::uint32_t number_of_user(std::string_view name);

// Two lower-case digits a byte.
std::string to_hex(Bytes bytes);
// Returns false if `text` is not exactly the digits of `out`; digits may be capitals.
bool from_hex(std::string_view text, MutableBytes out);

// A user's secret: 32 random bytes, for people 64 hexadecimal digits.
struct Secret {
  Digest bytes{};
  static Secret draw();
  static std::optional<Secret> parse(std::string_view hex);
  ~Secret() { cleanse(bytes); }
};

// The keys that a server keeps of a secret. `server_key` lets a thief pose as the server.
// `stored_key` and one proof of the user give the client's key.
struct StoredKeys {
  Digest stored_key{};
  Digest server_key{};
  bool operator==(const StoredKeys&) const = default;
};

// The keys that a client keeps of a secret.
struct ClientKeys {
  Proof client_key{};
  StoredKeys stored{};
  static ClientKeys of(const Secret& secret);
  ~ClientKeys();
};

// The connection request that a proof is about.
struct Claim {
  std::uint64_t stamp = 0;  // of the challenge
  Proof cookie{};           // of the challenge
  std::uint32_t user = 0;
  std::uint64_t nonce = 0;
  std::uint64_t session_to_resume = 0;
  std::uint16_t credits_wanted = 0;
  std::string_view server{};  // the address that the client called
};

Proof make_proof(const ClientKeys& keys, const Claim& claim);
bool is_proved(const StoredKeys& keys, const Claim& claim, const Proof& proof);
// The server's proof to the client, about the same claim and the accept that it stands in.
Proof make_answer(const StoredKeys& keys, const Claim& claim, Bytes accept);

}  // namespace rkv
