// A batch of work requests, posted together with one doorbell.
//
//   Batch batch = qp.batch();
//   batch.read(1, OpFlags::kNone, local_a, remote_a);
//   batch.read(2, OpFlags::kSignaled, local_b, remote_b);
//   RKV_RETURN_IF_ERROR(std::move(batch).submit());   // dropped without: nothing is posted
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
#include "rkv/rdma/newer_operations.h"
#include "rkv/rdma/transport_types.h"
#include "rkv/rdma/window.h"
#include "rkv/result.h"

namespace rkv::rdma {

template <TransportType T>
class BasicQueuePair;

namespace detail {

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
  BatchCore(ibv_qp_ex* queue, std::uint32_t inline_bytes) noexcept
      : queue_(queue), inline_bytes_(inline_bytes) {
    RKV_CHECK(queue_ != nullptr, "a batch of a queue pair that was moved away");
    // Providers take a lock in ibv_wr_start, so a thread with two open batches would deadlock.
    RKV_CHECK(!is_open(queue_->qp_base),
              "a batch is opened while a batch of its queue pair is open");
    queue_->qp_base.qp_context = queue_;
    ibv_wr_start(queue_);
  }
  // Always inlined, even in cold code: a call would force the batch into memory (file comment).
  [[gnu::always_inline]] ~BatchCore() {
    if (queue_ != nullptr) abandon(queue_);
  }

  void begin(std::uint64_t wr_id, OpFlags flags) noexcept {
    RKV_CHECK(queue_ != nullptr, "an operation on a batch that has been submitted");
    queue_->wr_id = wr_id;
    queue_->wr_flags = std::to_underlying(flags);
    ++count_;
  }
  void begin(std::uint64_t wr_id, OpFlags flags, const RemoteSpan& remote,
             std::size_t length) noexcept {
    RKV_CHECK(length <= remote.length, "a request reaches past its remote span");
    begin(wr_id, flags);
  }
  // The inline flag must be in wr_flags before the operation is chosen. SoftRoCE uses it to decide
  // where to put the bytes; without it the queue pair fails.
  void begin_inline(std::uint64_t wr_id, OpFlags flags, std::size_t length) noexcept {
    RKV_CHECK(length <= inline_bytes_, "an inline message is longer than inline_bytes()");
    begin(wr_id, flags);
    queue_->wr_flags |= IBV_SEND_INLINE;
  }
  void set(const RegisteredSpan& local) noexcept {
    const ibv_sge piece = local.sge();
    ibv_wr_set_sge(queue_, piece.lkey, piece.addr, piece.length);
  }
  void set_inline(Bytes bytes) noexcept {
    ibv_wr_set_inline_data(queue_, const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  // Copies the pieces into one buffer. ibv_wr_set_inline_data_list is not used: SoftRoCE's version
  // delivers an empty message and reports success. `begun` chooses the operation after the request
  // has begun.
  template <class Begun>
  void gather_inline(std::uint64_t wr_id, OpFlags flags, std::span<const Bytes> pieces,
                     Begun begun) noexcept {
    Gathered gathered;
    const Bytes message = gather(gathered, pieces);
    begin_inline(wr_id, flags, message.size());
    begun();
    set_inline(message);
  }
  void begin_bind(std::uint64_t wr_id, OpFlags flags, Window& window, const WindowRange& range,
                  RemoteSpan& offered) noexcept;
  void begin_invalidate(std::uint64_t wr_id, OpFlags flags, Window& window) noexcept;
  // The success path is inline because a call would be a large part of the cost of a batch of one
  // request.
  Status complete() noexcept {
    RKV_CHECK(queue_ != nullptr, "a batch submitted twice");
    ibv_qp_ex* const queue = std::exchange(queue_, nullptr);
    queue->qp_base.qp_context = nullptr;
    const int answer = count_ != 0 ? ibv_wr_complete(queue) : abandon(queue);
    if (answer != 0) [[unlikely]]
      return refused(answer);
    return {};
  }
  Status drop_too_long() noexcept;

  ibv_qp_ex* queue_;
  std::uint32_t inline_bytes_;
  std::uint32_t count_ = 0;

 private:
  struct Gathered {
    std::byte bytes[1024];
  };
  static int abandon(ibv_qp_ex* queue) noexcept;
  static Status refused(int answer) noexcept;
  Bytes gather(Gathered& to, std::span<const Bytes> pieces) const noexcept;
};

constexpr std::uint32_t to_network(std::uint32_t immediate) {
  if constexpr (std::endian::native == std::endian::big) return immediate;
  return __builtin_bswap32(immediate);
}

// A batch for transports on which each request names its receiver. `Derived` has address(to), which
// writes the receiver into the request.
template <class Derived, class Destination>
class DirectedBatch : public BatchCore {
 public:
  void send(std::uint64_t wr_id, OpFlags flags, const Destination& to,
            const RegisteredSpan& message) noexcept {
    begin(wr_id, flags);
    ibv_wr_send(queue_);
    address_and_set(to, message);
  }
  void send_immediate(std::uint64_t wr_id, OpFlags flags, const Destination& to,
                      const RegisteredSpan& message, std::uint32_t immediate) noexcept {
    begin(wr_id, flags);
    ibv_wr_send_imm(queue_, to_network(immediate));
    address_and_set(to, message);
  }
  void read(std::uint64_t wr_id, OpFlags flags, const Destination& from, const RegisteredSpan& to,
            const RemoteSpan& remote) noexcept {
    begin(wr_id, flags, remote, to.size());
    ibv_wr_rdma_read(queue_, remote.rkey, remote.address);
    address_and_set(from, to);
  }
  Status submit() && noexcept { return complete(); }

 protected:
  void address_and_set(const Destination& peer, const RegisteredSpan& local) noexcept {
    static_cast<Derived*>(this)->address(peer);
    set(local);
  }

 private:
  friend Derived;
  DirectedBatch(ibv_qp_ex* queue, std::uint32_t inline_bytes) noexcept
      : BatchCore(queue, inline_bytes) {}
};

}  // namespace detail

template <TransportType T>
class BasicBatch;

// A receiver for one request. Returned by BasicBatch<Ud>::to(); valid for that request only.
class [[nodiscard]] Addressed {
 public:
  Addressed(const Addressed&) = delete;
  Addressed& operator=(const Addressed&) = delete;

