// Both sides of the handshake: a server's answer to a client that has sent its Hello, and
// connect().
#pragma once

#include <memory>
#include <string>

#include "rdma/transport/shm/connection.h"
#include "rdma/transport/shm/protocol.h"

namespace rkv::rdma::shm {

std::unique_ptr<Incoming> make_incoming(std::shared_ptr<Shared> shared, PeerSocket socket,
                                        const Hello& hello, std::string peer, std::string called);
// The text of Incoming::called() for the server of a port.
std::string called_text(std::uint16_t port);

// Finds the server's socket, greets, and waits for the answer until the deadline.
Result<std::unique_ptr<Connection>> connect(ShmQueue& queue, const ConnectionOptions& options,
                                            const std::string& address, Bytes private_data,
                                            const Deadline& deadline, Rejection* rejection);

}  // namespace rkv::rdma::shm
