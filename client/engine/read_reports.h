// ReadReports: hashes of keys that this client has recently found by READ, which the server does
// not notice. The client sends them along with its next GET by request, so that the server keeps
// these keys in memory. If the server drops the least recently used keys, a client that only READs
// sends one GET by request for each kMaxUsedHashes READs.
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
  // Says whether the connected server wants reports, or only takes them if they come.
  void set_wanted(bool wanted) { due_at_ = wanted ? noted_ + kMaxUsedHashes : kNever; }
  // Whether the next GET should go by request for the sake of its reports.
  bool is_due() const { return noted_ >= due_at_; }
  // Returns is_due(). If true, the caller's GET will carry a report, so no other GET needs to
  // before kMaxUsedHashes further READs. If that GET is never sent, others carry its hashes.
  bool claim() {
    if (!is_due()) [[likely]]
      return false;
    due_at_ = std::max(due_at_, noted_ - std::min(noted_, kRoom)) + kMaxUsedHashes;
    return true;
  }

  // Records a hash. If kRoom hashes were not sent, the oldest are overwritten.
  void note(KeyHash hash) { recent_[noted_++ % kRoom] = hash.bits(); }

  // Returns the oldest hashes that were not sent, encoded as a GET's value (WIRE.md). The bytes are
  // valid until the next call.
  Bytes next() {
    const std::uint64_t first = std::max(sent_, noted_ - std::min<std::uint64_t>(noted_, kRoom));
    const std::uint64_t count = std::min<std::uint64_t>(noted_ - first, kMaxUsedHashes);
    for (std::uint64_t i = 0; i < count; ++i)
      store_le(encoded_.data() + i * sizeof(std::uint64_t), recent_[(first + i) % kRoom]);
    end_ = first + count;
    return Bytes(encoded_).first(count * sizeof(std::uint64_t));
  }
  // Call it when the bytes of the last next() are on their way.
  void sent() {
    sent_ = end_;
    if (due_at_ != kNever) due_at_ = std::max(due_at_, sent_ + kMaxUsedHashes);
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // Room for more than one report: READs continue while a GET waits for its turn to be sent,
  // thousands at a time.
  static constexpr std::uint64_t kRoom = 16 * kMaxUsedHashes;

  std::array<std::uint64_t, kRoom> recent_{};
  std::array<std::byte, kMaxUsedHashes * sizeof(std::uint64_t)> encoded_{};
  // Counts of hashes: all that were noted, those that were sent, and those that will have been sent
  // once the report of the last next() is sent.
  std::uint64_t noted_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t due_at_ = kNever;
};

}  // namespace rkv::client
