// Many pieces of one registration: buffers for requests, taken and given back without a system
// call, an allocation or a lock.
//
//   const std::array classes = {PieceClass{.bytes = 4096, .count = 1024},
//                               PieceClass{.bytes = 65536, .count = 64}};
//   RKV_ASSIGN_OR_RETURN(RegionPool pool, RegionPool::create(pd, {.classes = classes}));
//   if (auto piece = pool.take(1500)) {                   // empty: all are out
//     batch.read(1, OpFlags::kSignaled, piece->local(1500), from);
//     ... keep `piece` until the completion: its end gives the bytes back ...
//   }
//
// A piece comes from the smallest class that is large enough and has one free. Pieces hold
// whatever was in them before. They keep the registration alive, also without the pool.
//
// Thread safety: a pool and its pieces are one thread's, together. One pool per thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "rkv/export.h"
#include "rkv/rdma/memory.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct PieceClass {
  std::size_t bytes = 4096;
  std::uint32_t count = 64;
};

struct RegionPoolOptions {
  std::span<const PieceClass> classes;  // in rising order of bytes; read by create() alone
  AccessFlags access = AccessFlags::kLocalWrite;
  // Where a piece begins: 64 is a line of the cache, so that pieces do not share one. A power of
  // two, at most 4096.
  std::size_t alignment = 64;
  PageOptions pages = {.size = PageSize::k2MiB};
  // kTooLarge where the classes need more; 0 is no limit.
  std::size_t budget_bytes = 0;
};

struct RegionPoolStatistics {
  std::size_t registered_bytes = 0;
  std::size_t page_bytes = 0;  // which pages were got
  std::uint32_t pieces = 0;
  std::uint32_t in_use = 0;
  std::uint32_t in_use_most = 0;  // ever at a time
  std::uint64_t taken = 0;
  std::uint64_t refused = 0;   // take() found none
  std::uint64_t promoted = 0;  // came from a larger class because the fitting one was empty
};

namespace detail {
struct RegionPoolState;
}

class RKV_EXPORT RegionPiece {
 public:
  RegionPiece(RegionPiece&& other) noexcept
      : state_(std::exchange(other.state_, nullptr)), index_(other.index_), whole_(other.whole_) {}
  RegionPiece& operator=(RegionPiece&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    state_ = std::exchange(other.state_, nullptr);
    index_ = other.index_;
    whole_ = other.whole_;
    return *this;
  }
  ~RegionPiece() { give_back(); }

  std::size_t size() const { return whole_.size(); }  // of its class, at least what was asked
  MutableBytes bytes() const { return whole_.bytes(); }
  RegisteredSpan local() const& RKV_LIFETIMEBOUND { return whole_; }
  // REQUIRES: length <= size().
  RegisteredSpan local(std::size_t length) const& RKV_LIFETIMEBOUND { return whole_.first(length); }
  // Of a piece that ends with the statement: its bytes would be another's before the work is done.
  RegisteredSpan local() const&& = delete;
  RegisteredSpan local(std::size_t length) const&& = delete;
  // With the rights of the whole pool: a peer that has it can name its neighbours' addresses too.
  // Where that matters: window.h, lease.h.
  RemoteSpan remote() const;

 private:
  friend class RegionPool;
  RegionPiece(detail::RegionPoolState* state, std::uint32_t index, const RegisteredSpan& whole)
      : state_(state), index_(index), whole_(whole) {}
  void give_back() noexcept;
  detail::RegionPoolState* state_;
  std::uint32_t index_;
  RegisteredSpan whole_;
};

// What RegionPool::take() gives. A temporary one cannot be looked into, since its piece goes back
// to the pool with the statement: `pool.take(64)->local()` does not compile.
class TakenPiece : public std::optional<RegionPiece> {
 public:
  using std::optional<RegionPiece>::optional;
  TakenPiece(RegionPiece&& piece) noexcept : std::optional<RegionPiece>(std::move(piece)) {}

  RegionPiece* operator->() & { return &**this; }
  const RegionPiece* operator->() const& { return &**this; }
  RegionPiece* operator->() && = delete;
};

class RKV_EXPORT RegionPool {
 public:
  // kInvalidArgument names what is wrong with the options; kTooLarge as above; else as
  // MemoryRegion::attach(). System calls; touches every page.
  static Result<RegionPool> create(const ProtectionDomain& pd, const RegionPoolOptions& options);
  RegionPool(RegionPool&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  RegionPool& operator=(RegionPool&& other) noexcept;
  ~RegionPool();

  // Empty where no class is large enough or none of them has a piece left.
  TakenPiece take(std::size_t bytes);
  std::size_t largest() const;
  const RegionPoolStatistics& statistics() const;
  const MemoryRegion& region() const;

 private:
  explicit RegionPool(detail::RegionPoolState* state) : state_(state) {}
  detail::RegionPoolState* state_;
};

}  // namespace rkv::rdma
