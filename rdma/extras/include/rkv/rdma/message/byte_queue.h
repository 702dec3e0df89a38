// A byte FIFO in one ring buffer, which grows by doubling up to a limit and does not shrink.
//
//   ByteQueue queue(1 << 20);
//   if (bytes.size() <= queue.room()) queue.push(bytes);
//   std::size_t count = queue.pop(into);
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "rkv/bytes.h"
#include "rkv/check.h"

namespace rkv::rdma {

class ByteQueue {
 public:
  explicit ByteQueue(std::size_t limit) : limit_(limit) {}
  // Leaves `other` empty.
  ByteQueue(ByteQueue&& other) noexcept
      : limit_(other.limit_),
        ring_(std::move(other.ring_)),
        first_(std::exchange(other.first_, 0)),
        size_(std::exchange(other.size_, 0)) {}
  ByteQueue& operator=(ByteQueue&&) = delete;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::size_t room() const { return limit_ - size_; }

  // REQUIRES: bytes.size() <= room().
  void push(Bytes bytes) {
    RKV_CHECK(bytes.size() <= room(), "the queue cannot hold this many bytes");
    if (size_ + bytes.size() > ring_.size()) grow(size_ + bytes.size());
    const std::size_t end = (first_ + size_) % std::max<std::size_t>(ring_.size(), 1);
    const std::size_t straight = std::min(bytes.size(), ring_.size() - end);
    copy(ring_.data() + end, bytes.first(straight));
    copy(ring_.data(), bytes.subspan(straight));
    size_ += bytes.size();
  }
  // Takes up to into.size() bytes; returns their number.
  std::size_t pop(MutableBytes into) {
    const std::size_t count = std::min(into.size(), size_);
    const std::size_t straight = std::min(count, ring_.size() - first_);
    copy(into.data(), Bytes(ring_).subspan(first_, straight));
    copy(into.data() + straight, Bytes(ring_).first(count - straight));
    size_ -= count;
    first_ = size_ == 0 ? 0 : (first_ + count) % ring_.size();
    return count;
  }

 private:
  static void copy(std::byte* to, Bytes from) {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void grow(std::size_t least) {
    std::vector<std::byte> larger(std::max({least, 2 * ring_.size(), std::size_t{4096}}));
    const std::size_t count = size_;
    pop(larger);
    ring_ = std::move(larger);
    first_ = 0;
    size_ = count;
  }
  std::size_t limit_;
  std::vector<std::byte> ring_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace rkv::rdma
