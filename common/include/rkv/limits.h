// User-visible limits of the store. Each is enforced where the bytes enter, with Code::kTooLarge or
// Code::kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rkv {

inline constexpr std::size_t kMaxKeyBytes = 1024;  // a key has 1 to this many bytes
inline constexpr std::size_t kMaxValueBytes = std::size_t{16} << 20;  // a value has 0 to this many
// Values of up to this length travel inside requests and responses, longer ones by READ (WIRE.md).
inline constexpr std::size_t kMaxInlineBytes = std::size_t{128} << 10;
inline constexpr std::uint16_t kDefaultPort = 7471;

}  // namespace rkv
