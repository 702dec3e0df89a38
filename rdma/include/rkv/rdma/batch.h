// A batch of work requests, posted together with one doorbell.
//
//   Batch batch = qp.batch();
//   batch.read(1, OpFlags::kNone, local_a, remote_a);
//   batch.write(2, OpFlags::kNone, {header, body}, remote_b);            // several pieces
//   batch.op(3).signaled().immediate(7).send(inlined(as_bytes("done"))); // more: see Op
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());   // dropped without: nothing is posted
//
// Local memory is named by one span, by several pieces, or copied at once: pieces.h. A request has
// at most as many pieces as QueuePairOptions allows; READs at most the device's max_read_sge.
//
// The caller counts requests. At most send_length requests of a queue pair may be outstanding:
// posted, while neither their completion nor that of a later signaled request has been polled. A
// completion queue must have an entry for each completion that may arrive. An unsignaled request
// frees its slot only when a later signaled request completes: signal at least one in send_length.
//
// Buffers named in a request belong to the device until its completion, or that of a later signaled
// request, has been polled. Destroying the queue pair also releases them. Inline data is copied at
// once. The types cannot check this. If a region is freed too early, the device reads or writes
// memory that has another use. Checked mode (checked.h) detects it.
//
// REQUIRES of every operation on a peer's memory: the local span is not longer than the remote
// span. A span reported by a peer may be shorter than expected. Cut it with subspan() or first()
// and check for an empty result.
//
// Thread safety: one thread at a time, the queue pair's. Source: ibv_wr_post(3).
//
// Everything here is noexcept because provider functions are C and do not throw. The compiler can
// then keep a batch in registers, since unwinding does not need it in memory. If checked mode
// cannot allocate memory for its own records, it ends the process.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "rkv/bytes.h"
#include "rkv/check.h"
#include "rkv/export.h"
#include "rkv/lifetime.h"
#include "rkv/rdma/address_handle.h"
#include "rkv/rdma/flags.h"
#include "rkv/rdma/memory.h"
#include "rkv/rdma/pieces.h"
#include "rkv/rdma/transport_types.h"
#include "rkv/rdma/window.h"
#include "rkv/result.h"

namespace rkv::rdma {

template <TransportType T>
class BasicQueuePair;

namespace detail {

inline constexpr std::uint32_t kMaxInlineBytes = 1024;

// Replaces the verbs queue pair of a queue pair that was moved away. It counts as open, so one
// check finds both mistakes.
extern RKV_EXPORT ibv_qp_ex moved_away;

// Limits of one request of a queue pair.
struct RequestLimits {
  std::uint32_t inline_bytes = 0;
  std::uint32_t pieces = 1;          // local spans of a SEND or WRITE
  std::uint32_t read_pieces = 1;     // of a READ
  std::uint32_t datagram_bytes = 0;  // UD: the longest message
};

constexpr std::uint32_t to_network(std::uint32_t immediate) {
  if constexpr (std::endian::native == std::endian::big) return immediate;
  return __builtin_bswap32(immediate);
}

// The common part of the batches of all transports.
class RKV_EXPORT BatchCore {
 public:
  BatchCore(const BatchCore&) = delete;
  BatchCore& operator=(const BatchCore&) = delete;

  std::uint32_t count() const noexcept { return count_; }
  // Whether a batch of this queue pair is open. The mark is qp_context, which libibverbs reserves
  // for its user and providers do not read.
  static bool is_open(const ibv_qp& queue) noexcept { return queue.qp_context != nullptr; }

 protected:
  BatchCore(ibv_qp_ex* queue, const RequestLimits& limits) noexcept
      : queue_(queue), limits_(&limits) {
    // Providers take a lock in ibv_wr_start, so a thread with two open batches would deadlock.
    if (is_open(queue_->qp_base)) [[unlikely]]
      cannot_open(queue_);
    queue_->qp_base.qp_context = queue_;
    ibv_wr_start(queue_);
  }
  // Always inlined, even in cold code: a call would force the batch into memory (file comment).
  [[gnu::always_inline]] ~BatchCore() {
    if (queue_ != nullptr) abandon(queue_);
  }

