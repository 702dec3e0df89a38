// Pieces of registered memory: local (RegisteredSpan, RegisteredSource) and a peer's (RemoteSpan),
// with the same slicing operations.
//
//   RegisteredSpan header = region.first(64);             // aborts if it reaches outside
//   if (auto room = region.try_subspan(offset, length))   // empty if it reaches outside
//     batch.read(1, OpFlags::kSignaled, *room, *offered.subspan(offset, length));
//
// Types that name local memory are RegisteredSpan and RegisteredSource, MemoryRegion and
// ReadOnlyRegion; a dma-buf is registered as a MemoryRegion. They have subspan, first, last,
// element and piece, which abort: a wrong offset there is a bug in this program. Use the try_ forms
// for numbers from outside the program; they return an empty optional instead.
//
// RemoteSpan names a peer's memory. It depends on data that the peer sent, so every slicing
// operation returns an optional, and its arithmetic never wraps.
//
// Neither kind keeps its region alive. Thread safety: values. Source: ibv_post_send(3), ibv_sge.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "rkv/bytes.h"
#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

// The most bytes that one piece of a request names. Verbs allow one byte more, but the top bit of a
// length has another meaning to some devices: mlx5 marks inline data by it.
inline constexpr std::size_t kMaxSgeBytes = 0x7FFF'FFFF;

// Whether [offset, offset + length) lies in [0, whole). Never wraps.
constexpr bool lies_inside(std::uint64_t offset, std::uint64_t length, std::uint64_t whole) {
  return offset <= whole && length <= whole - offset;
}

// The slicing operations, for a type with size() and cut(offset, length), which does not check.
// Slicing a temporary that owns its memory (a region; its Piece is another type) does not compile:
// the registration would end before the work that names the slice.
template <class Self, class Piece>
class LocalSlices {
  static constexpr bool kOwns = !std::same_as<Self, Piece>;

 public:
  // REQUIRES for all operations without try_: the piece lies inside.
  Piece subspan(std::size_t offset, std::size_t length) const& {
    RKV_CHECK(lies_inside(offset, length, self().size()),
              "a slice of registered memory reaches past its end");
    return self().cut(offset, length);
  }
  Piece first(std::size_t length) const& { return subspan(0, length); }
  Piece last(std::size_t length) const& {
    RKV_CHECK(length <= self().size(), "a slice of registered memory reaches past its end");
    return self().cut(self().size() - length, length);
  }
  // The index-th T of an array that begins at the start of this memory.
  template <class T>
  Piece element(std::size_t index) const& {
    const auto found = try_element<T>(index);
    RKV_CHECK(found.has_value(), "an element of registered memory lies past its end");
    return *found;
  }
  // The bytes that `inside` names by pointer.
  Piece piece(Bytes inside) const& {
    const auto found = try_piece(inside);
    RKV_CHECK(found.has_value(), "a pointer leads outside the registered memory");
    return *found;
  }

  std::optional<Piece> try_subspan(std::size_t offset, std::size_t length) const& {
    if (!lies_inside(offset, length, self().size())) return std::nullopt;
    return self().cut(offset, length);
  }
  std::optional<Piece> try_first(std::size_t length) const& { return try_subspan(0, length); }
  std::optional<Piece> try_last(std::size_t length) const& {
    if (length > self().size()) return std::nullopt;
    return self().cut(self().size() - length, length);
  }
  template <class T>
  std::optional<Piece> try_element(std::size_t index) const& {
    if (index >= self().size() / sizeof(T)) return std::nullopt;
    return self().cut(index * sizeof(T), sizeof(T));
  }
  // Also empty for memory that the CPU cannot address.
  std::optional<Piece> try_piece(Bytes inside) const& {
    const Bytes whole = self().bytes_if_addressable();
    const auto begin = reinterpret_cast<std::uintptr_t>(whole.data());
    const auto wanted = reinterpret_cast<std::uintptr_t>(inside.data());
    if (whole.data() == nullptr || wanted < begin) return std::nullopt;
    return try_subspan(wanted - begin, inside.size());
  }

  Piece subspan(std::size_t, std::size_t) const&&
    requires kOwns
  = delete;
  Piece first(std::size_t) const&&
    requires kOwns
  = delete;
  Piece last(std::size_t) const&&
    requires kOwns
  = delete;
  template <class T>
  Piece element(std::size_t) const&&
    requires kOwns
  = delete;
  Piece piece(Bytes) const&&
    requires kOwns
  = delete;
  std::optional<Piece> try_subspan(std::size_t, std::size_t) const&&
    requires kOwns
  = delete;
  std::optional<Piece> try_first(std::size_t) const&&
    requires kOwns
  = delete;
  std::optional<Piece> try_last(std::size_t) const&&
    requires kOwns
  = delete;
  template <class T>
  std::optional<Piece> try_element(std::size_t) const&&
    requires kOwns
  = delete;
  std::optional<Piece> try_piece(Bytes) const&&
    requires kOwns
  = delete;

 private:
  friend Self;
  LocalSlices() = default;
  const Self& self() const { return static_cast<const Self&>(*this); }
};

