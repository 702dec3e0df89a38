// TCP sockets of this transport: their options, and the text of their addresses.
//
// Thread safety: free functions, any thread.
#pragma once

#include <string>

#include "common/bytes.h"
#include "common/fd.h"
#include "rkv/clock.h"
#include "rkv/rdma/address.h"
#include "rkv/result.h"

namespace rkv::rdma::tcp {

// Sets the options: the kernel does not hold back short segments, and the end of a peer's host is
// noticed within 3 s.
void set_options(int socket);
// Returns "192.0.2.1:7471", also for an IPv4 address of an IPv6 socket; "?": the socket has no peer
// any more.
std::string name_of_peer(int socket);
std::string name_of_own_end(int socket);

// kConflict: the port is taken. kPermission: the system refuses it.
Result<Fd> listen_on(const SocketAddress& address);
// Connects. Blocks until the deadline at most. Fails with kUnreachable or kTimeout.
Result<Fd> call(const SocketAddress& address, const Deadline& deadline);
// Sends all bytes. Blocks until the deadline at most. Fails with kTimeout or kDisconnected.
Status send_all(int socket, Bytes bytes, const Deadline& deadline);
Status receive_all(int socket, MutableBytes bytes, const Deadline& deadline);

}  // namespace rkv::rdma::tcp