  [[gnu::always_inline]] void begin(std::uint64_t wr_id, OpFlags flags) noexcept {
    RKV_CHECK(queue_ != nullptr, "an operation on a batch that has been submitted");
    queue_->wr_id = wr_id;
    queue_->wr_flags = std::to_underlying(flags);
    ++count_;
  }
  template <class Span>
  [[gnu::always_inline]] void set(const Span& local) noexcept {
    const ibv_sge piece = local.sge();
    ibv_wr_set_sge(queue_, piece.lkey, piece.addr, piece.length);
  }
  static void check_inside(std::size_t length, const RemoteSpan& remote) noexcept {
    RKV_CHECK(length <= remote.length, "a request reaches past its remote span");
  }
  // Adds a request whose operation `choose` selects, with the bytes of `from`.
  template <class Choose>
  [[gnu::always_inline]] void gather(std::uint64_t wr_id, OpFlags flags, const Gather& from,
                                     Choose choose) noexcept {
    switch (from.form()) {
      case Gather::Form::kOne:
        begin(wr_id, flags);
        choose();
        set(from.one());
        return;
      case Gather::Form::kInlined:
        begin_inline(wr_id, flags, from.bytes().size());
        choose();
        set_inline(from.bytes());
        return;
      default:
        break;
    }
    if (from.form() == Gather::Form::kInlinedPieces) {
      Copied copied;
      const Bytes message = copy(copied, from.inlined_pieces());
      begin_inline(wr_id, flags, message.size());
      choose();
      set_inline(message);
    } else if (fits(from, limits_->pieces)) {
      begin(wr_id, flags);
      choose();
      set_pieces(from);
    }
  }
  // Adds a request whose result goes to `to`.
  template <class Choose>
  [[gnu::always_inline]] void scatter(std::uint64_t wr_id, OpFlags flags, const Scatter& to,
                                      Choose choose) noexcept {
    if (!to.is_list()) {
      begin(wr_id, flags);
      choose();
      set(to.one());
    } else if (fits(to.pieces(), limits_->read_pieces)) {
      begin(wr_id, flags);
      choose();
      set_pieces(to.pieces());
    }
  }
  template <class Choose>
  [[gnu::always_inline]] void atomic(std::uint64_t wr_id, OpFlags flags,
                                     const RegisteredSpan& old_value, const RemoteSpan& word,
                                     Choose choose) noexcept {
    RKV_CHECK(old_value.size() == 8, "the old value of an atomic is 8 bytes long");
    check_inside(8, word);
    begin(wr_id, flags);
    choose();
    set(old_value);
  }
  void begin_bind(std::uint64_t wr_id, OpFlags flags, Window& window, const WindowRange& range,
                  RemoteSpan& offered) noexcept;
  void begin_invalidate(std::uint64_t wr_id, OpFlags flags, Window& window) noexcept;
  // False, and nothing of this batch will be posted, for a datagram that is too long.
  bool fits_datagram(std::size_t length) noexcept {
    if (length <= limits_->datagram_bytes) [[likely]]
      return true;
    refusal_ = Refusal::kTooLong;
    return false;
  }
  // The success path is inline because a call would be a large part of the cost of a batch of one
  // request.
  Status complete() noexcept {
    RKV_CHECK(queue_ != nullptr, "a batch submitted twice");
    ibv_qp_ex* const queue = std::exchange(queue_, nullptr);
    if (refusal_ != Refusal::kNone) [[unlikely]]
      return refuse(queue, refusal_);
    queue->qp_base.qp_context = nullptr;
    const int answer = count_ != 0 ? ibv_wr_complete(queue) : abandon(queue);
    if (answer != 0) [[unlikely]]
      return refused(answer);
    return {};
  }

