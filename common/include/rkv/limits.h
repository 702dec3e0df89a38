// Limits of the store that users meet. Each is enforced where the bytes come in, with
// Code::kTooLarge or Code::kInvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rkv {

inline constexpr std::size_t kMaxKeyBytes = 1024;  // a key has 1 to this many bytes
inline constexpr std::size_t kMaxValueBytes = std::size_t{16} << 20;  // a value has 0 to this many
// Values up to this travel inside requests and answers, longer ones by READs (WIRE.md).
inline constexpr std::size_t kMaxInlineBytes = std::size_t{128} << 10;
inline constexpr std::uint16_t kDefaultPort = 7471;

}  // namespace rkv
