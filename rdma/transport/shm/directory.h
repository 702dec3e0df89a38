// The directory of servers' sockets, checks of a socket's peer, and addresses that mean this host.
//
// Thread safety: free functions; any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/transport/host_memory.h"
#include "rkv/result.h"

namespace rkv::rdma::shm {

// Returns the directory that a server uses: `chosen`, else RKV_SHM_DIR, else /run/rkv for root and
// /tmp/rkv-UID otherwise. Creates it if it is missing; `group`, if any, may then pass through it.
// kPermission: it is not ours, or others may write in it.
Result<std::string> server_directory(const std::string& chosen, std::optional<gid_t> group);
// Looks up a group by name or number; returns nullopt for "". kInvalidArgument: there is no such
// group.
Result<std::optional<gid_t>> group_named(const std::string& group);
// Returns the directories that a client searches, in order: `chosen` alone, else RKV_SHM_DIR alone,
// else /run/rkv and then /tmp/rkv-UID.
std::vector<std::string> client_directories(const std::string& chosen);

std::string socket_path(const std::string& directory, std::uint16_t port);
std::string lock_path(const std::string& directory, std::uint16_t port);

// Returns the port of HOST:PORT. kUnreachable: HOST is another machine; the error's text is
// `elsewhere`, which must be static. Blocks for the system's resolver, until the deadline at most.
Result<std::uint16_t> local_port(const std::string& address, const Deadline& deadline,
                                 const char* elsewhere);

struct PeerProcess {
  int pid = 0;
};
// Checks a client for the server. kPermission, unless the client is root, has our own user id, or
// has the group as its primary or a supplementary group.
Result<PeerProcess> trusted_client(int socket, std::optional<gid_t> group);
// Checks the owner of the socket in `directory` for a client. kPermission, unless the owner is
// root, has our own user id, or owns `directory` and nobody else but root can have created the
// socket there. Other users cannot choose the directory: the user names it, or only root can create
// it.
Status trusted_server(int socket, const std::string& directory);

}  // namespace rkv::rdma::shm
