#include "server/request/send_pool.h"

#include "common/check.h"

namespace rkv::server {

Result<SendPool> SendPool::create(rdma::Transport& transport, std::uint32_t small_count,
                                  std::uint32_t large_count) {
  SendPool pool;
  const std::size_t bytes = small_count * kSmallBytes + large_count * kMaxMessageBytes;
  RKV_ASSIGN_OR_RETURN(pool.region_, transport.allocate(bytes, rdma::Access::kLocal));
  pool.small_count_ = small_count;
  // Indices are taken from the back, lowest first, so that few buffers in use touch little memory.
  for (std::uint32_t i = small_count; i-- > 0;)
    pool.small_.push_back(i);
  for (std::uint32_t i = large_count; i-- > 0;)
    pool.large_.push_back(small_count + i);
  return pool;
}

std::optional<SendPool::Buffer> SendPool::take(std::size_t length) {
  RKV_CHECK(length <= kMaxMessageBytes, "a reply longer than any message");
  const bool small = length <= kSmallBytes && !small_.empty();
  auto& free = small ? small_ : large_;
  if (free.empty()) return std::nullopt;
  const std::uint32_t index = free.back();
  free.pop_back();
  const std::size_t offset =
      small ? index * kSmallBytes
            : small_count_ * kSmallBytes + (index - small_count_) * kMaxMessageBytes;
  return Buffer{.index = index,
                .bytes = region_->bytes().subspan(offset, small ? kSmallBytes : kMaxMessageBytes),
                .local_key = region_->local_key()};
}

void SendPool::give_back(std::uint32_t index) {
  (index < small_count_ ? small_ : large_).push_back(index);
}

}  // namespace rkv::server
