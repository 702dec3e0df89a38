// A byte stream over any message transport, like TCP's: by polling or with coroutines.
//
//   Stream stream(std::move(transport), executor);
//   auto written = co_await stream.write(bytes);            // all of them
//   auto got = co_await stream.read(buffer, deadline);      // 1 or more; 0: the peer disconnected
//   co_await stream.shutdown();
//
//   // By polling: an empty optional means that nothing is ready; then arm() and wait for fd().
//   RKV_ASSIGN_OR_RETURN(std::optional<std::size_t> count, stream.try_read(buffer));
//
// A write copies its bytes, which may be reused when it returns. Writes are not framed: the peer
// reads the same bytes, divided differently.
//
// Invariants:
//   STREAM-1  Bytes are read in the order in which they were written, each once: the bytes in the
//       stash are older than those that the transport holds.
//   STREAM-2  While a write or a shutdown is blocked, the stream receives into the stash until the
//       stash is full. So two peers that both write before they read do not deadlock, unless one
//       writes more than the other's stash_bytes_max ahead of the reading.
//   STREAM-3  shutdown() ends the connection when every write is in the peer's memory; it does not
//       wait for an answer. close() ends the connection at once. Both may be called twice, and in
//       any order.
//   STREAM-4  After the peer has disconnected, the bytes that it wrote are read first; then a read
//       returns 0, or the error if the connection failed, also if a write of this side failed. A
//       peer disconnects by shutdown(), by close(), and by the end of its process, however it ends:
//       its kernel sends the same message. So 0 does not mean that the peer has written all that it
//       wanted to write. A protocol that must know this marks its own end.
//   STREAM-5  A coroutine that is destroyed, stopped or timed out while it waits leaves nothing
//       behind: no device ever writes into a buffer that was passed to read().
//
// One reader and one writer may wait at the same time. Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <coroutine>
#include <cstdint>
#include <cstring>
#include <expected>
#include <optional>
#include <span>
#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/message/byte_queue.h"
#include "rkv/rdma/message/executor.h"
#include "rkv/rdma/message/task.h"
#include "rkv/rdma/message/transport.h"

namespace rkv::rdma {

struct StreamOptions {
  // The limit for bytes received while a write is blocked. A larger value lets peers write further
  // ahead before one of them must read; the memory is allocated on demand and kept. 0: two peers
  // that write before they read may deadlock.
  std::size_t stash_bytes_max = std::size_t{64} << 20;
};

template <MessageTransport T>
class Stream {
 public:
  explicit Stream(T transport, const StreamOptions& options = {})
      : transport_(std::move(transport)), stash_(options.stash_bytes_max) {}
  // For coroutines. The executor must outlive the stream's coroutines.
  Stream(T transport, Executor& executor, const StreamOptions& options = {})
      : Stream(std::move(transport), options) {
    executor_ = &executor;
  }
  // REQUIRES: no coroutine waits for the stream. A moved-from stream may only be destroyed; any
  // other call aborts with a message.
  Stream(Stream&&) noexcept = default;
  Stream& operator=(Stream&&) = delete;
  // Closes the stream. REQUIRES: no coroutine waits for it.
  ~Stream() {
    RKV_CHECK(open_.waiters == (std::array<int, 3>{}),
              "a stream is destroyed while a coroutine waits for it");
    if (!open_.moved) std::ignore = close();
  }

  // Returns the number of bytes read; 0: end of the stream; empty: none now. REQUIRES: `into` is
  // not empty.
  Result<std::optional<std::size_t>> try_read(MutableBytes into) {
    return try_read_vectored({&into, 1});
  }
  Result<std::optional<std::size_t>> try_read_vectored(std::span<const MutableBytes> into);
  // Returns the number of bytes taken; empty: no space now. kDisconnected: either side has closed.
  Result<std::optional<std::size_t>> try_write(Bytes bytes) {
    return try_write_vectored({&bytes, 1});
  }
  Result<std::optional<std::size_t>> try_write_vectored(std::span<const Bytes> pieces);
  // True when the stream has ended: all writes are at the peer, or the peer has disconnected.
  Result<bool> try_shutdown();
  // Ends the stream now. Writes that are still in flight are lost.
  Status close() {
    check_here();
    open_.open = false;
    return transport_.disconnect();
  }