  ibv_qp_ex* queue_;
  const RequestLimits* limits_;  // of the queue pair, which outlives its batches
  std::uint32_t count_ = 0;

 private:
  enum class Refusal : unsigned char { kNone, kTooLong, kTooManyPieces };
  struct Copied {
    std::byte bytes[kMaxInlineBytes];
  };

  // The inline flag must be in wr_flags before the operation is chosen. SoftRoCE uses it to decide
  // where to put the bytes; without it the queue pair fails.
  void begin_inline(std::uint64_t wr_id, OpFlags flags, std::size_t length) noexcept {
    RKV_CHECK(length <= limits_->inline_bytes, "an inline message is longer than inline_bytes()");
    begin(wr_id, flags);
    queue_->wr_flags |= IBV_SEND_INLINE;
  }
  void set_inline(Bytes bytes) noexcept {
    ibv_wr_set_inline_data(queue_, const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  // Copies the pieces into one buffer. ibv_wr_set_inline_data_list is not used: SoftRoCE's version
  // delivers an empty message and reports success.
  Bytes copy(Copied& to, std::span<const Bytes> pieces) const noexcept;
  // False, and nothing of this batch will be posted, if the list is longer than `most`.
  bool fits(const Gather& from, std::uint32_t most) noexcept;
  bool fits(std::span<const RegisteredSpan> to, std::uint32_t most) noexcept;
  void set_pieces(const Gather& from) noexcept;
  void set_pieces(std::span<const RegisteredSpan> to) noexcept;
  [[noreturn]] static void cannot_open(const ibv_qp_ex* queue) noexcept;
  static int abandon(ibv_qp_ex* queue) noexcept;
  static Status refused(int answer) noexcept;
  static Status refuse(ibv_qp_ex* queue, Refusal why) noexcept;

  Refusal refusal_ = Refusal::kNone;
};

// A batch for transports on which each request names its receiver. `Derived` has address(to), which
// writes the receiver into the request.
template <class Derived, class Destination>
class DirectedBatch : public BatchCore {
 public:
  void send(std::uint64_t wr_id, OpFlags flags, const Destination& to,
            const Gather& message) noexcept {
    gather(wr_id, flags, message, [&]() noexcept {
      ibv_wr_send(queue_);
      self().address(to);
    });
  }
  void send_immediate(std::uint64_t wr_id, OpFlags flags, const Destination& to,
                      const Gather& message, std::uint32_t immediate) noexcept {
    gather(wr_id, flags, message, [&]() noexcept {
      ibv_wr_send_imm(queue_, to_network(immediate));
      self().address(to);
    });
  }
  void read(std::uint64_t wr_id, OpFlags flags, const Destination& from, const Scatter& to,
            const RemoteSpan& remote) noexcept {
    check_inside(to.size(), remote);
    scatter(wr_id, flags, to, [&]() noexcept {
      ibv_wr_rdma_read(queue_, remote.rkey, remote.address);
      self().address(from);
    });
  }
  Status submit() && noexcept { return complete(); }

 protected:
  Derived& self() noexcept { return static_cast<Derived&>(*this); }

 private:
  friend Derived;
  DirectedBatch(ibv_qp_ex* queue, const RequestLimits& limits) noexcept
      : BatchCore(queue, limits) {}
};

// The data that an Op sends besides its bytes.
struct NothingMore {};
struct Immediate {
  std::uint32_t value;
};
struct PeersKey {
  std::uint32_t rkey;
};
// The receiver that an Op names.
struct ThePeer {};
struct Nobody {};  // a datagram before to()
struct Receiver {
  ibv_ah* handle;
  std::uint32_t qp_num;
  std::uint32_t qkey;
};
template <class T>
struct ReceiverOf {
  using Type = ThePeer;
};
template <>
struct ReceiverOf<Ud> {
  using Type = Nobody;
};

// The destinations of an Op: a batch, or a queue pair at once with a doorbell of its own.
template <TransportType T>
struct IntoBatch;
template <TransportType T>
struct IntoQueuePair;

}  // namespace detail

template <TransportType T>
class BasicBatch;

// One request that is being described: modifiers first, the operation last.
//
//   batch.op(1).signaled().fenced().write(pieces, remote);      // joins the batch
//   batch.op(2).immediate(7).send(inlined(text));
//   batch.op(3).to(handle, qp_num, qkey).send(message);         // a datagram: to() is needed
//   Status sent = qp.op(4).signaled().send(message);            // posted at once, own doorbell
//
// An operation that the transport lacks, or that cannot carry the modifier, does not compile. For
// `qp.op()` the result, errors and REQUIRES are those of a batch of one request.
template <TransportType T, class Into, class Receiver = typename detail::ReceiverOf<T>::Type,
          class Extra = detail::NothingMore>
class [[nodiscard]] Op {
  static constexpr bool kPlain = std::same_as<Extra, detail::NothingMore>;
  static constexpr bool kAddressed = !std::same_as<Receiver, detail::Nobody>;
  template <class R, class E>
  using As = Op<T, Into, R, E>;

