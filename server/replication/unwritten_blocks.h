// UnwrittenBlocks: which blocks of the log were sent to a backup, and are not on its disk.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>

namespace rkv::server {

class UnwrittenBlocks {
 public:
  // `version`: of the block's last entry.
  void sent(std::uint64_t version, std::uint64_t bytes) {
    blocks_.push_back({.version = version, .bytes = bytes});
    bytes_ += bytes;
  }
  // The disk has the log up to this version. Returns how many bytes it has taken.
  std::uint64_t written(std::uint64_t version) {
    const std::uint64_t before = bytes_;
    for (; !blocks_.empty() && blocks_.front().version <= version; blocks_.pop_front())
      bytes_ -= blocks_.front().bytes;
    return before - bytes_;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  struct Block {
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
  };
  std::deque<Block> blocks_{};
  std::uint64_t bytes_ = 0;
};

}  // namespace rkv::server
