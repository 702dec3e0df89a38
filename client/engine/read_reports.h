// Hashes of keys that this client has recently found by READ, which the server does not notice. The
// client sends them along with its next GET by request, so that the server keeps these keys in
// memory. To a server that drops the keys used least recently, a client that READs only sends one
// GET by request for each kMaxUsedHashes READs.
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
  // The server that this client is connected to wants reports, or takes them if they come.
  void set_wanted(bool wanted) {
    wanted_ = wanted;
    due_at_ = wanted ? noted_ + kMaxUsedHashes : kNever;
  }
  // Whether the next GET should go by request for the sake of its reports.
  bool is_due() const { return noted_ >= due_at_; }
  // Returns is_due(), once: true means that the caller will send the reports.
  bool claim() {
    if (!is_due()) [[likely]]
      return false;
    due_at_ = noted_ + kMaxUsedHashes;
    return true;
  }

  // Records a hash. Between two take() calls the oldest hashes are overwritten.
  void note(KeyHash hash) { recent_[noted_++ % kMaxUsedHashes] = hash.bits(); }

  // Returns the hashes encoded as a GET's value (WIRE.md), and forgets them. The bytes are valid
  // until the next call.
  Bytes take() {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(noted_, kMaxUsedHashes));
    for (std::size_t i = 0; i < count; ++i)
      store_le(encoded_.data() + i * sizeof(std::uint64_t), recent_[i]);
    noted_ = 0;
    due_at_ = wanted_ ? kMaxUsedHashes : kNever;
    return Bytes(encoded_).first(count * sizeof(std::uint64_t));
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::array<std::uint64_t, kMaxUsedHashes> recent_{};
  std::array<std::byte, kMaxUsedHashes * sizeof(std::uint64_t)> encoded_{};
  std::uint64_t noted_ = 0;  // since the last take()
  std::uint64_t due_at_ = kNever;
  bool wanted_ = false;
};

}  // namespace rkv::client
