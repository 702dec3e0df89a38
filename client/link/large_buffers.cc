#include "client/link/large_buffers.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/check.h"
#include "rkv/limits.h"

namespace rkv::client {

Result<LargeBuffers::Buffer*> LargeBuffers::take(std::size_t length) {
  RKV_CHECK(length <= kMaxValueBytes, "a buffer longer than any value");
  const std::size_t bytes = std::bit_ceil(std::max(length, kLeastBytes));
  Buffer* best = nullptr;
  for (const auto& one : all_) {
    const bool fits = !one->taken && one->bytes().size() >= length;
    if (fits && (best == nullptr || one->bytes().size() < best->bytes().size())) best = one.get();
  }
  if (best == nullptr) {
    // Frees idle buffers, which are all too short, until the new buffer fits the limit.
    std::erase_if(all_, [&](const auto& one) {
      const bool full = held_bytes_ + bytes > limit_bytes_ || all_.size() >= kMostBuffers;
      if (!full || one->taken) return false;
      held_bytes_ -= one->bytes().size();
      return true;
    });
    if (held_bytes_ + bytes > limit_bytes_ || all_.size() >= kMostBuffers) {
      return fail(Code::kBusy, "the memory for large values is in use");
    }
    RKV_ASSIGN_OR_RETURN(auto region, transport_->allocate(bytes, rdma::Access::kRemoteRead));
    all_.push_back(std::make_unique<Buffer>(Buffer{.region = std::move(region)}));
    best = all_.back().get();
    held_bytes_ += best->bytes().size();
  }
  best->taken = true;
  return best;
}

}  // namespace rkv::client
