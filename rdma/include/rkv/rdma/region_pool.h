// Many pieces of one registration: buffers for requests, taken and returned without a system call,
// an allocation or a lock.
//
//   const std::array classes = {PieceClass{.bytes = 4096, .count = 1024},
//                               PieceClass{.bytes = 65536, .count = 64}};
//   RKV_ASSIGN_OR_RETURN(RegionPool pool, RegionPool::create(pd, {.classes = classes}));
//   if (auto piece = pool.take(1500)) {                   // empty: all are in use
//     batch.read(1, OpFlags::kSignaled, piece->local(1500), from);
//     ... keep `piece` until the completion: its destructor returns the bytes ...
//   }
//
// A piece comes from the smallest class that is large enough and has one free. Pieces are not
// cleared between uses. They keep the registration alive, even after the pool is destroyed.
//
// Thread safety: a pool and its pieces belong to one thread. Use one pool per thread.
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
  std::span<const PieceClass> classes;  // in ascending order of bytes; read only by create()
  AccessFlags access = AccessFlags::kLocalWrite;
  // Alignment of pieces: 64 is a cache line, so that pieces do not share one. A power of two, at
  // most 4096.
  std::size_t alignment = 64;
  PageOptions pages = {.size = PageSize::k2MiB};
  // kTooLarge if the classes need more; 0 means no limit.
  std::size_t budget_bytes = 0;
};

struct RegionPoolStatistics {
  std::size_t registered_bytes = 0;
  std::size_t page_bytes = 0;  // size of the pages in use
  std::uint32_t pieces = 0;
  std::uint32_t in_use = 0;
  std::uint32_t in_use_most = 0;  // maximum in use at a time
  std::uint64_t taken = 0;
  std::uint64_t refused = 0;   // take() found none
  std::uint64_t promoted = 0;  // taken from a larger class because the fitting class was empty
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

  // The class's size, at least the size requested.
  std::size_t size() const { return whole_.size(); }
  MutableBytes bytes() const { return whole_.bytes(); }
  RegisteredSpan local() const& RKV_LIFETIMEBOUND { return whole_; }
  // REQUIRES: length <= size().
  RegisteredSpan local(std::size_t length) const& RKV_LIFETIMEBOUND { return whole_.first(length); }
  // Deleted for temporaries: the bytes would be reused before the work is done.
  RegisteredSpan local() const&& = delete;
  RegisteredSpan local(std::size_t length) const&& = delete;
  // Has the rights of the whole pool: a peer that has it can also name the addresses of
  // neighbouring pieces. Where that matters, use window.h or lease.h.
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

// The result of RegionPool::take(). Access through a temporary is deleted, since the piece returns
// to the pool at the end of the statement: `pool.take(64)->local()` does not compile.
class TakenPiece : public std::optional<RegionPiece> {
 public:
  using std::optional<RegionPiece>::optional;
  // NOLINTNEXTLINE(google-explicit-constructor): as std::optional's
  TakenPiece(RegionPiece&& piece) noexcept : std::optional<RegionPiece>(std::move(piece)) {}

  RegionPiece* operator->() & { return &**this; }
  const RegionPiece* operator->() const& { return &**this; }
  RegionPiece* operator->() && = delete;
};

class RKV_EXPORT RegionPool {
 public:
  // kInvalidArgument names the faulty option; kTooLarge as above; otherwise as
  // MemoryRegion::attach(). Makes system calls and touches every page.
  static Result<RegionPool> create(const ProtectionDomain& pd, const RegionPoolOptions& options);
  RegionPool(RegionPool&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  RegionPool& operator=(RegionPool&& other) noexcept;
  ~RegionPool();

  // Returns a piece of at least `bytes`; empty if no class is large enough or none of them has a
  // free piece. Does not block.
  TakenPiece take(std::size_t bytes);
  std::size_t largest() const;
  const RegionPoolStatistics& statistics() const;
  const MemoryRegion& region() const;

 private:
  explicit RegionPool(detail::RegionPoolState* state) : state_(state) {}
  detail::RegionPoolState* state_;
};

}  // namespace rkv::rdma
