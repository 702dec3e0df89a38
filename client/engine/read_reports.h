// Hashes of keys that this client has recently found by READ, which the server does not notice. The
// client sends them along with its next GET by request, so that the server keeps these keys in
// memory.
//
// Thread safety: as its client.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/wire.h"

namespace rkv::client {

class ReadReports {
 public:
  // Records a hash. Between two take() calls the oldest hashes are overwritten.
  void note(KeyHash hash) { recent_[noted_++ % kMaxUsedHashes] = hash.bits(); }

  // Returns the hashes encoded as a GET's value (WIRE.md), and forgets them. The bytes are valid
  // until the next call.
  Bytes take() {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(noted_, kMaxUsedHashes));
    for (std::size_t i = 0; i < count; ++i)
      store_le(encoded_.data() + i * sizeof(std::uint64_t), recent_[i]);
    noted_ = 0;
    return Bytes(encoded_).first(count * sizeof(std::uint64_t));
  }

 private:
  std::array<std::uint64_t, kMaxUsedHashes> recent_{};
  std::array<std::byte, kMaxUsedHashes * sizeof(std::uint64_t)> encoded_{};
  std::uint64_t noted_ = 0;
};

}  // namespace rkv::client
