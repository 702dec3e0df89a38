// A fuzz target: one function that takes any bytes, feeds them to a decoder and aborts when a
// promise of that decoder is broken. Two programs call it: libFuzzer's (./run fuzz NAME) and
// replay.cc, which is a test of every ordinary build. See README.md.
//
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
//     rkv::fuzz::Input input(data, size);
//     const auto decoded = decode(input.rest());
//     if (decoded) RKV_CHECK(encode(*decoded) == ..., "a decoder accepts what no encoder makes");
//     return 0;
//   }
//
// REQUIRES of a target: the same bytes do the same thing each time; what one input leaves behind
// is not seen by the next; no input takes more than a few milliseconds.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/bytes.h"
#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace rkv::fuzz {

// Takes an input apart from its beginning. Where the bytes have run out, numbers are 0.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const std::byte*>(data), size) {}

  template <class T>
    requires std::is_integral_v<T>
  T number() {
    T out{};
    const Bytes bytes = take(sizeof out);
    if (!bytes.empty()) std::memcpy(&out, bytes.data(), bytes.size());
    return out;
  }
  // At most `length` bytes, fewer at the end.
  Bytes take(std::size_t length) {
    const Bytes out = rest_.first(std::min(length, rest_.size()));
    rest_ = rest_.subspan(out.size());
    return out;
  }
  Bytes rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  Bytes rest_;
};

// Bytes in memory of exactly their length: AddressSanitizer sees a read one byte beyond them.
class Exact {
 public:
  explicit Exact(Bytes bytes) : bytes_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
    bytes_.shrink_to_fit();
  }
  Bytes bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

inline bool same(Bytes a, Bytes b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace rkv::fuzz