  // The message may have at most max_datagram_bytes() of the queue pair: a device drops longer ones
  // and reports success. The limit depends on the network, so exceeding it is not a programming
  // error. In that case submit() returns kTooLarge and posts no request of the batch.
  inline void send(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message) && noexcept;
  inline void send_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message,
                             std::uint32_t immediate) && noexcept;
  inline void send_inline(std::uint64_t wr_id, OpFlags flags, Bytes message) && noexcept;
  inline void send_inline(std::uint64_t wr_id, OpFlags flags,
                          std::span<const Bytes> pieces) && noexcept;

 private:
  friend class BasicBatch<Ud>;
  Addressed(BasicBatch<Ud>& batch, ibv_ah* handle, std::uint32_t qp_num, std::uint32_t qkey)
      : batch_(batch), handle_(handle), qp_num_(qp_num), qkey_(qkey) {}
  inline void address() noexcept;
  inline bool fits(std::size_t length) noexcept;

  BasicBatch<Ud>& batch_;
  ibv_ah* handle_;
  std::uint32_t qp_num_;
  std::uint32_t qkey_;
};

namespace detail {
struct NoLimit {};
template <class T>
struct DatagramLimit {
  using Type = NoLimit;
};
struct LongestDatagram {
  std::uint32_t bytes;
  bool exceeded = false;
};
template <>
struct DatagramLimit<Ud> {
  using Type = LongestDatagram;
};
}  // namespace detail

// At most one batch may be open per queue pair: opening a second aborts. A batch cannot be copied
// or moved. It is submitted explicitly with std::move(batch).submit().
template <TransportType T>
class RKV_CONSUMABLE BasicBatch : public detail::BatchCore {
 public:
  [[gnu::always_inline]] ~BasicBatch() = default;

