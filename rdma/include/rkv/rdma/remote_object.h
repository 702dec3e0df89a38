// Typed views of a peer's memory: objects, their fields, and arrays of them, by index and by member
// pointer. They only name memory; queue pairs read and write the spans.
//
//   struct Slot { std::uint64_t version; std::array<char, 56> text; };
//   const auto slots = RemoteArray<Slot>::over(RemoteSpan::from_bytes(wire));
//   if (const auto slot = slots.at(index))                    // empty: the peer's array is shorter
//     batch.read(1, OpFlags::kSignaled, local, slot->field(&Slot::version).span());
//
// The peer's numbers are not trusted. over() and at() check bounds without wrapping, so their
// results, and the fields of those objects, lie inside the span that the peer sent. Types must be
// trivially copyable and of standard layout, or the code does not compile. Both sides must use the
// same layout, including the byte order. Wire form: RemoteSpan's 20 bytes.
//
// Thread safety: values.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "rkv/check.h"
#include "rkv/rdma/span.h"

namespace rkv::rdma {

template <class T>
concept RemoteValue = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> &&
                      std::is_object_v<T> && !std::is_const_v<T> && !std::is_volatile_v<T>;

namespace detail {

// Storage for a T that is never constructed: only the offsets of its members are computed.
template <class T>
union Unmade {
  char none = 0;
  T value;
};
template <class T>
inline constinit Unmade<T> unmade{};

template <class T, class Member, class Base>
std::size_t offset_of(Member Base::* member) {
  const T& whole = unmade<T>.value;
  return static_cast<std::size_t>(reinterpret_cast<const char*>(std::addressof(whole.*member)) -
                                  reinterpret_cast<const char*>(std::addressof(whole)));
}

template <class T>
struct ArrayTraits {
  static constexpr std::size_t kCount = 0;
};
template <class T, std::size_t Count>
struct ArrayTraits<T[Count]> {
  using Element = T;
  static constexpr std::size_t kCount = Count;
};
template <class T, std::size_t Count>
struct ArrayTraits<std::array<T, Count>> {
  using Element = T;
  static constexpr std::size_t kCount = Count;
};

}  // namespace detail

// A C array or a std::array.
template <class T>
concept RemoteArrayValue = (detail::ArrayTraits<T>::kCount > 0);

template <RemoteValue T>
class RemoteArray;

template <RemoteValue T>
class RemoteObject {
 public:
  static constexpr std::size_t kWireBytes = RemoteSpan::kWireBytes;

  // The T that begins `offset` bytes into `memory`; empty if it reaches outside.
  static constexpr std::optional<RemoteObject> within(const RemoteSpan& memory,
                                                      std::uint64_t offset = 0) {
    const auto found = memory.subspan(offset, sizeof(T));
    if (!found) return std::nullopt;
    return RemoteObject(*found);
  }

  // A member, or a member of a base class.
  template <class Member, class Base>
    requires std::derived_from<T, Base> && RemoteValue<Member>
  RemoteObject<Member> field(Member Base::* member) const {
    // The member lies inside because the object does. The check costs one comparison.
    const auto found =
        RemoteObject<Member>::within(span_, detail::offset_of<T, Member, Base>(member));
    RKV_CHECK(found.has_value(), "a member lies outside its object");
    return *found;
  }
  // The elements of an object that is an array.
  auto elements() const
    requires RemoteArrayValue<T>
  {
    return RemoteArray<typename detail::ArrayTraits<T>::Element>::over(span_);
  }

  // Exactly sizeof(T) bytes long.
  constexpr const RemoteSpan& span() const { return span_; }
  // Whether the address is aligned for a T; devices refuse unaligned atomics.
  constexpr bool aligned() const { return span_.address % alignof(T) == 0; }

  std::array<std::byte, kWireBytes> to_bytes() const { return span_.to_bytes(); }
  // Empty if the peer's span is shorter than a T or wraps around. A longer span is cut.
  static std::optional<RemoteObject> from_bytes(std::span<const std::byte, kWireBytes> bytes) {
    return within(RemoteSpan::from_bytes(bytes));
  }
  friend constexpr bool operator==(const RemoteObject&, const RemoteObject&) = default;

 private:
  constexpr explicit RemoteObject(const RemoteSpan& span) : span_(span) {}
  RemoteSpan span_;
};

template <RemoteValue T>
class RemoteArray {
 public:
  static constexpr std::size_t kWireBytes = RemoteSpan::kWireBytes;

  RemoteArray() = default;
  // The whole T's that fit in `memory`; remaining bytes are ignored. Empty if `memory` wraps
  // around.
  static constexpr RemoteArray over(const RemoteSpan& memory) {
    const auto whole = memory.first(memory.length - memory.length % sizeof(T));
    return RemoteArray(
        whole.value_or(RemoteSpan{.address = memory.address, .length = 0, .rkey = memory.rkey}));
  }

  constexpr std::uint64_t size() const { return span_.length / sizeof(T); }
  constexpr bool empty() const { return size() == 0; }
  // Returns the element, or an empty optional past the end.
  constexpr std::optional<RemoteObject<T>> at(std::uint64_t index) const {
    if (index >= size()) return std::nullopt;
    return RemoteObject<T>::within(span_, index * sizeof(T));
  }
  // `count` elements starting at `index`; empty if they reach outside.
  constexpr std::optional<RemoteArray> subspan(std::uint64_t index, std::uint64_t count) const {
    if (!lies_inside(index, count, size())) return std::nullopt;
    const auto found = span_.subspan(index * sizeof(T), count * sizeof(T));
    if (!found) return std::nullopt;
    return RemoteArray(*found);
  }
  constexpr std::optional<RemoteArray> first(std::uint64_t count) const {
    return subspan(0, count);
  }
  constexpr std::optional<RemoteArray> last(std::uint64_t count) const {
    if (count > size()) return std::nullopt;
    return subspan(size() - count, count);
  }
  // A field of an element in one step.
  template <class Member, class Base>
    requires std::derived_from<T, Base> && RemoteValue<Member>
  std::optional<RemoteObject<Member>> field(std::uint64_t index, Member Base::* member) const {
    const auto element = at(index);
    if (!element) return std::nullopt;
    return element->field(member);
  }

  constexpr const RemoteSpan& span() const { return span_; }
  std::array<std::byte, kWireBytes> to_bytes() const { return span_.to_bytes(); }
  static RemoteArray from_bytes(std::span<const std::byte, kWireBytes> bytes) {
    return over(RemoteSpan::from_bytes(bytes));
  }
  friend constexpr bool operator==(const RemoteArray&, const RemoteArray&) = default;

 private:
  constexpr explicit RemoteArray(const RemoteSpan& span) : span_(span) {}
  RemoteSpan span_;
};

}  // namespace rkv::rdma
