// WriteTag: whose write an entry of a replicated log is, so that a replica which has the write also
// has its outcome. A later primary answers from it a client that has lost an answer.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/wire.h"

namespace rkv::server {

struct WriteTag {
  std::uint64_t session = 0;   // 0: nobody asks for the outcome
  std::uint64_t sequence = 0;  // of the request
  std::uint64_t user = 0;      // user_digest() of the session's; at most kUserBits long
  Opcode opcode = Opcode::kPut;
  std::uint8_t index = 0;  // of the operation in its pack
  std::uint8_t count = 0;  // operations of the pack; 0: not in a pack
};
inline constexpr std::size_t kWriteTagBytes = 24;
inline constexpr int kUserBits = 40;

// Session 8, sequence 8, opcode 1, index 1, count 1, user 5; little-endian.
inline void encode(const WriteTag& tag, std::byte* out) {
  store_le(out, tag.session);
  store_le(out + 8, tag.sequence);
  store_le(out + 16, std::uint64_t{static_cast<std::uint8_t>(tag.opcode)} |
                         (std::uint64_t{tag.index} << 8) | (std::uint64_t{tag.count} << 16) |
                         (tag.user << (64 - kUserBits)));
}
// Decodes the bytes of encode().
inline WriteTag decode_write_tag(const std::byte* from) {
  const auto rest = load_le<std::uint64_t>(from + 16);
  return {.session = load_le<std::uint64_t>(from),
          .sequence = load_le<std::uint64_t>(from + 8),
          .user = rest >> (64 - kUserBits),
          .opcode = static_cast<Opcode>(rest & 0xFFU),
          .index = static_cast<std::uint8_t>(rest >> 8),
          .count = static_cast<std::uint8_t>(rest >> 16)};
}

}  // namespace rkv::server
