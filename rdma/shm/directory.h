// Where servers put their sockets, who may be behind one, and which addresses mean this host.
//
// Thread safety: free functions; any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "rdma/shm/memory.h"
#include "rkv/result.h"

namespace rkv::rdma::shm {

// The one directory a server uses: `chosen`, else RKV_SHM_DIR, else /run/rkv for root and
// /tmp/rkv-UID otherwise. Made where it is missing, for `group` to pass through if there is one.
// kPermission: it is not ours, or others may write in it.
Result<std::string> server_directory(const std::string& chosen, std::optional<gid_t> group);
// By name or number; nothing for "". kInvalidArgument: there is no such group.
Result<std::optional<gid_t>> group_named(const std::string& group);
// Where a client looks, in this order: `chosen` alone, else RKV_SHM_DIR alone, else /run/rkv and
// then /tmp/rkv-UID.
std::vector<std::string> client_directories(const std::string& chosen);

std::string socket_path(const std::string& directory, std::uint16_t port);
std::string lock_path(const std::string& directory, std::uint16_t port);

// The port of HOST:PORT. kUnreachable, with the text `elsewhere`, which is static: HOST is another
// machine. Blocks for the system's resolver, at most until the deadline.
Result<std::uint16_t> local_port(const std::string& address, const Deadline& deadline,
                                 const char* elsewhere);

struct PeerProcess {
  int pid = 0;
};
// A server's view of a caller: kPermission, unless it is root, has our own user id, or belongs to
// the group, as its first or any other one.
Result<PeerProcess> trusted_client(int socket, std::optional<gid_t> group);
// A client's view of who has the socket in `directory`: kPermission, unless it is root, has our own
// user id, or owns that directory, in which nobody else but root can have made the socket. Whose
// directory is used is not for others to choose: the user names it, or only root can make it.
Status trusted_server(int socket, const std::string& directory);

}  // namespace rkv::rdma::shm