 public:
  using Answer = typename Into::Answer;

  Op signaled() && noexcept { return plus(OpFlags::kSignaled); }
  Op fenced() && noexcept { return plus(OpFlags::kFenced); }
  Op solicited() && noexcept { return plus(OpFlags::kSolicited); }
  Op with(OpFlags more) && noexcept { return plus(more); }
  // The peer's receive completes with `value`. A WRITE with it consumes one of the peer's receives.
  As<Receiver, detail::Immediate> immediate(std::uint32_t value) && noexcept
    requires kPlain
  {
    return {into_, wr_id_, flags_, receiver_, detail::Immediate{value}};
  }
  // Invalidates one of the peer's windows. The peer's receive completes with the key. If the key is
  // not bound to this connection, the peer's device refuses it and the connection ends.
  As<Receiver, detail::PeersKey> invalidate(std::uint32_t peers_rkey) && noexcept
    requires(kPlain && HasWindows<T>)
  {
    return {into_, wr_id_, flags_, receiver_, detail::PeersKey{peers_rkey}};
  }
  // The receiver of a datagram. `qkey` is the key that it was activated with. The handle must live
  // until the request has completed, so temporaries are refused.
  As<detail::Receiver, Extra> to(const AddressHandle& receiver, std::uint32_t qp_num,
                                 std::uint32_t qkey) && noexcept
    requires(std::same_as<T, Ud> && !kAddressed)
  {
    return {into_, wr_id_, flags_, detail::Receiver{receiver.raw(), qp_num, qkey}, extra_};
  }
  As<detail::Receiver, Extra> to(const AddressHandle&& receiver, std::uint32_t qp_num,
                                 std::uint32_t qkey) && noexcept
    requires(std::same_as<T, Ud> && !kAddressed)
  = delete;

  // A datagram may have at most max_datagram_bytes() of the queue pair: a device drops longer ones
  // and reports success. The limit depends on the network, so exceeding it is not a programming
  // error: submit() returns kTooLarge and posts no request of the batch. No argument: no bytes.
  Answer send(const Gather& message = {}) && noexcept
    requires kAddressed
  {
    return into_(
        [&](auto& batch) noexcept { batch.add_send(wr_id_, flags_, message, receiver_, extra_); });
  }
  Answer write(const Gather& from, const RemoteSpan& to) && noexcept
    requires(HasWrite<T> && Connected<T> && !std::same_as<Extra, detail::PeersKey>)
  {
    return into_([&](auto& batch) noexcept { batch.add_write(wr_id_, flags_, from, to, extra_); });
  }
  Answer read(const Scatter& to, const RemoteSpan& from) && noexcept
    requires(HasRead<T> && Connected<T> && kPlain)
  {
    return into_([&](auto& batch) noexcept { batch.read(wr_id_, flags_, to, from); });
  }
  Answer compare_swap(const RegisteredSpan& old_value, const RemoteSpan& word,
                      std::uint64_t expected, std::uint64_t desired) && noexcept
    requires(HasAtomics<T> && Connected<T> && kPlain)
  {
    return into_([&](auto& batch) noexcept {
      batch.compare_swap(wr_id_, flags_, old_value, word, expected, desired);
    });
  }
  Answer fetch_add(const RegisteredSpan& old_value, const RemoteSpan& word,
                   std::uint64_t addend) && noexcept
    requires(HasAtomics<T> && Connected<T> && kPlain)
  {
    return into_(
        [&](auto& batch) noexcept { batch.fetch_add(wr_id_, flags_, old_value, word, addend); });
  }

