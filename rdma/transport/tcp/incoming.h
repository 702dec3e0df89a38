// TcpIncoming: a caller that has said hello.
#pragma once

#include <memory>
#include <string>

#include "rdma/transport/tcp/protocol.h"
#include "rdma/transport/tcp/queue.h"

namespace rkv::rdma::tcp {

std::unique_ptr<Incoming> make_incoming(Fd socket, const Hello& hello);
// Opens a connection: Transport::connect().
Result<std::unique_ptr<Connection>> connect(TcpQueue& queue, const ConnectionOptions& options,
                                            const std::string& address, Bytes private_data,
                                            const Deadline& deadline, Rejection* rejection);

}  // namespace rkv::rdma::tcp
