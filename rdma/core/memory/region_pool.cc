#include "rkv/rdma/region_pool.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <vector>

#include "rdma/core/checked/checked_hooks.h"
#include "rkv/rdma/owned_region.h"

namespace rkv::rdma {
namespace detail {

// Lives until the pool and the last piece are destroyed. A plain reference count suffices: one
// thread.
struct RegionPoolState {
  struct Class {
    std::size_t piece_bytes = 0;
    std::size_t stride = 0;
    std::size_t begin = 0;  // offset in the region
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    // Capacity for all pieces, so that returning one does not allocate.
    std::vector<std::uint32_t> free;
  };

  OwnedRegion<Pages> region;
  std::vector<Class> classes;
  RegionPoolStatistics statistics;
  std::uint64_t holders = 1;

  explicit RegionPoolState(OwnedRegion<Pages> from) : region(std::move(from)) {}
  void leave() noexcept {
    if (--holders == 0) delete this;
  }
};

}  // namespace detail

namespace {

using State = detail::RegionPoolState;

constexpr std::size_t kMaxAlignment = 4096;

Status check(const RegionPoolOptions& options) {
  if (options.classes.empty())
    return fail(Code::kInvalidArgument, "a pool needs at least one class");
  if (!std::has_single_bit(options.alignment) || options.alignment > kMaxAlignment) {
    return fail(Code::kInvalidArgument, "alignment is a power of two, at most 4096");
  }
  std::size_t before = 0;
  for (const PieceClass& one : options.classes) {
    if (one.bytes <= before || one.bytes > kMaxSgeBytes || one.count == 0) {
      return fail(
          Code::kInvalidArgument,
          "classes must ascend in bytes, from 1 byte to below 2 GiB, with at least one piece each");
    }
    before = one.bytes;
  }
  return {};
}

// Places the classes one after another; returns their total length.
Result<std::size_t> lay_out(const RegionPoolOptions& options, std::vector<State::Class>& classes) {
  std::size_t end = 0;
  std::uint32_t pieces = 0;
  for (const PieceClass& one : options.classes) {
    const std::size_t stride = (one.bytes + options.alignment - 1) & ~(options.alignment - 1);
    // Neither product nor sum wraps: a stride is at most 2 GiB, a count less than 2^32.
    const std::size_t length = stride * one.count;
    if (length > std::numeric_limits<std::size_t>::max() / 2 - end ||
        one.count > std::numeric_limits<std::uint32_t>::max() - pieces) {
      return fail(Code::kTooLarge, "the classes of a pool have too many bytes or pieces in total");
    }
    classes.push_back({.piece_bytes = one.bytes,
                       .stride = stride,
                       .begin = end,
                       .first = pieces,
                       .count = one.count,
                       .free = {}});
    end += length;
    pieces += one.count;
  }
  return end;
}

}  // namespace

Result<RegionPool> RegionPool::create(const ProtectionDomain& pd,
                                      const RegionPoolOptions& options) {
  RKV_RETURN_IF_ERROR(check(options));
  std::vector<State::Class> classes;
  RKV_ASSIGN_OR_RETURN(const std::size_t length, lay_out(options, classes));
  if (options.budget_bytes != 0 && length > options.budget_bytes) {
    return fail(Code::kTooLarge, "the classes of a pool need more than budget_bytes");
  }
  RKV_ASSIGN_OR_RETURN(Pages pages, Pages::map(length, options.pages));
  const std::size_t page_bytes = pages.page_bytes();
  auto region = OwnedRegion<Pages>::enroll(pd, std::move(pages), options.access);
  if (!region) return std::unexpected(region.error().error);
  auto state = std::make_unique<State>(std::move(*region));
  state->statistics = {.registered_bytes = length,
                       .page_bytes = page_bytes,
                       .pieces = classes.back().first + classes.back().count};
  for (State::Class& one : classes) {
    one.free.reserve(one.count);
    // The lowest piece is taken first, so that light use touches few pages.
    for (std::uint32_t i = one.count; i-- > 0;)
      one.free.push_back(i);
  }
  state->classes = std::move(classes);
  return RegionPool(state.release());
}

RegionPool& RegionPool::operator=(RegionPool&& other) noexcept {
  if (this == &other) return *this;
  if (state_ != nullptr) state_->leave();
  state_ = std::exchange(other.state_, nullptr);
  return *this;
}

RegionPool::~RegionPool() {
  if (state_ != nullptr) state_->leave();
}

TakenPiece RegionPool::take(std::size_t bytes) {
  RKV_CHECK(state_ != nullptr, "the pool was moved away");
  RegionPoolStatistics& statistics = state_->statistics;
  bool passed_over = false;
  for (State::Class& one : state_->classes) {
    if (one.piece_bytes < bytes) continue;
    if (one.free.empty()) {
      passed_over = true;
      continue;
    }
    const std::uint32_t index = one.free.back();
    one.free.pop_back();
    ++state_->holders;
    ++statistics.taken;
    statistics.promoted += passed_over ? 1 : 0;
    statistics.in_use_most = std::max(statistics.in_use_most, ++statistics.in_use);
    return RegionPiece(state_, one.first + index,
                       state_->region.subspan(one.begin + index * one.stride, one.piece_bytes));
  }
  ++statistics.refused;
  return std::nullopt;
}

std::size_t RegionPool::largest() const {
  return state_->classes.back().piece_bytes;
}
const RegionPoolStatistics& RegionPool::statistics() const {
  return state_->statistics;
}
const MemoryRegion& RegionPool::region() const {
  return state_->region.region();
}

RemoteSpan RegionPiece::remote() const {
  return {
      .address = whole_.address(), .length = whole_.size(), .rkey = state_->region.region().rkey()};
}

void RegionPiece::give_back() noexcept {
  if (state_ == nullptr) return;
  checked::piece_ends(whole_.bytes());
  for (State::Class& one : state_->classes) {
    if (index_ >= one.first + one.count) continue;
    one.free.push_back(index_ - one.first);
    break;
  }
  --state_->statistics.in_use;
  std::exchange(state_, nullptr)->leave();
}

}  // namespace rkv::rdma
