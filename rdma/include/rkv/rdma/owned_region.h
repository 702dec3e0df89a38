// A region over a buffer that it owns: the buffer cannot be freed, resized or moved while it is
// registered. release() returns it unchanged.
//
//   std::vector<Record> records(1000);
//   auto lent = OwnedRegion<std::vector<Record>>::enroll(pd, std::move(records), access);
//   if (!lent) records = std::move(lent.error().buffer);      // failed: the buffer is returned
//   lent->elements()[7] = ...;                                // use it in place
//   RKV_ASSIGN_OR_RETURN(records, std::move(*lent).release()); // ends the registration
//
// Work that names the region must have completed before release() and before the region is
// destroyed. Thread safety: as MemoryRegion.
#pragma once

#include <expected>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "rkv/rdma/memory.h"

namespace rkv::rdma {

// A heap array of known length; a unique_ptr<T[]> alone does not store its length.
template <class T>
struct HeapArray {
  std::unique_ptr<T[]> elements;
  std::size_t count = 0;
  T* data() { return elements.get(); }
  std::size_t size() const { return count; }
};

// Buffers whose bytes stay in place when the object is moved. Not std::string, which stores short
// texts inside the object, nor std::array. Specialise for your own type that has data() and size().
template <class Buffer>
inline constexpr bool kStaysInPlace = false;
template <class T, class Allocator>
inline constexpr bool kStaysInPlace<std::vector<T, Allocator>> =
    std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>;
template <class T>
inline constexpr bool kStaysInPlace<HeapArray<T>> = std::is_trivially_copyable_v<T>;
template <>
inline constexpr bool kStaysInPlace<Pages> = true;

template <class Buffer>
concept LendableBuffer = kStaysInPlace<Buffer> && std::is_nothrow_move_constructible_v<Buffer>;

// The error of a failed registration, and the buffer.
template <class Buffer>
struct Refused {
  Error error;
  Buffer buffer;
};

template <LendableBuffer Buffer>
class OwnedRegion : public LocalSlices<OwnedRegion<Buffer>, RegisteredSpan> {
 public:
  using Outcome = std::expected<OwnedRegion, Refused<Buffer>>;

  // As MemoryRegion::attach(); an empty buffer is kInvalidArgument.
  [[nodiscard]] static Outcome enroll(const ProtectionDomain& pd, Buffer buffer,
                                      AccessFlags access) {
    auto region = MemoryRegion::attach(pd, bytes_of(buffer), access);
    if (!region) return std::unexpected(Refused<Buffer>{region.error(), std::move(buffer)});
    return OwnedRegion(std::move(buffer), std::move(*region));
  }
  OwnedRegion(OwnedRegion&&) noexcept = default;
  // Not memberwise: the old registration must end before its buffer is freed.
  OwnedRegion& operator=(OwnedRegion&& other) noexcept {
    region_ = std::move(other.region_);
    buffer_ = std::move(other.buffer_);
    return *this;
  }

  // Ends the registration and returns the buffer. On an error (a window is still bound to the
  // region) nothing has changed, and the region remains registered.
  Result<Buffer> release() && {
    RKV_RETURN_IF_ERROR(region_.deregister());
    return std::move(buffer_);
  }

  const MemoryRegion& region() const { return region_; }
  MutableBytes bytes() const { return region_.bytes(); }
  std::size_t size() const { return region_.size(); }
  // The buffer's elements; bytes for Pages. Their number is fixed.
  auto elements() {
    if constexpr (std::is_same_v<Buffer, Pages>) {
      return bytes();
    } else {
      return std::span(buffer_.data(), buffer_.size());
    }
  }
  RegisteredSpan local() const& RKV_LIFETIMEBOUND { return region_.local(); }
  RegisteredSpan local() const&& = delete;  // as MemoryRegion::local()
  RemoteSpan remote() const { return region_.remote(); }

 private:
  friend class LocalSlices<OwnedRegion, RegisteredSpan>;
  OwnedRegion(Buffer buffer, MemoryRegion region)
      : buffer_(std::move(buffer)), region_(std::move(region)) {}
  static MutableBytes bytes_of(Buffer& buffer) {
    if constexpr (std::is_same_v<Buffer, Pages>) {
      return buffer.bytes();
    } else {
      return std::as_writable_bytes(std::span(buffer.data(), buffer.size()));
    }
  }
  RegisteredSpan cut(std::size_t offset, std::size_t length) const {
    return region_.subspan(offset, length);
  }
  Bytes bytes_if_addressable() const { return region_.bytes(); }

  Buffer buffer_;
  MemoryRegion region_;  // declared after the buffer: the registration ends first
};

}  // namespace rkv::rdma
