#include "rdma/transport/shm/directory.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "common/parse.h"
#include "rdma/transport/shm_directories.h"
#include "rkv/rdma/address.h"

namespace rkv::rdma::shm {
namespace {

constexpr const char* kSystemDirectory = "/run/rkv";

std::string own_directory() {
  return fmt::format("/tmp/rkv-{}", geteuid());
}

std::string chosen_directory(const std::string& chosen) {
  if (!chosen.empty()) return chosen;
  const char* named = std::getenv("RKV_SHM_DIR");
  return named == nullptr ? std::string() : std::string(named);
}

std::unexpected<Error> group_error(const char* call, int error) {
  return fail_call(Code::kPermission, call, error,
                   "the server must be root or a member of the group that it accepts");
}

Result<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return fail_call(Code::kPermission, "getsockopt(SO_PEERCRED)", errno);
  }
  return peer;
}

bool others_write(const struct stat& status) {
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

// Whether only root can create or replace the entry of that path in its directory.
bool is_for_root_to_make(const std::string& path) {
  struct stat parent{};
  const std::string above = path.substr(0, std::max<std::size_t>(path.rfind('/'), 1));
  return lstat(above.c_str(), &parent) == 0 && parent.st_uid == 0 && !others_write(parent);
}

// Returns the supplementary groups that a process had when it connected.
std::vector<gid_t> groups_of_peer(int socket) {
  std::vector<gid_t> groups(64);
  for (;;) {
    auto length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length);
    if (result != 0 && errno != ERANGE) return {};
    const bool fits = result == 0;
    groups.resize(length / sizeof(gid_t));
    if (fits) return groups;
  }
}

}  // namespace

Result<std::optional<gid_t>> group_named(const std::string& group) {
  if (group.empty()) return std::optional<gid_t>();
  if (const auto number = parse_number<gid_t>(group, 0, std::numeric_limits<gid_t>::max() - 1)) {
    return number;
  }
  std::vector<char> room(std::size_t{1} << 16);
  struct group entry{};
  struct group* found = nullptr;
  if (getgrnam_r(group.c_str(), &entry, room.data(), room.size(), &found) != 0 ||
      found == nullptr) {
    return fail(Code::kInvalidArgument,
                "the system has no group of that name for clients over shared memory");
  }
  return std::optional(found->gr_gid);
}

Result<std::string> server_directory(const std::string& chosen, std::optional<gid_t> group) {
  std::string path = chosen_directory(chosen);
  const bool system = path.empty() && geteuid() == 0;
  if (path.empty()) path = system ? kSystemDirectory : own_directory();
  const bool made = mkdir(path.c_str(), system ? 0755 : 0700) == 0;
  if (!made && errno != EEXIST) {
    const int error = errno;
    return fail_call(
        error == EACCES || error == EPERM || error == EROFS ? Code::kPermission : Code::kIo,
        "mkdir", error,
        "the directory of the shared-memory sockets cannot be created: choose another with "
        "RKV_SHM_DIR");
  }
  // lstat: a link could point elsewhere by the time the socket is created.
  struct stat status{};
  if (lstat(path.c_str(), &status) != 0) return fail_call(Code::kPermission, "lstat", errno);
  if (!S_ISDIR(status.st_mode) || (status.st_uid != geteuid() && status.st_uid != 0) ||
      others_write(status)) {
    return fail(Code::kPermission,
                "the directory of the shared-memory sockets must be a directory that belongs to "
                "this user or root and that nobody else can write: correct it, or choose another "
                "with RKV_SHM_DIR");
  }
  // An existing directory keeps the mode that its owner chose; a new directory has a mode cut by
  // umask.
  if (made && system && chmod(path.c_str(), 0755) != 0) return group_error("chmod", errno);
  if (made && !system && group) {
    if (chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0)
      return group_error("chown", errno);
    if (chmod(path.c_str(), 0710) != 0) return group_error("chmod", errno);
  }
  return path;
}

