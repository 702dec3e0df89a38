// A datagram queue pair with its buffers, used as a socket: send to an endpoint, receive from
// anybody, and reply to the sender.
//
//   RKV_ASSIGN_OR_RETURN(DatagramSocket server, DatagramSocket::open(device, {}));
//   ... the client gets server.endpoint() by any means (endpoint.h) ...
//   RKV_ASSIGN_OR_RETURN(const IncomingDatagram question, server.receive(deadline));
//   RKV_RETURN_IF_ERROR(server.reply(question, as_bytes("answer"), deadline));
//
// Datagrams may be lost, reordered or duplicated, and a datagram that finds no free buffer is lost.
// A completed send means that the datagram has left, not that it has arrived.
//
// Sockets that talk to each other have the same Q_Key. It is not a secret: it only keeps datagrams
// of other programs away.
//
// The first datagram to a peer makes a system call and may ask the network for the peer's hardware
// address. Later ones use the same address handle; the socket keeps `peers` of them. Otherwise
// nothing allocates. Thread safety: one thread at a time. Source: ibv_create_qp_ex(3),
// ibv_create_ah(3), InfiniBand specification 8.3 (GRH).
#pragma once

#include <cstdint>
#include <memory>

#include "rkv/bytes.h"
#include "rkv/clock.h"
#include "rkv/export.h"
#include "rkv/rdma/address_handle.h"
#include "rkv/rdma/endpoint.h"
#include "rkv/result.h"

namespace rkv::rdma {

struct DatagramSocketOptions {
  std::uint8_t port = 0;          // 0: the first active one
  std::uint32_t receives = 64;    // datagrams that wait for receive(); 1 to 16384
  std::uint32_t peers = 64;       // address handles that are kept; 1 to 65536
  std::uint32_t qkey = 0x524B56;  // the same for all sockets that talk to each other; below 2^31
};

// A received datagram. The payload belongs to the socket and is valid until its next receive().
struct IncomingDatagram {
  Bytes payload;
  AddressAttributes sender;  // its address
  std::uint32_t qp_num = 0;  // and its queue pair
};

class RKV_EXPORT DatagramSocket {
 public:
  // Creates the queue pair and registers its buffers, of the port's MTU each. kInvalidArgument
  // names the option; kNoDevice: the port is not active; kUnsupported: the device has no datagrams
  // (iWARP).
  static Result<DatagramSocket> open(const Device& device, const DatagramSocketOptions& options);
  // A moved-from socket may be assigned to or destroyed.
  DatagramSocket(DatagramSocket&&) noexcept;
  DatagramSocket& operator=(DatagramSocket&&) noexcept;
  ~DatagramSocket();

  const Endpoint& endpoint() const;  // to send to
  std::size_t max_bytes() const;     // the longest message: the port's MTU

  // Copies the message and waits until it has left. Blocks. kTooLarge: above max_bytes().
  // kUnreachable: no route leads there, or no host has the address. kTimeout: the datagram may
  // leave later.
  Status send(const Endpoint& to, Bytes message, const Deadline& deadline);
  // Sends to the socket that sent `to`.
  Status reply(const IncomingDatagram& to, Bytes message, const Deadline& deadline);
  // Waits for a datagram. Blocks. Fails with kTimeout. A datagram whose header is malformed is
  // dropped.
  Result<IncomingDatagram> receive(const Deadline& deadline);

 private:
  class State;
  explicit DatagramSocket(std::unique_ptr<State> state);
  State& state() const;
  std::unique_ptr<State> state_;
};

}  // namespace rkv::rdma
