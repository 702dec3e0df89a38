// TCP sockets of this transport: their options, and what their addresses are called.
//
// Thread safety: free functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/bytes.h"
#include "common/fd.h"
#include "rkv/clock.h"
#include "rkv/rdma/address.h"
#include "rkv/result.h"

namespace rkv::rdma::tcp {

// Nothing waits for more to send, and a peer whose host has ended is noticed within 3 s.
void set_options(int socket);
// "192.0.2.1:7471", also of an IPv4 address that came over an IPv6 socket; "?": it has none any
// more.
std::string name_of_peer(int socket);
std::string name_of_own_end(int socket);

// kConflict: the port is taken. kPermission.
Result<Fd> listen_on(const SocketAddress& address);
// Blocks until the deadline at most. kUnreachable, kTimeout.
Result<Fd> call(const SocketAddress& address, const Deadline& deadline);
// All of it, blocking until the deadline at most. kTimeout, kDisconnected.
Status send_all(int socket, Bytes bytes, const Deadline& deadline);
Status receive_all(int socket, MutableBytes bytes, const Deadline& deadline);

}  // namespace rkv::rdma::tcp