  // Prepares to wait: kMessages to read, kRoom to write on, kSent to shut down on. Returns true if
  // nothing is ready now; fd() then becomes readable at the next event.
  Result<bool> arm(Interest interest);
  int fd() const {
    check_here();
    return transport_.fd();
  }

  // Coroutines. REQUIRES: constructed with an executor. The memory of the spans must live until the
  // result. `until`: a deadline, a stop token, or both; kTimeout then.
  auto read(MutableBytes into, Until until = {}) {
    return Awaiter<ReadOp>(*this, ReadOp{.into = into}, std::move(until));
  }
  // Writes all bytes, in as many messages as needed. After an error some may have arrived.
  auto write(Bytes bytes, Until until = {}) {
    return Awaiter<WriteOp>(*this, WriteOp{.bytes = bytes}, std::move(until));
  }
  // Writes at least one byte, maybe not all.
  auto write_vectored(std::span<const Bytes> pieces, Until until = {}) {
    return Awaiter<GatherOp>(*this, GatherOp{.pieces = pieces}, std::move(until));
  }
  auto read_vectored(std::span<const MutableBytes> into, Until until = {}) {
    return Awaiter<ScatterOp>(*this, ScatterOp{.into = into}, std::move(until));
  }
  auto shutdown(Until until = {}) {
    return Awaiter<ShutdownOp>(*this, ShutdownOp{}, std::move(until));
  }

  T& transport() {
    check_here();
    return transport_;
  }
  std::size_t stashed() const { return stash_.size(); }

 private:
  // An operation for Awaiter: attempt() returns a result when it has one.
  struct ReadOp {
    static constexpr Interest kInterest = Interest::kMessages;
    MutableBytes into;
    Result<std::optional<std::size_t>> attempt(Stream& stream) { return stream.try_read(into); }
  };
  struct ScatterOp {
    static constexpr Interest kInterest = Interest::kMessages;
    std::span<const MutableBytes> into;
    Result<std::optional<std::size_t>> attempt(Stream& stream) {
      return stream.try_read_vectored(into);
    }
  };
  struct WriteOp {
    static constexpr Interest kInterest = Interest::kRoom;
    Bytes bytes;
    std::size_t written = 0;
    Result<std::optional<std::size_t>> attempt(Stream& stream) {
      while (written != bytes.size()) {
        RKV_ASSIGN_OR_RETURN(const auto count, stream.try_write(bytes.subspan(written)));
        if (!count) return std::optional<std::size_t>();
        written += *count;
      }
      return std::optional(written);
    }
  };
  struct GatherOp {
    static constexpr Interest kInterest = Interest::kRoom;
    std::span<const Bytes> pieces;
    Result<std::optional<std::size_t>> attempt(Stream& stream) {
      return stream.try_write_vectored(pieces);
    }
  };
  struct ShutdownOp {
    static constexpr Interest kInterest = Interest::kSent;
    Result<std::optional<std::size_t>> attempt(Stream& stream) {
      RKV_ASSIGN_OR_RETURN(const bool done, stream.try_shutdown());
      return done ? std::optional<std::size_t>(0) : std::nullopt;
    }
  };

  template <class Op>
  class Awaiter final : public LimitedWaiter {
   public:
    Awaiter(Stream& stream, Op op, Until until)
        : LimitedWaiter(std::move(until)), stream_(stream), op_(op) {}
    ~Awaiter() override { stream_.count(Op::kInterest, suspended_ ? -1 : 0); }

    bool await_ready() { return attempt(); }
    void await_suspend(std::coroutine_handle<> continuation) {
      RKV_CHECK(stream_.executor_ != nullptr, "a coroutine needs a stream with an executor");
      suspended_ = true;
      stream_.count(Op::kInterest, 1);
      suspend(*stream_.executor_, continuation);
    }
    // The number of bytes.
    Result<std::size_t> await_resume() const { return result_; }

    int fd() const override { return stream_.fd(); }
    Result<bool> arm() override { return stream_.arm(Op::kInterest); }
    void fail(const Error& error) override { result_ = std::unexpected(error); }
    bool attempt() override {
      if (!result_) return true;
      if (const std::optional<Error> over = this->over()) {
        result_ = std::unexpected(*over);
        return true;
      }
      const Result<std::optional<std::size_t>> answer = op_.attempt(stream_);
      if (answer && !*answer) return false;
      if (answer) {
        result_ = **answer;
      } else {
        result_ = std::unexpected(answer.error());
      }
      return true;
    }

