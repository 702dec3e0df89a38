// The pieces of one request as a verbs scatter/gather list, on the stack.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "rkv/check.h"
#include "rkv/rdma/memory.h"

namespace rkv::rdma::detail {

inline constexpr std::uint32_t kMaxSge = 32;

class PieceList {
 public:
  explicit PieceList(std::span<const RegisteredSpan> pieces)
      : count_(static_cast<int>(pieces.size())) {
    RKV_CHECK(pieces.size() <= list_.size(), "too many pieces in one request");
    std::ranges::transform(pieces, list_.begin(), [](const RegisteredSpan& s) { return s.sge(); });
  }
  ibv_sge* data() { return list_.data(); }
  int size() const { return count_; }

 private:
  std::array<ibv_sge, kMaxSge> list_;
  int count_;
};

}  // namespace rkv::rdma::detail
