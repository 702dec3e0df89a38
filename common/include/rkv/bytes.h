// Spans of bytes, and conversions to and from text. A span does not own its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace rkv {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace rkv