   private:
    Stream& stream_;
    Op op_;
    Result<std::size_t> result_ = std::size_t{0};
    bool suspended_ = false;
  };

  // Records whether the destructor must close the stream, and detects a move while coroutines wait.
  struct Open {
    bool open = true;
    bool moved = false;
    std::array<int, 3> waiters{};  // for messages, for room, for sends
    Open() = default;
    Open(Open&& other) noexcept : open(other.open), moved(std::exchange(other.moved, true)) {
      RKV_CHECK(other.waiters == (std::array<int, 3>{}),
                "a stream is moved while a coroutine waits for it");
    }
  };

  void check_here() const { RKV_CHECK(!open_.moved, "the stream was moved from"); }
  void count(Interest interest, int by) {
    const int which = interest == Interest::kMessages ? 0 : interest == Interest::kRoom ? 1 : 2;
    open_.waiters[static_cast<std::size_t>(which)] += by;
  }
  // True if a received message is available; polls the transport if none is held.
  Result<bool> refill();
  // poll_disconnect() takes a system call, so it is called in one of 16 polls without a result.
  bool peer_has_left() {
    if (!look_ && ++quiet_polls_ % 16 != 0) return false;
    look_ = false;
    return transport_.poll_disconnect();
  }
  Bytes front() const { return transport_.view(held_[held_next_].index).subspan(offset_); }
  Status consume(std::size_t bytes) {
    offset_ += bytes;
    if (offset_ != held_[held_next_].length) return {};
    offset_ = 0;
    return transport_.release(held_[held_next_++].index);
  }
  Result<std::size_t> read_some(MutableBytes into);
  Status drain();