Status check_named_directory(const std::string& chosen) {
  const std::string path = chosen_directory(chosen);
  if (path.empty() || path.starts_with('/')) return {};
  return fail(Code::kInvalidArgument,
              "the directory of the shared-memory sockets (RKV_SHM_DIR) must be an absolute path: "
              "servers and clients have different working directories");
}

std::vector<ClientDirectory> client_directories(const std::string& chosen) {
  if (std::string path = chosen_directory(chosen); !path.empty()) {
    return {{.path = std::move(path), .trusts_owner = true}};
  }
  return {{.path = kSystemDirectory, .trusts_owner = is_for_root_to_make(kSystemDirectory)},
          {.path = own_directory(), .trusts_owner = false}};
}

Status trusted_directory(const ClientDirectory& directory) {
  if (directory.trusts_owner) return {};
  struct stat status{};
  if (lstat(directory.path.c_str(), &status) != 0) {
    return fail_call(Code::kUnreachable, "lstat", errno,
                     "no server on this host listens on that port over shared memory");
  }
  if (S_ISDIR(status.st_mode) && !others_write(status) &&
      (status.st_uid == 0 || status.st_uid == geteuid())) {
    return {};
  }
  return fail(Code::kPermission,
              "the default directory of the shared-memory sockets belongs to another user, or "
              "others can write in it: servers there are not trusted (kvclient doctor names it); "
              "have root remove it, or choose another directory with RKV_SHM_DIR");
}

std::string socket_path(const std::string& directory, std::uint16_t port) {
  return fmt::format("{}/shm-{}.sock", directory, port);
}

std::string lock_path(const std::string& directory, std::uint16_t port) {
  return fmt::format("{}/shm-{}.lock", directory, port);
}

Result<std::uint16_t> local_port(const std::string& address, const Deadline& deadline,
                                 const char* elsewhere) {
  RKV_ASSIGN_OR_RETURN(const HostPort where, parse_host_port(address));
  if (where.host.empty() || where.host == "localhost") return where.port;
  RKV_ASSIGN_OR_RETURN(const std::vector<SocketAddress> all, resolve(where, deadline));
  if (std::ranges::none_of(all, is_this_host)) {
    return fail(Code::kUnreachable, elsewhere);
  }
  return where.port;
}

Result<PeerProcess> trusted_client(int socket, std::optional<gid_t> group) {
  RKV_ASSIGN_OR_RETURN(const ucred peer, peer_of(socket));
  const bool same = peer.uid == 0 || peer.uid == geteuid();
  if (!same && group && peer.gid != *group) {
    const std::vector<gid_t> others = groups_of_peer(socket);
    if (std::ranges::find(others, *group) == others.end()) group.reset();
  }
  if (!same && !group) {
    return fail(Code::kPermission,
                "a server accepts shared-memory clients only of its own user, root, and the group "
                "of --shm-group");
  }
  return PeerProcess{.pid = peer.pid};
}

Status trusted_server(int socket, const ClientDirectory& directory) {
  RKV_ASSIGN_OR_RETURN(const ucred peer, peer_of(socket));
  if (peer.uid == 0 || peer.uid == geteuid()) return {};
  struct stat status{};
  if (directory.trusts_owner && stat(directory.path.c_str(), &status) == 0 &&
      status.st_uid == peer.uid && !others_write(status)) {
    return {};
  }
  return fail(Code::kPermission,
              "a client trusts a shared-memory server only of root, its own user, or the owner of "
              "a directory that RKV_SHM_DIR names or root has made");
}

}  // namespace rkv::rdma::shm

namespace rkv::rdma {

std::vector<ShmDirectory> shm_directories(const ShmOptions& options) {
  std::vector<ShmDirectory> all;
  for (const shm::ClientDirectory& one : shm::client_directories(options.directory)) {
    struct stat status{};
    const bool exists = lstat(one.path.c_str(), &status) == 0;
    const Status trusted = exists ? shm::trusted_directory(one) : Status();
    all.push_back({.path = one.path,
                   .exists = exists,
                   .owner = status.st_uid,
                   .is_trusted = trusted.has_value()});
  }
  return all;
}

}  // namespace rkv::rdma
