// The keys that this client has found by READ lately, of which the server knows nothing: told along
// with a GET that the server must be asked for, so that what is read stays in its memory.
//
// Thread safety: as its client.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "common/wire.h"

namespace rkv::client {

class UsedHashes {
 public:
  // The oldest are forgotten when nobody asks.
  void note(KeyHash hash) { recent_[noted_++ % kMaxUsedHashes] = hash.bits(); }

  // As a GET's value (WIRE.md), and forgets them. Valid until the next call.
  Bytes take() {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(noted_, kMaxUsedHashes));
    for (std::size_t i = 0; i < count; ++i)
      store_le(told_.data() + i * sizeof(std::uint64_t), recent_[i]);
    noted_ = 0;
    return Bytes(told_).first(count * sizeof(std::uint64_t));
  }

 private:
  std::array<std::uint64_t, kMaxUsedHashes> recent_{};
  std::array<std::byte, kMaxUsedHashes * sizeof(std::uint64_t)> told_{};
  std::uint64_t noted_ = 0;
};

}  // namespace rkv::client