  T transport_;
  Executor* executor_ = nullptr;
  ByteQueue stash_;
  std::array<Received, 32> held_{};  // messages received and not released
  std::size_t held_next_ = 0;
  std::size_t held_count_ = 0;
  std::size_t offset_ = 0;  // bytes already read of the first of them
  unsigned quiet_polls_ = 0;
  bool look_ = true;         // poll_disconnect() is due
  bool at_end_ = false;      // the peer has disconnected, and everything before is read
  bool stash_full_ = false;  // a blocked write receives no more until something is read
  Open open_;
};

template <MessageTransport T>
Result<std::size_t> Stream<T>::read_some(MutableBytes into) {
  stash_full_ = false;  // after this read the stash has space, or is not needed
  if (!stash_.empty()) return stash_.pop(into);
  RKV_ASSIGN_OR_RETURN(const bool some, refill());
  if (!some) return 0U;
  const Bytes from = front();
  const std::size_t count = std::min(from.size(), into.size());
  if (count != 0) std::memcpy(into.data(), from.data(), count);
  // A failing release has ended the connection; the transport reports the error after the last
  // message.
  std::ignore = consume(count);
  return count;
}

template <MessageTransport T>
Result<bool> Stream<T>::refill() {
  if (held_next_ != held_count_) return true;
  held_next_ = held_count_ = offset_ = 0;
  RKV_ASSIGN_OR_RETURN(held_count_, transport_.poll_receives(held_));
  if (held_count_ == 0 && !at_end_ && peer_has_left()) {
    // Poll again: a message may have arrived just before the end.
    RKV_ASSIGN_OR_RETURN(held_count_, transport_.poll_receives(held_));
    at_end_ = held_count_ == 0;
  }
  return held_count_ != 0;
}

template <MessageTransport T>
Result<std::optional<std::size_t>> Stream<T>::try_read_vectored(
    std::span<const MutableBytes> into) {
  check_here();
  std::size_t total = 0;
  std::size_t room = 0;
  for (const MutableBytes piece : into) {
    room += piece.size();
    for (std::size_t done = 0; done != piece.size();) {
      const Result<std::size_t> count = read_some(piece.subspan(done));
      if (!count && total == 0) return std::unexpected(count.error());
      if (!count || *count == 0) {
        if (total != 0) return std::optional(total);
        return at_end_ ? std::optional<std::size_t>(0) : std::nullopt;
      }
      done += *count;
      total += *count;
    }
  }
  RKV_CHECK(room != 0,
            "a read needs space for at least one byte: a result of 0 means the end of the stream");
  return std::optional(total);
}

template <MessageTransport T>
Result<std::optional<std::size_t>> Stream<T>::try_write_vectored(std::span<const Bytes> pieces) {
  check_here();
  if (!open_.open) return fail(Code::kDisconnected, "the stream was closed");
  std::array<Bytes, 16> rest;
  std::size_t total = 0;
  std::size_t skip = 0;  // bytes of the first piece that are sent
  bool reaped = false;
  for (;;) {
    while (!pieces.empty() && skip >= pieces.front().size()) {
      skip -= pieces.front().size();
      pieces = pieces.subspan(1);
    }
    if (pieces.empty()) return std::optional(total);
    const std::size_t count = std::min(rest.size(), pieces.size());
    std::ranges::copy(pieces.first(count), rest.begin());
    rest[0] = rest[0].subspan(skip);
    const Result<std::size_t> taken =
        transport_.send_gather(std::span<const Bytes>(rest).first(count));
    if (!taken && total == 0) return std::unexpected(taken.error());
    if (!taken) return std::optional(total);
    total += *taken;
    skip += *taken;
    if (*taken != 0) {
      reaped = false;
    } else if (std::exchange(reaped, true)) {
      break;
    } else if (const Result<std::size_t> done = transport_.poll_sends(); !done) {
      if (total == 0) return std::unexpected(done.error());
      break;
    }
  }
  if (total != 0) return std::optional(total);
  RKV_RETURN_IF_ERROR(drain());
  if (peer_has_left()) return fail(Code::kDisconnected, "the peer has closed the stream");
  return std::optional<std::size_t>();
}

// STREAM-2: receiving lets the peer's sends complete, which the peer may await before it reads.
template <MessageTransport T>
Status Stream<T>::drain() {
  for (;;) {
    RKV_ASSIGN_OR_RETURN(const bool some, refill());
    if (!some) return {};
    const Bytes message = front();
    stash_full_ = message.size() > stash_.room();
    if (stash_full_) return {};
    stash_.push(message);
    RKV_RETURN_IF_ERROR(consume(message.size()));
  }
}

template <MessageTransport T>
Result<bool> Stream<T>::try_shutdown() {
  check_here();
  if (!open_.open) return true;
  // After a failure the peer cannot be reached, so there is nothing to wait for.
  const Result<std::size_t> done = transport_.poll_sends();
  if (done && transport_.sends_in_flight() != 0 && !peer_has_left()) {
    if (drain()) return false;
  }
  RKV_RETURN_IF_ERROR(close());
  return true;
}

template <MessageTransport T>
Result<bool> Stream<T>::arm(Interest interest) {
  check_here();
  for (std::size_t i = 0; i < open_.waiters.size(); ++i)
    if (open_.waiters[i] != 0) interest = interest | static_cast<Interest>(1U << i);
  const bool receives = interest != Interest::kMessages && !stash_full_;
  if (has(interest, Interest::kMessages) && (!stash_.empty() || held_next_ != held_count_)) {
    return false;
  }
  // The writer may have consumed the completions that a shutdown waits for.
  if (open_.waiters[2] != 0 && transport_.sends_in_flight() == 0) return false;
  if (receives) interest = interest | Interest::kMessages;
  RKV_ASSIGN_OR_RETURN(const bool quiet, transport_.arm(interest));
  look_ = look_ || !quiet;
  return quiet;
}

// Copies all bytes from `from` to `to` until the peer of `from` disconnects; returns their number.
// STREAM-4 says what its end does not prove.
template <MessageTransport A, MessageTransport B>
Task<Result<std::uint64_t>> copy_stream(Stream<A>& from, Stream<B>& to, MutableBytes buffer) {
  std::uint64_t total = 0;
  for (;;) {
    const Result<std::size_t> count = co_await from.read(buffer);
    if (!count) co_return std::unexpected(count.error());
    if (*count == 0) co_return total;
    const Result<std::size_t> written = co_await to.write(Bytes(buffer).first(*count));
    if (!written) co_return std::unexpected(written.error());
    total += *count;
  }
}

}  // namespace rkv::rdma
