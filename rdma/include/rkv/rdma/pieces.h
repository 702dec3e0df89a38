// The local memory of one work request: one span, several pieces, or bytes that are copied at once.
//
//   batch.send(1, OpFlags::kSignaled, message);                       // one span
//   batch.write(2, OpFlags::kNone, {header, body}, remote);           // pieces, in their order;
//                                                                     // an array or span as well
//   batch.send(3, OpFlags::kSignaled, inlined(as_bytes("done")));     // no registration needed
//
// Gather and Scatter are made by the compiler from these forms, for the duration of one call: they
// name the caller's array and do not own it. Thread safety: values. Source: ibv_wr_post(3).
#pragma once

#include <infiniband/verbs.h>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "rkv/bytes.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/span.h"

namespace rkv::rdma {

// The longest list of pieces that this library posts for one request.
inline constexpr std::size_t kMaxPieces = 32;

// Bytes that are copied into the request when it is added: their buffer needs no registration and
// may be reused at once. At most the queue pair's inline_bytes() in total.
struct Inlined {
  Bytes bytes;
};
struct InlinedPieces {
  std::span<const Bytes> pieces;
};
constexpr Inlined inlined(Bytes bytes) {
  return {bytes};
}
constexpr InlinedPieces inlined(std::span<const Bytes> pieces) {
  return {pieces};
}

template <class R>
concept SpansOfSinks = std::convertible_to<const R&, std::span<const RegisteredSpan>>;
template <class R>
concept SpansOfSources = std::convertible_to<const R&, std::span<const RegisteredSource>>;

// Where the bytes of a received message or of a READ go.
class Scatter {
 public:
  Scatter() = default;
  // NOLINTBEGIN(google-explicit-constructor): the forms of the file comment.
  Scatter(const RegisteredSpan& one) noexcept : one_(one) {}
  // No braces: a ReceiveRequest would outlive them.
  template <SpansOfSinks R>
  Scatter(const R& pieces RKV_LIFETIMEBOUND) noexcept : pieces_(pieces), is_list_(true) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_list() const noexcept { return is_list_; }
  // REQUIRES: !is_list().
  const RegisteredSpan& one() const noexcept { return one_; }
  std::span<const RegisteredSpan> pieces() const noexcept {
    return is_list_ ? pieces_ : std::span(&one_, 1);
  }
  std::size_t size() const noexcept {
    if (!is_list_) return one_.size();
    std::size_t total = 0;
    for (const RegisteredSpan& piece : pieces_)
      total += piece.size();
    return total;
  }

 private:
  RegisteredSpan one_;
  std::span<const RegisteredSpan> pieces_;
  bool is_list_ = false;
};

// Where the bytes of a SEND or WRITE come from.
class Gather {
 public:
  enum class Form : unsigned char { kOne, kSinks, kSources, kInlined, kInlinedPieces };

  Gather() noexcept : one_() {}  // no bytes
  // NOLINTBEGIN(google-explicit-constructor): the forms of the file comment.
  Gather(const RegisteredSource& one) noexcept : one_(one) {}
  Gather(const RegisteredSpan& one) noexcept : one_(one) {}
  Gather(std::initializer_list<RegisteredSpan> pieces RKV_LIFETIMEBOUND) noexcept
      : form_(Form::kSinks), sinks_(pieces.begin(), pieces.size()) {}
  template <SpansOfSinks R>
  Gather(const R& pieces RKV_LIFETIMEBOUND) noexcept : form_(Form::kSinks), sinks_(pieces) {}
  template <SpansOfSources R>
  Gather(const R& pieces RKV_LIFETIMEBOUND) noexcept : form_(Form::kSources), sources_(pieces) {}
  Gather(Inlined copied) noexcept : form_(Form::kInlined), bytes_(copied.bytes) {}
  Gather(InlinedPieces copied) noexcept
      : form_(Form::kInlinedPieces), inlined_pieces_(copied.pieces) {}
  // NOLINTEND(google-explicit-constructor)

  Form form() const noexcept { return form_; }
  // Each REQUIRES the form of its name.
  const RegisteredSource& one() const noexcept { return one_; }
  std::span<const RegisteredSpan> sinks() const noexcept { return sinks_; }
  std::span<const RegisteredSource> sources() const noexcept { return sources_; }
  Bytes bytes() const noexcept { return bytes_; }
  std::span<const Bytes> inlined_pieces() const noexcept { return inlined_pieces_; }

  std::size_t size() const noexcept {
    switch (form_) {
      case Form::kOne:
        return one_.size();
      case Form::kSinks:
        return total(sinks_);
      case Form::kSources:
        return total(sources_);
      case Form::kInlined:
        return bytes_.size();
      case Form::kInlinedPieces:
        return total(inlined_pieces_);
    }
    return 0;
  }

 private:
  template <class Piece>
  static std::size_t total(std::span<const Piece> pieces) noexcept {
    std::size_t sum = 0;
    for (const Piece& piece : pieces)
      sum += piece.size();
    return sum;
  }

  Form form_ = Form::kOne;
  union {
    RegisteredSource one_;
    std::span<const RegisteredSpan> sinks_;
    std::span<const RegisteredSource> sources_;
    Bytes bytes_;
    std::span<const Bytes> inlined_pieces_;
  };
};

}  // namespace rkv::rdma