  // Reads to.size() bytes from the beginning of `from` into the local span `to`.
  void read(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& to,
            const RemoteSpan& from) noexcept
    requires(HasRead<T> && Connected<T>)
  {
    begin(wr_id, flags, from, to.size());
    ibv_wr_rdma_read(queue_, from.rkey, from.address);
    set(to);
  }
  void write(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& from,
             const RemoteSpan& to) noexcept
    requires(HasWrite<T> && Connected<T>)
  {
    begin(wr_id, flags, to, from.size());
    ibv_wr_rdma_write(queue_, to.rkey, to.address);
    set(from);
  }
  // WRITE with immediate data. It consumes one of the peer's receives, which completes with
  // `immediate`.
  void write_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& from,
                       const RemoteSpan& to, std::uint32_t immediate) noexcept
    requires(HasWrite<T> && Connected<T>)
  {
    begin(wr_id, flags, to, from.size());
    ibv_wr_rdma_write_imm(queue_, to.rkey, to.address, detail::to_network(immediate));
    set(from);
  }
  // The 8-byte old value is written to `old_value`. The remote word must be 8-byte aligned, or the
  // peer's device refuses the request.
  void compare_swap(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& old_value,
                    const RemoteSpan& word, std::uint64_t expected, std::uint64_t desired) noexcept
    requires(HasAtomics<T> && Connected<T>)
  {
    RKV_CHECK(old_value.size() == 8, "the old value of an atomic is 8 bytes long");
    begin(wr_id, flags, word, 8);
    ibv_wr_atomic_cmp_swp(queue_, word.rkey, word.address, expected, desired);
    set(old_value);
  }
  void fetch_add(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& old_value,
                 const RemoteSpan& word, std::uint64_t addend) noexcept
    requires(HasAtomics<T> && Connected<T>)
  {
    RKV_CHECK(old_value.size() == 8, "the old value of an atomic is 8 bytes long");
    begin(wr_id, flags, word, 8);
    ibv_wr_atomic_fetch_add(queue_, word.rkey, word.address, addend);
    set(old_value);
  }
  // Stores 8 bytes atomically: no reader loads a part of them. The word must be 8-byte aligned.
  // REQUIRES: the queue pair was created with SendOps::kAtomicWrite.
  void atomic_write(std::uint64_t wr_id, OpFlags flags, const RemoteSpan& word,
                    std::uint64_t value) noexcept
    requires std::same_as<T, Rc>
  {
    begin(wr_id, flags, word, 8);
    detail::atomic_write(queue_, word, value);
  }
  // Completes when earlier WRITEs to `range` have reached `placement`. The peer's region must allow
  // it. REQUIRES: the queue pair was created with SendOps::kFlush.
  void flush(std::uint64_t wr_id, OpFlags flags, const RemoteSpan& range,
             FlushTo placement) noexcept
    requires std::same_as<T, Rc>
  {
    begin(wr_id, flags, range, range.length);
    detail::flush(queue_, range, placement);
  }
  void send(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message) noexcept
    requires Connected<T>
  {
    begin(wr_id, flags);
    ibv_wr_send(queue_);
    set(message);
  }
  void send_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message,
                      std::uint32_t immediate) noexcept
    requires Connected<T>
  {
    begin(wr_id, flags);
    ibv_wr_send_imm(queue_, detail::to_network(immediate));
    set(message);
  }

  // Inline operations copy the bytes at once, so the buffer needs no registration and may be reused
  // at once. The total length is at most the queue pair's inline_bytes(). Several pieces are first
  // gathered into one buffer.
  void send_inline(std::uint64_t wr_id, OpFlags flags, Bytes message) noexcept
    requires Connected<T>
  {
    begin_inline(wr_id, flags, message.size());
    ibv_wr_send(queue_);
    set_inline(message);
  }
  void send_inline(std::uint64_t wr_id, OpFlags flags, std::span<const Bytes> pieces) noexcept
    requires Connected<T>
  {
    gather_inline(wr_id, flags, pieces, [&] { ibv_wr_send(queue_); });
  }
  void write_inline(std::uint64_t wr_id, OpFlags flags, Bytes from, const RemoteSpan& to) noexcept
    requires(HasWrite<T> && Connected<T>)
  {
    RKV_CHECK(from.size() <= to.length, "a request reaches past its remote span");
    begin_inline(wr_id, flags, from.size());
    ibv_wr_rdma_write(queue_, to.rkey, to.address);
    set_inline(from);
  }

  // Sets the receiver of the next request; datagrams can only be sent this way. `qkey` is the key
  // the receiver was activated with. The handle must live until the request has completed, so
  // temporaries are refused.
  Addressed to(const AddressHandle& receiver, std::uint32_t qp_num, std::uint32_t qkey) noexcept
    requires std::same_as<T, Ud>
  {
    return {*this, receiver.raw(), qp_num, qkey};
  }
  Addressed to(const AddressHandle&& receiver, std::uint32_t qp_num, std::uint32_t qkey) noexcept
    requires std::same_as<T, Ud>
  = delete;

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
  // Sends a message that invalidates one of the peer's windows. The peer's receive completes with
  // the key. If the key is not bound to this connection, the peer's device refuses it and the
  // connection ends.
  void send_invalidate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message,
                       std::uint32_t peers_rkey) noexcept
    requires HasWindows<T>
  {
    begin(wr_id, flags);
    ibv_wr_send_inv(queue_, peers_rkey);
    set(message);
  }

  // Posts the batch with one doorbell: every request starts, or on an error none does. An empty
  // batch has no effect. kOutOfMemory: the send queue is full. kTooLarge: a datagram is too long.
  // kUnsupported: the device lacks an operation. A provider without extended work requests may
  // refuse a batch in its middle; then the queue pair is in the error state.
  // Does not block. Requires an rvalue; a second submit() aborts, which Clang's -Wconsumed reports
  // at compile time.
  Status submit() && noexcept RKV_CONSUMES {
    if constexpr (std::same_as<T, Ud>) {
      if (longest_.exceeded) [[unlikely]]
        return drop_too_long();
    }
    return complete();
  }

 private:
  friend class BasicQueuePair<T>;
  friend class Addressed;
  using BatchCore::BatchCore;
  BasicBatch(ibv_qp_ex* queue, std::uint32_t inline_bytes,
             std::uint32_t max_datagram_bytes) noexcept
    requires std::same_as<T, Ud>
      : BatchCore(queue, inline_bytes), longest_{.bytes = max_datagram_bytes} {}

  [[no_unique_address]] typename detail::DatagramLimit<T>::Type longest_;
};

