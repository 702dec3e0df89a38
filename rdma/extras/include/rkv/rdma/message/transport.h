// Message transports send and receive messages over any medium. A template over MessageTransport
// runs on SEND and receive (send_receive.h), and on a ring that the peer writes into
// (credit_ring.h). For unit tests it runs in memory (memory_transport.h).
//
//   RKV_ASSIGN_OR_RETURN(std::size_t accepted, transport.send_copy(bytes));  // 0: no room now
//   std::array<Received, 16> got;
//   RKV_ASSIGN_OR_RETURN(std::size_t count, transport.poll_receives(got));
//   for (const Received& one : std::span(got).first(count)) {
//     use(transport.view(one.index));
//     RKV_RETURN_IF_ERROR(transport.release(one.index));   // in any order
//   }
//   // Nothing to do: arm, and sleep only if arm() returned true.
//   RKV_ASSIGN_OR_RETURN(bool may_sleep, transport.arm(Interest::kMessages | Interest::kRoom));
//   if (may_sleep) RKV_ASSIGN_OR_RETURN(bool woken, wait_readable(transport.fd(), deadline));
//
// Every transport keeps these invariants; tests/rdma/extras/message/ attacks each of them:
//   MSG-1  Sending never polls a completion queue; only the poll functions and arm() do. A send
//       counts as in flight until poll_sends() has reported it. So a send cannot consume a
//       completion that another caller waits for.
//   MSG-2  A completion taken from a queue is delivered or kept. A failure within a batch ends the
//       connection, but the completions before it are delivered first.
//   MSG-3  Messages arrive once, whole and in order. Their bytes do not change until release(), in
//       whatever order other messages are released.
//   MSG-4  If sending returns n > 0, the first n bytes are one message, and they are copied.
//   MSG-5  After arm() returned true, fd() becomes readable at the next event: no wake-up is lost.
//   MSG-6  Messages that arrived before the end of a connection are delivered before
//       poll_receives() reports the end.
//   MSG-7  A peer's input is validated before it is used. Invalid input ends the connection with a
//       typed error and touches only memory that the peer may write anyway.
//
// Thread safety: one thread at a time per transport. No function blocks.
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

// A received message: view(index) is valid until release(index).
struct Received {
  std::uint32_t index = 0;
  std::uint32_t length = 0;
};

// The events that a caller of arm() waits for. The end of the connection always counts.
enum class Interest : unsigned char {
  kNone = 0,
  kMessages = 1,  // a message to receive
  kRoom = 2,      // space for the message that was refused last
  kSent = 4,      // the completion of a send
};
template <>
inline constexpr bool kIsFlagEnum<Interest> = true;

template <class T>
concept MessageTransport =
    std::movable<T> && requires(T t, const T c, Bytes message, std::span<const Bytes> pieces,
                                std::span<Received> out, std::uint32_t index, Interest interest) {
      // Copies the message and starts the send. Returns the number of bytes taken: all, or
      // max_message() of a longer message, or 0 if there is no space now, which is not an error.
      // kInvalidArgument: an empty message; kDisconnected: the connection has ended. send_gather()
      // joins pieces into one message.
      { t.send_copy(message) } -> std::same_as<Result<std::size_t>>;
      { t.send_gather(pieces) } -> std::same_as<Result<std::size_t>>;
      // The number of sends that completed since the last call: the peer's memory has them. Sends
      // that the end of the connection cut off are not counted, and are not in flight any more.
      { t.poll_sends() } -> std::same_as<Result<std::size_t>>;
      // Received messages; those that do not fit into `out` are kept for the next call. 0: none
      // now. An error means that the connection failed and everything before it was delivered.
      { t.poll_receives(out) } -> std::same_as<Result<std::size_t>>;
      // REQUIRES: poll_receives() returned the index, and it is not released yet.
      { c.view(index) } -> std::same_as<Bytes>;
      { t.release(index) } -> std::same_as<Status>;
      // True when the connection has ended, by either side or by a failure. Earlier messages may
      // still be there: call poll_receives() once more.
      { t.poll_disconnect() } -> std::same_as<bool>;
      // Ends the connection now; sends in flight are lost. A second call is not an error.
      { t.disconnect() } -> std::same_as<Status>;
      { c.local_address() } -> std::same_as<SocketAddress>;
      { c.peer_address() } -> std::same_as<SocketAddress>;
      { c.max_message() } -> std::same_as<std::size_t>;
      { c.sends_in_flight() } -> std::same_as<std::size_t>;
      // The number of messages that may be held before one must be released.
      { c.receive_window() } -> std::same_as<std::size_t>;
      // For poll(2) and epoll(7); meaningful only after arm() returned true.
      { c.fd() } -> std::same_as<int>;
      // True: fd() becomes readable at the next event of interest. False: such an event has already
      // happened. Makes system calls.
      { t.arm(interest) } -> std::same_as<Result<bool>>;
    };

// Creates connected transports of one kind: a value that holds the configuration.
template <class B>
concept TransportBuilder = std::copyable<B> && MessageTransport<typename B::Transport> &&
                           requires(const B b, typename B::Listener& listener,
                                    const SocketAddress& address, const Deadline& deadline) {
                             // Port 0 takes a free port; the listener's address() returns it.
                             { b.listen(address) } -> std::same_as<Result<typename B::Listener>>;
                             // Both block until the deadline at most. kTimeout, kUnreachable.
                             // kRejected, kVersionMismatch, kCorrupt: the peer is of another kind
                             // or version, or sent invalid data.
                             {
                               b.connect(address, deadline)
                             } -> std::same_as<Result<typename B::Transport>>;
                             {
                               b.accept(listener, deadline)
                             } -> std::same_as<Result<typename B::Transport>>;
                             { listener.address() } -> std::same_as<SocketAddress>;
                           };

}  // namespace rkv::rdma
