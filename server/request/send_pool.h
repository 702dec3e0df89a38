// SendPool: registered buffers of two sizes. Replies are encoded into them and sent from them.
//
// Thread safety: one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/wire.h"
#include "rdma/transport/transport.h"

namespace rkv::server {

class SendPool {
 public:
  // Fits every reply except longer values and statistics: a header of 64 bytes and an error text.
  static constexpr std::size_t kSmallBytes = 256;

  struct Buffer {
    std::uint32_t index = 0;
    MutableBytes bytes;
    std::uint32_t local_key = 0;
  };

  static Result<SendPool> create(rdma::Transport& transport, std::uint32_t small_count,
                                 std::uint32_t large_count);

  // Takes a buffer of at least `length` bytes (at most kMaxMessageBytes). Nothing if none is free:
  // retry after a give_back(). Never blocks.
  std::optional<Buffer> take(std::size_t length);
  void give_back(std::uint32_t index);
  std::size_t small_free() const { return small_.size(); }
  std::size_t large_free() const { return large_.size(); }
  bool is_large(std::uint32_t index) const { return index >= small_count_; }

 private:
  SendPool() = default;
  std::unique_ptr<rdma::Region> region_;
  std::uint32_t small_count_ = 0;
  std::vector<std::uint32_t> small_;  // free indices; reserved in full, so nothing allocates later
  std::vector<std::uint32_t> large_;
};

}  // namespace rkv::server
