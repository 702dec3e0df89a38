#include "common/auth/proof.h"

#include <algorithm>
#include <concepts>
#include <functional>
#include <vector>

#include "common/random.h"

namespace rkv {

namespace {

constexpr std::size_t kMostNameBytes = 64;

template <std::unsigned_integral T>
void append(std::vector<std::byte>& out, T value) {
  out.resize(out.size() + sizeof value);
  store_le(out.data() + out.size() - sizeof value, value);
}
void append(std::vector<std::byte>& out, Bytes bytes) {
  out.resize(out.size() + bytes.size());
  std::ranges::copy(bytes, out.end() - std::ssize(bytes));
}

// Every field has a fixed length but the last, which carries its own: no two claims have the same
// bytes.
std::vector<std::byte> bytes_of(const Claim& claim) {
  std::vector<std::byte> out;
  append(out, as_bytes("rkv proof 1"));
  append(out, claim.stamp);
  append(out, Bytes(claim.cookie));
  append(out, claim.user);
  append(out, claim.nonce);
  append(out, claim.session_to_resume);
  append(out, claim.credits_wanted);
  append(out, static_cast<std::uint16_t>(claim.server.size()));
  append(out, as_bytes(claim.server));
  return out;
}

Proof first_half(const Digest& digest) {
  Proof out;
  std::copy_n(digest.begin(), out.size(), out.begin());
  return out;
}

// Hides the client's key in a proof: only one who knows stored_key can recover it.
Proof exclusive_or(const Proof& one, const Proof& other) {
  Proof out;
  std::ranges::transform(one, other, out.begin(), std::bit_xor{});
  return out;
}
Proof mask_of(const Digest& stored_key, const Claim& claim) {
  return first_half(hmac_sha256(stored_key, bytes_of(claim)));
}

std::optional<unsigned> digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

}  // namespace

bool is_user_name(std::string_view name) {
  const auto is_one_of_these = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMostNameBytes && name.front() != '.' &&
         name.front() != '-' && std::ranges::all_of(name, is_one_of_these);
}

std::uint32_t number_of_user(std::string_view name) {
  const Digest digest = sha256(as_bytes("rkv user " + std::string(name)));
  return std::max(load_le<std::uint32_t>(digest.data()), 1U);
}

std::string to_hex(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[static_cast<unsigned>(b) >> 4];
    out += kDigits[static_cast<unsigned>(b) & 15U];
  }
  return out;
}

bool from_hex(std::string_view text, MutableBytes out) {
  if (text.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto high = digit_of(text[2 * i]);
    const auto low = digit_of(text[2 * i + 1]);
    if (!high || !low) return false;
    out[i] = static_cast<std::byte>(*high << 4 | *low);
  }
  return true;
}

Secret Secret::draw() {
  Secret secret;
  for (std::size_t i = 0; i < secret.bytes.size(); i += 8)
    store_le(secret.bytes.data() + i, random_from_kernel());
  return secret;
}

std::optional<Secret> Secret::parse(std::string_view hex) {
  Secret secret;
  if (!from_hex(hex, secret.bytes)) return std::nullopt;
  return secret;
}

ClientKeys ClientKeys::of(const Secret& secret) {
  ClientKeys keys;
  keys.client_key = first_half(hmac_sha256(secret.bytes, as_bytes("rkv client key")));
  keys.stored = {.stored_key = sha256(keys.client_key),
                 .server_key = hmac_sha256(secret.bytes, as_bytes("rkv server key"))};
  return keys;
}

ClientKeys::~ClientKeys() {
  cleanse(client_key);
  cleanse(stored.stored_key);
  cleanse(stored.server_key);
}

Proof make_proof(const ClientKeys& keys, const Claim& claim) {
  return exclusive_or(keys.client_key, mask_of(keys.stored.stored_key, claim));
}

bool is_proved(const StoredKeys& keys, const Claim& claim, const Proof& proof) {
  Proof client_key = exclusive_or(proof, mask_of(keys.stored_key, claim));
  const bool proved = equals_secret(sha256(client_key), keys.stored_key);
  cleanse(client_key);
  return proved;
}

Proof make_answer(const StoredKeys& keys, const Claim& claim, Bytes accept) {
  std::vector<std::byte> message;
  append(message, as_bytes("rkv server 1"));
  append(message, Bytes(bytes_of(claim)));
  append(message, accept);
  return first_half(hmac_sha256(keys.server_key, message));
}

}  // namespace rkv