 private:
  template <TransportType, class, class, class>
  friend class Op;
  friend class BasicBatch<T>;
  friend class BasicQueuePair<T>;
  Op(Into into, std::uint64_t wr_id, OpFlags flags, Receiver receiver, Extra extra) noexcept
      : into_(into), wr_id_(wr_id), flags_(flags), receiver_(receiver), extra_(extra) {}
  Op plus(OpFlags more) const noexcept { return {into_, wr_id_, flags_ | more, receiver_, extra_}; }

  Into into_;
  std::uint64_t wr_id_;
  OpFlags flags_;
  [[no_unique_address]] Receiver receiver_;
  [[no_unique_address]] Extra extra_;
};

// At most one batch may be open per queue pair: opening a second aborts. A batch cannot be copied
// or moved. It is submitted explicitly with std::move(batch).submit().
template <TransportType T>
class RKV_CONSUMABLE BasicBatch : public detail::BatchCore {
 public:
  [[gnu::always_inline]] ~BasicBatch() = default;

  // A request with modifiers: see Op.
  Op<T, detail::IntoBatch<T>> op(std::uint64_t wr_id) noexcept {
    return {detail::IntoBatch<T>{this}, wr_id, OpFlags::kNone, {}, {}};
  }

  // Reads to.size() bytes from the beginning of `from` into the local memory `to`.
  template <std::same_as<RegisteredSpan> Span>
  void read(std::uint64_t wr_id, OpFlags flags, const Span& to, const RemoteSpan& from) noexcept
    requires(HasRead<T> && Connected<T>)
  {
    // One span needs no Scatter: three instructions less in a loop.
    check_inside(to.size(), from);
    begin(wr_id, flags);
    ibv_wr_rdma_read(queue_, from.rkey, from.address);
    set(to);
  }
  void read(std::uint64_t wr_id, OpFlags flags, const Scatter& to, const RemoteSpan& from) noexcept
    requires(HasRead<T> && Connected<T>)
  {
    check_inside(to.size(), from);
    scatter(wr_id, flags, to,
            [&]() noexcept { ibv_wr_rdma_read(queue_, from.rkey, from.address); });
  }
  void write(std::uint64_t wr_id, OpFlags flags, const Gather& from, const RemoteSpan& to) noexcept
    requires(HasWrite<T> && Connected<T>)
  {
    add_write(wr_id, flags, from, to, detail::NothingMore());
  }
  void send(std::uint64_t wr_id, OpFlags flags, const Gather& message) noexcept
    requires Connected<T>
  {
    add_send(wr_id, flags, message, detail::ThePeer(), detail::NothingMore());
  }
  // The 8-byte old value is written to `old_value`. The remote word must be 8-byte aligned, or the
  // peer's device refuses the request.
  void compare_swap(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& old_value,
                    const RemoteSpan& word, std::uint64_t expected, std::uint64_t desired) noexcept
    requires(HasAtomics<T> && Connected<T>)
  {
    atomic(wr_id, flags, old_value, word, [&]() noexcept {
      ibv_wr_atomic_cmp_swp(queue_, word.rkey, word.address, expected, desired);
    });
  }
  void fetch_add(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& old_value,
                 const RemoteSpan& word, std::uint64_t addend) noexcept
    requires(HasAtomics<T> && Connected<T>)
  {
    atomic(wr_id, flags, old_value, word,
           [&]() noexcept { ibv_wr_atomic_fetch_add(queue_, word.rkey, word.address, addend); });
  }

