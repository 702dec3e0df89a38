// Message transports: bytes out, messages in, over any way of moving them. Code that is a template
// over MessageTransport runs on SEND and receive (send_receive.h), on rings that the peer writes
// into (credit_ring.h, read_ring.h), and in memory for unit tests (memory_transport.h).
//
//   RKV_ASSIGN_OR_RETURN(std::size_t accepted, transport.send_copy(bytes));  // 0: no room now
//   std::array<Received, 16> got;
//   RKV_ASSIGN_OR_RETURN(std::size_t count, transport.poll_receives(got));
//   for (const Received& one : std::span(got).first(count)) {
//     use(transport.view(one.index));
//     RKV_RETURN_IF_ERROR(transport.release(one.index));   // in any order
//   }
//   // Nothing to do: arm, and sleep only when that says so.
//   RKV_ASSIGN_OR_RETURN(bool may_sleep, transport.arm(Interest::kMessages | Interest::kRoom));
//   if (may_sleep) RKV_ASSIGN_OR_RETURN(bool woken, wait_readable(transport.fd(), deadline));
//
// What every transport keeps; tests/rdma/message/ attacks each:
//   T1. Sending never polls a completion queue, only the polls and arm() do; and sends count as in
//       flight until poll_sends() has told of them. So nobody who waits for one finds it taken.
//   T2. What was taken out of a completion queue is delivered or kept. A failure in the middle of a
//       batch ends the connection, but what came before it is delivered first.
//   T3. Messages arrive once, whole and in order. Their bytes stay as they are until release(),
//       however many others are released before.
//   T4. A count n > 0 from sending means: the first n bytes are one message, and they are copied.
//   T5. When arm() gave true, fd() becomes readable at the next event: no wake-up is lost.
//   T6. Messages that came before the end of a connection are delivered before poll_receives() says
//       anything of the end.
//   T7. What a peer sends is checked before it is used. A lie ends the connection with a typed
//       error and touches no memory but what the peer may write anyway.
//
// Thread safety: one thread at a time for a transport. Nothing here blocks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "rkv/bytes.h"
#include "rkv/clock.h"
#include "rkv/rdma/address.h"
#include "rkv/rdma/flags.h"
#include "rkv/result.h"

namespace rkv::rdma {

// A message that has come: view(index) until release(index).
struct Received {
  std::uint32_t index = 0;
  std::uint32_t length = 0;
};

// What a caller of arm() waits for. The end of the connection always counts.
enum class Interest : unsigned char {
  kNone = 0,
  kMessages = 1,  // a message to receive
  kRoom = 2,      // room for the message that was refused last
  kSent = 4,      // a send that has completed
};
template <>
inline constexpr bool kIsFlagEnum<Interest> = true;

template <class T>
concept MessageTransport =
    std::movable<T> && requires(T t, const T c, Bytes message, std::span<const Bytes> pieces,
                                std::span<Received> out, std::uint32_t index, Interest interest) {
      // Copies the message and starts it; returns how many bytes were taken: all, or max_message()
      // of a longer one, or 0 where there is no room now, which is no error. kInvalidArgument: an
      // empty message; kDisconnected: the connection has ended. The second form gathers pieces.
      { t.send_copy(message) } -> std::same_as<Result<std::size_t>>;
      { t.send_gather(pieces) } -> std::same_as<Result<std::size_t>>;
      // How many sends have completed since the last call: the peer's memory has them. Those that
      // an end of the connection overtook are not counted, and are in flight no longer.
      { t.poll_sends() } -> std::same_as<Result<std::size_t>>;
      // Messages that have come; those that do not fit into `out` are kept for the next call. 0 is
      // "none now". An error comes when the connection failed and everything before is delivered.
      { t.poll_receives(out) } -> std::same_as<Result<std::size_t>>;
      // REQUIRES: poll_receives() gave the index, and it is not released yet.
      { c.view(index) } -> std::same_as<Bytes>;
      { t.release(index) } -> std::same_as<Status>;
      // True when the connection has ended, by either side or by a failure. Messages that came
      // before may still be there: poll_receives() once more.
      { t.poll_disconnect() } -> std::same_as<bool>;
      // Ends the connection now; sends under way are lost. Twice is no error.
      { t.disconnect() } -> std::same_as<Status>;
      { c.local_address() } -> std::same_as<SocketAddress>;
      { c.peer_address() } -> std::same_as<SocketAddress>;
      { c.max_message() } -> std::same_as<std::size_t>;
      { c.sends_in_flight() } -> std::same_as<std::size_t>;
      // How many messages may be held at a time before one must be released.
      { c.receive_window() } -> std::same_as<std::size_t>;
      // For poll(2), epoll(7); says something only after arm() gave true.
      { c.fd() } -> std::same_as<int>;
      // False: something of interest is there already. Takes system calls.
      { t.arm(interest) } -> std::same_as<Result<bool>>;
    };

// Makes connected transports of one kind: a value that holds the configuration.
template <class B>
concept TransportBuilder = std::copyable<B> && MessageTransport<typename B::Transport> &&
                           requires(const B b, typename B::Listener& listener,
                                    const SocketAddress& address, const Deadline& deadline) {
                             // Port 0 takes a free one, which the listener's address() tells.
                             { b.listen(address) } -> std::same_as<Result<typename B::Listener>>;
                             // Both block until the deadline at most. kTimeout, kUnreachable;
                             // kRejected, kVersionMismatch, kCorrupt: the peer is of another kind
                             // or version, or sent nonsense.
                             {
                               b.connect(address, deadline)
                             } -> std::same_as<Result<typename B::Transport>>;
                             {
                               b.accept(listener, deadline)
                             } -> std::same_as<Result<typename B::Transport>>;
                             { listener.address() } -> std::same_as<SocketAddress>;
                           };

}  // namespace rkv::rdma
