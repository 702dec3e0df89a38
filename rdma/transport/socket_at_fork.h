// SocketAtFork: in a forked child, replaces the child's copy of a connection's socket by one that
// leads nowhere. So the peer notices the end of the parent while its children live, and nothing
// that a child does to the descriptor reaches the peer.
//
// Thread safety: none.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/at_fork.h"
#include "common/fd.h"

namespace rkv::rdma {

class SocketAtFork {
 public:
  // The descriptor must stay open while this object exists.
  explicit SocketAtFork(int socket) : replaced_([socket] { replace(socket); }) {}

 private:
  // If no descriptor can be made, the copy stays as it is.
  static void replace(int socket) {
    const Fd nowhere(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (nowhere) dup3(nowhere.get(), socket, O_CLOEXEC);
  }

  const AtFork replaced_;
};

}  // namespace rkv::rdma
