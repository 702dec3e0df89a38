// Accepting message transports in steps that do not wait for the peer. One thread can accept many
// clients and serve others meanwhile.
//
//   // When listener.fd() is readable:
//   RKV_ASSIGN_OR_RETURN(std::optional<ConnectRequest> request, listener.next());
//   if (request) {
//     auto one = builder.start_accept(std::move(*request));
//     if (one) accepting.push_back(std::move(*one));    // an error is about this client only
//   }
//   // When one.fd() is readable:
//   auto accepted = one.try_accept();
//   if (accepted && *accepted) serve(std::move(**accepted));
//   if (!accepted || *accepted) ... destroy `one` ...
//
// In a coroutine: co_await accepted(executor, std::move(one), deadline), connecting.h.
//
// Invariant:
//   ACCEPT-1  No call waits for the peer. A client that never finishes its handshake, or never
//       sends the key of its ring, keeps only the queues and the memory of its own transport, until
//       the program destroys the AcceptingTransport. A program should limit how many it has and how
//       long it keeps each.
//
// Thread safety: that of the transport.
#pragma once

#include <optional>
#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/address.h"
#include "rkv/result.h"

namespace rkv::rdma {

// A connection that was accepted and whose peer has not finished the handshake. The start_accept()
// of a builder makes it. Its destructor ends the connection.
template <class T>
class AcceptingTransport {
 public:
  // Returns the transport when it can be used; then only destroy this object. nullopt: call again
  // when fd() is readable. Makes system calls, but does not wait for the peer. For a ring with a
  // memory window it waits until this side's device has bound the window. After kDisconnected,
  // kCorrupt, or another error of accept(), destroy this object.
  Result<std::optional<T>> try_accept() {
    RKV_CHECK(transport_.has_value(), "try_accept() after the transport was returned");
    RKV_ASSIGN_OR_RETURN(const bool finished, transport_->try_finish());
    if (!finished) return std::optional<T>{};
    return std::exchange(transport_, std::nullopt);
  }
  // The descriptor is valid until this object, or the transport that it returned, is destroyed.
  int fd() const { return fd_; }
  const SocketAddress& peer_address() const { return peer_; }

 private:
  friend struct SendReceiveBuilder;
  friend struct CreditRingBuilder;
  explicit AcceptingTransport(T transport)
      : fd_(transport.fd()), peer_(transport.peer_address()), transport_(std::move(transport)) {}

  int fd_;
  SocketAddress peer_;
  std::optional<T> transport_;  // kept after an error, so that fd() stays open
};

}  // namespace rkv::rdma