  // Binds a window of type two (window.h). Returns the span that the peer may use once the binding
  // has completed; a message sent later on this queue pair may already carry it. REQUIRES: the
  // queue pair was created with kWindowOps; `window` is unbound and of its domain; Window::check()
  // accepts `range`.
  RemoteSpan bind_window(std::uint64_t wr_id, OpFlags flags, Window& window,
                         const WindowRange& range) noexcept
    requires HasWindows<T>
  {
    RemoteSpan offered;
    begin_bind(wr_id, flags, window, range, offered);
    return offered;
  }
  // Revokes the window's rights: after the completion its key is refused. REQUIRES: `window` is
  // bound.
  void local_invalidate(std::uint64_t wr_id, OpFlags flags, Window& window) noexcept
    requires HasWindows<T>
  {
    begin_invalidate(wr_id, flags, window);
  }

  // Posts the batch with one doorbell: every request starts, or on an error none does. An empty
  // batch has no effect. kOutOfMemory: the send queue is full. kTooLarge: a datagram is too long.
  // kInvalidArgument: a request has too many pieces. kUnsupported: the device lacks an operation. A
  // provider that is posted to with ibv_post_send(3) (without extended work requests; SoftRoCE with
  // several pieces) may refuse a batch in its middle; then the queue pair is in the error state
  // (QueuePairBase::refused_in_the_middle()).
  // Does not block. Requires an rvalue; a second submit() aborts, which Clang's -Wconsumed reports
  // at compile time.
  Status submit() && noexcept RKV_CONSUMES { return complete(); }

 private:
  friend class BasicQueuePair<T>;
  template <TransportType, class, class, class>
  friend class Op;
  using BatchCore::BatchCore;

  template <class Receiver, class Extra>
  [[gnu::always_inline]] void add_send(std::uint64_t wr_id, OpFlags flags, const Gather& message,
                                       const Receiver& to, const Extra& extra) noexcept {
    if constexpr (std::same_as<T, Ud>) {
      if (!fits_datagram(message.size())) return;
    }
    gather(wr_id, flags, message, [&]() noexcept {
      if constexpr (std::same_as<Extra, detail::Immediate>) {
        ibv_wr_send_imm(queue_, detail::to_network(extra.value));
      } else if constexpr (std::same_as<Extra, detail::PeersKey>) {
        ibv_wr_send_inv(queue_, extra.rkey);
      } else {
        ibv_wr_send(queue_);
      }
      if constexpr (std::same_as<Receiver, detail::Receiver>) {
        ibv_wr_set_ud_addr(queue_, to.handle, to.qp_num, to.qkey);
      }
    });
  }
  template <class Extra>
  [[gnu::always_inline]] void add_write(std::uint64_t wr_id, OpFlags flags, const Gather& from,
                                        const RemoteSpan& to, const Extra& extra) noexcept {
    check_inside(from.size(), to);
    gather(wr_id, flags, from, [&]() noexcept {
      if constexpr (std::same_as<Extra, detail::Immediate>) {
        ibv_wr_rdma_write_imm(queue_, to.rkey, to.address, detail::to_network(extra.value));
      } else {
        ibv_wr_rdma_write(queue_, to.rkey, to.address);
      }
    });
  }
};

using Batch = BasicBatch<Rc>;

namespace detail {

template <TransportType T>
struct IntoBatch {
  using Answer = void;
  template <class Add>
  [[gnu::always_inline]] void operator()(Add add) const noexcept {
    add(*batch);
  }
  BasicBatch<T>* batch;
};

}  // namespace detail

}  // namespace rkv::rdma
