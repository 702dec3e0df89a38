// The operations of MessageTransport for this library's own transports, forwarded to a state that
// does not move. transport.h documents each operation at the concept. The transports are in
// send_receive.h, credit_ring.h and memory_transport.h.
//
// A moved-from transport may only be assigned to or destroyed. Any other call is a bug and aborts
// with a message.
//
// Thread safety and buffers: those of the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rkv/export.h"
#include "rkv/rdma/message/transport.h"

namespace rkv::rdma {

template <class State>
class RKV_EXPORT TransportOf {
 public:
  Result<std::size_t> send_copy(Bytes message);
  Result<std::size_t> send_gather(std::span<const Bytes> pieces);
  Result<std::size_t> poll_sends();
  Result<std::size_t> poll_receives(std::span<Received> out);
  Bytes view(std::uint32_t index) const;
  Status release(std::uint32_t index);
  bool poll_disconnect();
  Status disconnect();
  SocketAddress local_address() const;
  SocketAddress peer_address() const;
  std::size_t max_message() const;
  std::size_t sends_in_flight() const;
  std::size_t receive_window() const;
  int fd() const;
  Result<bool> arm(Interest interest);

  TransportOf(TransportOf&&) noexcept;
  TransportOf& operator=(TransportOf&&) noexcept;

 protected:
  explicit TransportOf(std::unique_ptr<State> state);
  ~TransportOf();
  // REQUIRES: not moved-from.
  State& state() const;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace rkv::rdma