bool Addressed::fits(std::size_t length) noexcept {
  if (length <= batch_.longest_.bytes) [[likely]]
    return true;
  batch_.longest_.exceeded = true;
  return false;
}
void Addressed::address() noexcept {
  ibv_wr_set_ud_addr(batch_.queue_, handle_, qp_num_, qkey_);
}
void Addressed::send(std::uint64_t wr_id, OpFlags flags,
                     const RegisteredSpan& message) && noexcept {
  if (!fits(message.size())) return;
  batch_.begin(wr_id, flags);
  ibv_wr_send(batch_.queue_);
  address();
  batch_.set(message);
}
void Addressed::send_immediate(std::uint64_t wr_id, OpFlags flags, const RegisteredSpan& message,
                               std::uint32_t immediate) && noexcept {
  if (!fits(message.size())) return;
  batch_.begin(wr_id, flags);
  ibv_wr_send_imm(batch_.queue_, detail::to_network(immediate));
  address();
  batch_.set(message);
}
void Addressed::send_inline(std::uint64_t wr_id, OpFlags flags, Bytes message) && noexcept {
  if (!fits(message.size())) return;
  batch_.begin_inline(wr_id, flags, message.size());
  ibv_wr_send(batch_.queue_);
  address();
  batch_.set_inline(message);
}
void Addressed::send_inline(std::uint64_t wr_id, OpFlags flags,
                            std::span<const Bytes> pieces) && noexcept {
  std::size_t length = 0;
  for (const Bytes piece : pieces)
    length += piece.size();
  if (!fits(length)) return;
  batch_.gather_inline(wr_id, flags, pieces, [&]() noexcept {
    ibv_wr_send(batch_.queue_);
    address();
  });
}

using Batch = BasicBatch<Rc>;

}  // namespace rkv::rdma
