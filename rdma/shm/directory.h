// Where servers put their sockets, who may be behind one, and which addresses mean this host.
//
// Thread safety: free functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/shm/memory.h"
#include "rkv/result.h"

namespace rkv::rdma::shm {

// The one directory a server uses: `chosen`, else RKV_SHM_DIR, else /run/rkv for root and
// /tmp/rkv-UID otherwise. Made where it is missing. kPermission: it is not ours, or others may
// write in it.
Result<std::string> server_directory(const std::string& chosen);
// Where a client looks, in this order: `chosen` alone, else RKV_SHM_DIR alone, else /run/rkv and
// then /tmp/rkv-UID.
std::vector<std::string> client_directories(const std::string& chosen);

std::string socket_path(const std::string& directory, std::uint16_t port);
std::string lock_path(const std::string& directory, std::uint16_t port);

// The port of HOST:PORT. kUnreachable, with the text `elsewhere`, which is static: HOST is another
// machine. Blocks for the system's resolver, at most until the deadline.
Result<std::uint16_t> local_port(const std::string& address, const Deadline& deadline,
                                 const char* elsewhere);

// The other end of a connected Unix socket is root or has our own user id. kPermission otherwise.
struct PeerProcess {
  int pid = 0;
};
Result<PeerProcess> trusted_peer(int socket);

}  // namespace rkv::rdma::shm
