// The directory of servers' sockets, checks of a socket's peer, and addresses that mean this host.
//
// Thread safety: free functions; any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rkv/result.h"

namespace rkv::rdma::shm {

// Returns the directory that a server uses: `chosen`, else RKV_SHM_DIR, else /run/rkv for root and
// /tmp/rkv-UID otherwise. Creates it if it is missing; `group`, if any, may then pass through it.
// kPermission: it is not ours, or others may write in it.
Result<std::string> server_directory(const std::string& chosen, std::optional<gid_t> group);
// Looks up a group by name or number; returns nullopt for "". kInvalidArgument: there is no such
// group.
Result<std::optional<gid_t>> group_named(const std::string& group);
// kInvalidArgument: the named directory is a relative path.
Status check_named_directory(const std::string& chosen);

// A directory that a client searches. Its owner is trusted if the user named the directory, or if
// only root can have made it. /tmp/rkv-UID can be made by any user.
struct ClientDirectory {
  std::string path;
  bool trusts_owner = false;
};
// Returns the directories that a client searches, in order: `chosen` alone, else RKV_SHM_DIR alone,
// else /run/rkv and then /tmp/rkv-UID.
std::vector<ClientDirectory> client_directories(const std::string& chosen);
// Call it before a socket in the directory is called. kPermission, unless the owner is trusted, or
// the directory belongs to root or our own user and others cannot write in it. kUnreachable: it
// does not exist.
Status trusted_directory(const ClientDirectory& directory);

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
// Checks the server behind the socket in `directory` for a client. kPermission, unless the server
// belongs to root or our own user. The owner of `directory` is also allowed if it is trusted and
// only it or root can have created the socket there.
Status trusted_server(int socket, const ClientDirectory& directory);

}  // namespace rkv::rdma::shm