// A piece of registered local memory. It comes from a region, which checks the bounds, or from
// unchecked() if key and memory passed through code without regions. `Byte` is std::byte, or const
// std::byte for memory that the device only reads.
template <class Byte>
class BasicRegisteredSpan
    : public LocalSlices<BasicRegisteredSpan<Byte>, BasicRegisteredSpan<Byte>> {
 public:
  BasicRegisteredSpan() = default;
  // A piece that may be written may be read.
  template <class Other>
    requires(std::same_as<Other, std::byte> && std::same_as<Byte, const std::byte>)
  // NOLINTNEXTLINE(google-explicit-constructor): as a pointer to const from another
  BasicRegisteredSpan(const BasicRegisteredSpan<Other>& sink)
      : bytes_(sink.bytes_), lkey_(sink.lkey_), addressable_(sink.addressable_) {}
  // The caller guarantees that `bytes` lie inside the region of `lkey`. Otherwise the device
  // refuses with a local protection error and the queue pair fails.
  static BasicRegisteredSpan unchecked(std::span<Byte> bytes, std::uint32_t lkey) {
    return {bytes, lkey, true};
  }
  // Memory whose address in work requests differs from its CPU address, or that the CPU cannot
  // address: dma-buf, zero-based regions. Otherwise as unchecked().
  static BasicRegisteredSpan device_only(std::uint64_t address, std::size_t length,
                                         std::uint32_t lkey) {
    return {{reinterpret_cast<Byte*>(address), length}, lkey, false};
  }

  // REQUIRES: addressable(), that is, not created by device_only().
  std::span<Byte> bytes() const {
    RKV_CHECK(addressable_, "memory that only the device can address has no bytes here");
    return bytes_;
  }
  bool addressable() const { return addressable_; }
  std::size_t size() const { return bytes_.size(); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(bytes_.data()); }
  std::uint32_t lkey() const { return lkey_; }
  // REQUIRES: size() <= kMaxSgeBytes.
  ibv_sge sge() const {
    RKV_CHECK(size() <= kMaxSgeBytes, "a piece of a request is shorter than 2 GiB");
    return {.addr = address(), .length = static_cast<std::uint32_t>(size()), .lkey = lkey_};
  }

 private:
  friend class LocalSlices<BasicRegisteredSpan, BasicRegisteredSpan>;
  friend class BasicRegisteredSpan<const std::byte>;
  BasicRegisteredSpan(std::span<Byte> bytes, std::uint32_t lkey, bool addressable)
      : bytes_(bytes), lkey_(lkey), addressable_(addressable) {}
  BasicRegisteredSpan cut(std::size_t offset, std::size_t length) const {
    // Integer arithmetic, because a device-only address may be 0, and pointer arithmetic on null is
    // undefined.
    return {{reinterpret_cast<Byte*>(address() + offset), length}, lkey_, addressable_};
  }
  Bytes bytes_if_addressable() const { return addressable_ ? Bytes(bytes_) : Bytes(); }
  std::span<Byte> bytes_;
  std::uint32_t lkey_ = 0;
  bool addressable_ = true;
};

// Memory that the device may write: the sink of receives, READs and atomics. Also a source.
using RegisteredSpan = BasicRegisteredSpan<std::byte>;
// Memory that the device only reads: the source of SENDs and WRITEs.
using RegisteredSource = BasicRegisteredSpan<const std::byte>;
static_assert(sizeof(RegisteredSpan) == 24, "passed around for every request");

// A piece of a peer's memory. Values that a peer sent are not trusted: slice with subspan() and the
// like. The result is empty when the piece reaches outside or wraps around the end of the address
// space. The peer's device checks the rest. The wire form is 20 bytes big-endian: address 8, length
// 8, rkey 4.
struct RKV_EXPORT RemoteSpan {
  static constexpr std::size_t kWireBytes = 20;

  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;

  constexpr std::optional<RemoteSpan> subspan(std::uint64_t offset, std::uint64_t bytes) const {
    if (!lies_inside(offset, bytes, length)) return std::nullopt;
    if (address > ~std::uint64_t{0} - offset - bytes) return std::nullopt;
    return RemoteSpan{.address = address + offset, .length = bytes, .rkey = rkey};
  }
  // The same as a Result, for functions that return one. kCorrupt: the piece lies outside.
  Result<RemoteSpan> at(std::uint64_t offset, std::uint64_t bytes) const {
    const std::optional<RemoteSpan> piece = subspan(offset, bytes);
    if (piece) return *piece;
    return fail(Code::kCorrupt, "the peer offers fewer bytes than this piece needs");
  }
  constexpr std::optional<RemoteSpan> first(std::uint64_t bytes) const { return subspan(0, bytes); }
  constexpr std::optional<RemoteSpan> last(std::uint64_t bytes) const {
    if (bytes > length) return std::nullopt;
    return subspan(length - bytes, bytes);
  }
  // The index-th T of an array that begins at the start of this span.
  template <class T>
  constexpr std::optional<RemoteSpan> element(std::uint64_t index) const {
    if (index >= length / sizeof(T)) return std::nullopt;
    return subspan(index * sizeof(T), sizeof(T));
  }
  std::array<std::byte, kWireBytes> to_bytes() const;
  static RemoteSpan from_bytes(std::span<const std::byte, kWireBytes> bytes);
  friend constexpr bool operator==(const RemoteSpan&, const RemoteSpan&) = default;
};

}  // namespace rkv::rdma
